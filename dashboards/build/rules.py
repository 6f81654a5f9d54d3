"""Recording rules: what alerts look at, computed once. `namespace` is there where Prometheus runs on Kubernetes."""

from __future__ import annotations

from typing import NamedTuple

PIPELINE = "namespace, pipeline"
STAGE = f"{PIPELINE}, stage"
WORKER = f"{PIPELINE}, worker"


class Recording(NamedTuple):
    """A series that Prometheus computes at every evaluation."""

    record: str
    expr: str


INPUT_RATE = "pipeline_stage:skewless_input_records:rate5m"
TUPLE_RATE = "pipeline_stage:skewless_tuples:rate5m"
LAG = "pipeline_stage:skewless_lag_records:sum"
CATCH_UP = "pipeline_stage:skewless_catch_up_seconds:ratio"
WATERMARK = "pipeline_stage:skewless_watermark_seconds:min"
SENT = "pipeline_worker:skewless_router_tuples:rate5m"
AVERAGE = "pipeline:skewless_router_tuples_per_worker:rate5m"
UNEVEN = "pipeline:skewless_router_max_over_avg:ratio"

RECORDINGS = (
    Recording(INPUT_RATE, f"sum by ({STAGE}) (rate(skewless_input_records_total[5m]))"),
    Recording(TUPLE_RATE, f"sum by ({STAGE}) (rate(skewless_tuples_total[5m]))"),
    Recording(LAG, f"sum by ({STAGE}) (skewless_lag_records)"),
    Recording(CATCH_UP, f"{LAG} / {INPUT_RATE}"),
    Recording(WATERMARK, f"min by ({STAGE}) (skewless_watermark_seconds)"),
    Recording(SENT, f"sum by ({WORKER}) (rate(skewless_router_tuples_total[5m]))"),
    Recording(AVERAGE, f"sum by ({PIPELINE}) ({SENT}) / max by ({PIPELINE}) (skewless_router_workers)"),
    Recording(UNEVEN, f"max by ({PIPELINE}) ({SENT}) / {AVERAGE}"),
)


def document() -> dict[str, object]:
    """Build the file of recording rules."""
    rules = [{"record": rule.record, "expr": rule.expr} for rule in RECORDINGS]
    return {"groups": [{"name": "skewless-recordings", "rules": rules}]}
