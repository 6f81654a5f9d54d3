"""Alerts. Their runbooks explain what each alert means and what to do."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dashboards.generate.rules import (
    CATCH_UP,
    DECIDED_RATE,
    LAG,
    MATCH_RATE,
    MEAN_WORKER_RATE,
    PIPELINE,
    STAGE,
    TUPLE_RATE,
    WATERMARK,
    WORKER,
    WORKER_RATE,
)

OVERLOAD = 1.5
MIN_ROWS_PER_WORKER = 100
"""Minimum mean number of rows per worker in five minutes for the overload alert. Above it, 1.5 times the mean is five
standard deviations of a Poisson distribution, so it is not noise."""
CATCH_UP_S = 300
ABORTED = 0.05
NEAR_LIMIT = 0.8
MATCH_RATE_LEFT = 0.8
"""Part of the match rate of an hour ago below which it has fallen."""
MIN_DECIDED = 100
"""Minimum number of left records in five minutes for the alert of the match rate. Below it, a change may be chance."""
PARTITION = f"{STAGE}, partition"
DEAD_LETTERS = 'skewless_produced_records_total{topic="dead-letters"}'
REFUSED_ROWS = 'skewless_sink_rows_total{outcome="refused"}'


def _growth(counter: str) -> str:
    """Return the growth of a counter by stage over 10 minutes, including what it counted before its first scrape."""
    return f"sum by ({STAGE}) (\n  {counter} unless {counter} offset 10m\n  or increase({counter}[10m])\n)"


class Alert(NamedTuple):
    """An alert. `summary` and `description` are Prometheus templates."""

    name: str
    expr: str
    for_duration: str
    """How long the expression must be true before the alert fires."""
    severity: Literal["warning", "critical"]
    summary: str
    description: str


ALERTS = (
    Alert(
        "SkewlessWorkerOverloaded",
        f"{WORKER_RATE}\n  > on ({PIPELINE}) group_left () {OVERLOAD} * {MEAN_WORKER_RATE}\n"
        f"  and on ({PIPELINE}) 300 * {MEAN_WORKER_RATE} >= {MIN_ROWS_PER_WORKER}",
        "10m",
        "warning",
        "Worker {{ $labels.worker }} of pipeline {{ $labels.pipeline }} is overloaded",
        f"Routers send it {{{{ $value | humanize }}}} rows per second, more than {OVERLOAD} times the average. Topic "
        "{{ $labels.pipeline }}.hot-keys names the keys that are too hot for one worker.",
    ),
    Alert(
        "SkewlessLagGrowing",
        f"{CATCH_UP} > {CATCH_UP_S}\n  and deriv({LAG}[10m]) > 0",
        "10m",
        "warning",
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} falls behind",
        "Its lag grows. Without new records it would need {{ $value | humanizeDuration }} to catch up.",
    ),
    Alert(
        "SkewlessPartitionStalled",
        f"max by ({PARTITION}) (skewless_consumer_lag_records) > 0\n"
        f"  and max by ({PARTITION}) (changes(skewless_committed_offset[5m])) == 0",
        "5m",
        "critical",
        "Partition {{ $labels.partition }} of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} is stalled",
        "It has a lag of {{ $value | humanize }} records, and its committed offset has not advanced in 5 minutes.",
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
        "The watermark of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} does not advance",
        "It processes tuples, but its watermark has not advanced in 10 minutes, or it has none. No window closes.",
    ),
    Alert(
        "SkewlessDeadLetters",
        f"{_growth(DEAD_LETTERS)} > 0",
        "0m",
        "warning",
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} cannot read some records",
        "{{ $value | humanize }} records were written to the topic dead-letters in the last 10 minutes, or before"
        " the first scrape.",
    ),
    Alert(
        "SkewlessTransactionsAborted",
        f'sum by ({STAGE}) (rate(skewless_transactions_total{{outcome="aborted"}}[5m]))\n'
        f"  / sum by ({STAGE}) (rate(skewless_transactions_total[5m])) > {ABORTED}",
        "5m",
        "warning",
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} aborts many transactions",
        "{{ $value | humanizePercentage }} of its transactions are aborted, and their records are processed again.",
    ),
    Alert(
        "SkewlessStateNearLimit",
        f"max by ({STAGE}, instance) (skewless_state_bytes / skewless_state_limit_bytes) > {NEAR_LIMIT}",
        "1m",
        "warning",
        "The state of process {{ $labels.instance }} of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} is"
        " near its limit",
        "It uses {{ $value | humanizePercentage }} of the limit. Above the limit the process exits with code 3.",
    ),
    Alert(
        "SkewlessWorkerMissing",
        f"count by ({PIPELINE}) (\n"
        f"  {WORKER_RATE} > 0\n"
        f"  unless on ({WORKER})\n"
        f'  label_replace(skewless_consumer_lag_records{{stage="worker"}}, "worker", "$1", "partition", "(.*)")\n'
        ")\n"
        f'and group by ({PIPELINE}) (max_over_time(skewless_build_info{{stage="worker"}}[1d]))',
        "2m",
        "critical",
        "Pipeline {{ $labels.pipeline }} has worker partitions without a process",
        "Worker partitions that receive tuples and that no running process owns: {{ $value }}.",
    ),
    Alert(
        "SkewlessProcessHung",
        "changes(skewless_commit_duration_seconds_count[5m]) == 0\n  and skewless_ready == 1",
        "2m",
        "critical",
        "Process {{ $labels.instance }} of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} hangs",
        "It reports ready, but has not committed in 5 minutes. A commit is due at least every minute.",
    ),
    Alert(
        "SkewlessStoreDown",
        f"max by ({STAGE}) (skewless_sink_store_up) == 0",
        "1m",
        "critical",
        "The database of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} is not available",
        "No process is connected to it. The table is not updated, and nothing is lost: results wait in their topic.",
    ),
    Alert(
        "SkewlessRowsRefused",
        f"{_growth(REFUSED_ROWS)} > 0",
        "0m",
        "warning",
        "The database refuses some results of pipeline {{ $labels.pipeline }}",
        "{{ $value | humanize }} rows were written to the table of refused rows in the last 10 minutes, or before the"
        " first scrape.",
    ),
    Alert(
        "SkewlessJoinStopped",
        f"max by ({STAGE}, side) (min_over_time(skewless_join_silent_partitions[5m])) > 0",
        "5m",
        "warning",
        "The join of pipeline {{ $labels.pipeline }} waits for its {{ $labels.side }} topic",
        "At a process, {{ $value }} partitions of it are silent, and records of the other topic wait for them. Nothing"
        " is lost.",
    ),
    Alert(
        "SkewlessJoinBufferFull",
        f"max by ({STAGE}, instance) (\n"
        f"  sum by ({STAGE}, instance) (skewless_join_held_records)\n"
        f"  / on ({STAGE}, instance) skewless_join_buffer_limit_records\n"
        ") >= 1",
        "5m",
        "warning",
        "Process {{ $labels.instance }} of the join of pipeline {{ $labels.pipeline }} holds as many records as it may",
        "It holds {{ $value | humanizePercentage }} of join.buffer_records, and reads only its slowest partition.",
    ),
    Alert(
        "SkewlessMatchRateFell",
        f"{MATCH_RATE} < {MATCH_RATE_LEFT} * ({MATCH_RATE} offset 60m)\n"
        f"  and on ({PIPELINE}) 300 * {DECIDED_RATE} >= {MIN_DECIDED}",
        "10m",
        "warning",
        "The join of pipeline {{ $labels.pipeline }} finds fewer pairs than an hour ago",
        "{{ $value | humanizePercentage }} of the left records have a partner.",
    ),
    Alert(
        "SkewlessStageDown",
        f"group by ({STAGE}) (max_over_time(skewless_build_info[1h]))\n"
        f"  unless on ({STAGE}) (max by ({STAGE}) (skewless_ready) == 1)",
        "1m",
        "critical",
        "No process of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} is ready",
        "A process ran within the last hour. Now Prometheus can scrape none, or none is ready.",
    ),
)


def document(docs: str) -> dict[str, object]:
    """Return the content of the file of alerts. `docs` is the address of the page of runbooks."""
    return {"groups": [{"name": "skewless-alerts", "rules": [_rule(alert, docs) for alert in ALERTS]}]}


def _rule(alert: Alert, docs: str) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.for_duration,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{docs}#{alert.name.lower()}",
        },
    }
