"""Recording rules: expressions that several alerts use, evaluated once."""

from __future__ import annotations

from typing import NamedTuple

# The label `namespace` exists only where Prometheus runs on Kubernetes, and `cluster` only where one system has the
# series of several clusters.
PIPELINE = "cluster, namespace, pipeline"
STAGE = f"{PIPELINE}, stage"
PROCESS = "cluster, namespace, job, instance"
WORKER = f"{PIPELINE}, worker"


class Recording(NamedTuple):
    """A series that Prometheus computes at every evaluation."""

    record: str
    expr: str


INPUT_RATE = "pipeline_stage:skewless_input_records:rate5m"
TUPLE_RATE = "pipeline_stage:skewless_tuples:rate5m"
LAG = "pipeline_stage:skewless_consumer_lag_records:sum"
CATCH_UP = "pipeline_stage:skewless_catch_up_seconds:ratio"
WATERMARK = "pipeline_stage:skewless_watermark_timestamp_seconds:min"
WORKER_RATE = "pipeline_worker:skewless_router_rows:rate5m"
MEAN_WORKER_RATE = "pipeline:skewless_router_rows_per_worker:rate5m"
PEAK_TO_MEAN = "pipeline:skewless_router_max_over_avg:ratio"
LATENCY = "pipeline:skewless_end_to_end_latency_seconds:p99_rate5m"
RESULTS_AGE = "pipeline:skewless_results_age_seconds:max"
LATE_RATE = "pipeline:skewless_late_tuples:rate5m"
LATE_SHARE = "pipeline:skewless_late:ratio_rate5m"
DECIDED_RATE = "pipeline:skewless_join_left_records:rate5m"
MATCH_RATE = "pipeline:skewless_join_match:ratio_rate5m"

RECORDINGS = (
    Recording(INPUT_RATE, f"sum by ({STAGE}) (rate(skewless_consumed_records_total[5m]))"),
    Recording(TUPLE_RATE, f"sum by ({STAGE}) (rate(skewless_tuples_total[5m]))"),
    Recording(LAG, f"sum by ({STAGE}) (skewless_consumer_lag_records)"),
    Recording(CATCH_UP, f"{LAG} / {INPUT_RATE}"),
    Recording(WATERMARK, f"min by ({STAGE}) (skewless_watermark_timestamp_seconds)"),
    Recording(WORKER_RATE, f"sum by ({WORKER}) (rate(skewless_router_rows_total[5m]))"),
    Recording(MEAN_WORKER_RATE, f"sum by ({PIPELINE}) ({WORKER_RATE}) / max by ({PIPELINE}) (skewless_router_workers)"),
    Recording(PEAK_TO_MEAN, f"max by ({PIPELINE}) ({WORKER_RATE}) / {MEAN_WORKER_RATE}"),
    Recording(LATE_RATE, f'sum by ({PIPELINE}) (rate(skewless_produced_records_total{{topic="late"}}[5m]))'),
    Recording(
        LATE_SHARE,
        f'{LATE_RATE} / ({LATE_RATE} + sum by ({PIPELINE}) (rate(skewless_tuples_total{{stage="splitter"}}[5m])))',
    ),
    Recording(
        LATENCY,
        f"histogram_quantile(0.99, sum by ({PIPELINE}, le) (rate(skewless_end_to_end_latency_seconds_bucket[5m])))",
    ),
    Recording(
        RESULTS_AGE,
        f'time() - min by ({PIPELINE}) (skewless_watermark_timestamp_seconds{{stage="aggregator"}})',
    ),
    Recording(
        DECIDED_RATE,
        f"sum by ({PIPELINE}) (rate(skewless_join_pairs_total[5m]))"
        f' + sum by ({PIPELINE}) (rate(skewless_join_unmatched_total{{side="left"}}[5m]))',
    ),
    Recording(MATCH_RATE, f"sum by ({PIPELINE}) (rate(skewless_join_pairs_total[5m])) / {DECIDED_RATE}"),
)


def document() -> dict[str, object]:
    """Return the content of the file of recording rules."""
    rules = [{"record": rule.record, "expr": rule.expr} for rule in RECORDINGS]
    return {"groups": [{"name": "skewless-recordings", "rules": rules}]}
