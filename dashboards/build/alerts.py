"""The alerts; what each means and what to do is in their runbooks."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dashboards.build.rules import AVERAGE, CATCH_UP, LAG, PIPELINE, SENT, STAGE, TUPLE_RATE, WATERMARK, WORKER

OVERLOAD = 1.5
MEANINGFUL = 100
"""Tuples of the average worker in five minutes from which on a multiple of them is no chance: half more is five
standard deviations of a Poisson distribution."""
CATCH_UP_S = 300
ABORTED = 0.05
NEAR_LIMIT = 0.8
PARTITION = f"{STAGE}, partition"
LETTERS = 'skewless_output_records_total{topic="dead-letters"}'


class Alert(NamedTuple):
    """One alert; `summary` and `description` are Prometheus' templates."""

    name: str
    expr: str
    lasting: str
    """How long the expression must hold."""
    severity: Literal["warning", "critical"]
    summary: str
    description: str


ALERTS = (
    Alert(
        "SkewlessWorkerOverloaded",
        f"{SENT}\n  > on ({PIPELINE}) group_left () {OVERLOAD} * {AVERAGE}\n"
        f"  and on ({PIPELINE}) 300 * {AVERAGE} >= {MEANINGFUL}",
        "10m",
        "warning",
        "Worker {{ $labels.worker }} of pipeline {{ $labels.pipeline }} gets far more than the others",
        f"Routers send it {{{{ $value | humanize }}}} tuples per second, more than {OVERLOAD} times the average.",
    ),
    Alert(
        "SkewlessLagGrowing",
        f"{CATCH_UP} > {CATCH_UP_S}\n  and deriv({LAG}[10m]) > 0",
        "10m",
        "warning",
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} falls behind",
        "Its lag grows, and it would take {{ $value | humanizeDuration }} to catch up if nothing more came.",
    ),
    Alert(
        "SkewlessPartitionStalled",
        f"max by ({PARTITION}) (skewless_lag_records) > 0\n"
        f"  and max by ({PARTITION}) (changes(skewless_committed_offset[5m])) == 0",
        "5m",
        "critical",
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }}: partition {{ $labels.partition }} stands still",
        "{{ $value | humanize }} records wait there, and nothing was committed in 5 minutes.",
    ),
    Alert(
        "SkewlessWatermarkStuck",
        "(\n"
        f"  changes({WATERMARK}[10m]) == 0\n"
        f'  or sum by ({STAGE}) (min_over_time(skewless_assigned_partitions{{state="unknown"}}[10m])) > 0\n'
        f"  and {TUPLE_RATE} offset 10m\n"
        f"  unless {WATERMARK}\n"
        ")\n"
        f"and {TUPLE_RATE} > 0",
        "5m",
        "warning",
        "Event time stands still at stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }}",
        "It takes tuples in, but its watermark has not moved in 10 minutes, or it never had one: no window closes.",
    ),
    Alert(
        "SkewlessDeadLetters",
        f"sum by ({STAGE}) (\n  {LETTERS} unless {LETTERS} offset 10m\n  or increase({LETTERS}[10m])\n) > 0",
        "0m",
        "warning",
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} cannot read some records",
        "{{ $value | humanize }} records went to the topic dead-letters in the last 10 minutes, or before"
        " the first scrape.",
    ),
    Alert(
        "SkewlessTransactionsAborted",
        f'sum by ({STAGE}) (rate(skewless_transactions_total{{outcome="aborted"}}[5m]))\n'
        f"  / sum by ({STAGE}) (rate(skewless_transactions_total[5m])) > {ABORTED}",
        "5m",
        "warning",
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} repeats much of its work",
        "{{ $value | humanizePercentage }} of its transactions are aborted.",
    ),
    Alert(
        "SkewlessStateNearLimit",
        f"max by ({STAGE}, instance) (skewless_state_bytes / skewless_state_limit_bytes) > {NEAR_LIMIT}",
        "1m",
        "warning",
        "Process {{ $labels.instance }} of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} holds almost as"
        " much state as it may",
        "It holds {{ $value | humanizePercentage }} of its limit, and ends with exit code 3 beyond it.",
    ),
    Alert(
        "SkewlessWorkerMissing",
        f"count by ({PIPELINE}) (\n"
        f"  {SENT} > 0\n"
        f"  unless on ({WORKER})\n"
        f'  label_replace(skewless_lag_records{{stage="worker"}}, "worker", "$1", "partition", "(.*)")\n'
        ")\n"
        f'and group by ({PIPELINE}) (max_over_time(skewless_build_info{{stage="worker"}}[1d]))',
        "2m",
        "critical",
        "Pipeline {{ $labels.pipeline }} has workers that no process works for",
        "Worker partitions that get tuples and that no running process owns: {{ $value }}.",
    ),
    Alert(
        "SkewlessProcessHung",
        "changes(skewless_commit_seconds_count[5m]) == 0\n  and skewless_ready == 1",
        "2m",
        "critical",
        "Process {{ $labels.instance }} of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} hangs",
        "It says that it is ready, but has not come to a commit in 5 minutes; one is due every minute at the latest.",
    ),
    Alert(
        "SkewlessStageDown",
        f"group by ({STAGE}) (max_over_time(skewless_build_info[1h]))\n"
        f"  unless on ({STAGE}) (max by ({STAGE}) (skewless_ready) == 1)",
        "1m",
        "critical",
        "No process of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} is ready",
        "There was one within the last hour; now none answers to Prometheus, or none is ready.",
    ),
)


def document(docs: str) -> dict[str, object]:
    """Build the file of alerts; `docs` is where the page of runbooks stands."""
    return {"groups": [{"name": "skewless-alerts", "rules": [_rule(alert, docs) for alert in ALERTS]}]}


def _rule(alert: Alert, docs: str) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{docs}#{alert.name.lower()}",
        },
    }
