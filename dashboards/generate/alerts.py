"""Alerts. Their runbooks explain what each alert means and what to do."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dashboards.generate.rules import (
    CATCH_UP,
    DECIDED_RATE,
    LAG,
    LATE_RATE,
    LATE_SHARE,
    LATENCY,
    MATCH_RATE,
    MEAN_WORKER_RATE,
    PIPELINE,
    PROCESS,
    RESULTS_AGE,
    STAGE,
    TUPLE_RATE,
    WATERMARK,
    WORKER,
    WORKER_RATE,
)
from skewless.stages.aggregator.metrics import LATENCY_S
from skewless.topology import STAGES

THRESHOLD = "$threshold"
"""Stands for the threshold of an alert in its expression and in its texts. The chart replaces it by a value."""
MIN_ROWS_PER_WORKER = 100
"""Minimum mean number of rows per worker in five minutes for the overload alert. Above it, 1.5 times the mean is five
standard deviations of a Poisson distribution, so it is not noise."""
MIN_LATE = 10
"""Minimum number of late tuples in five minutes for the alert of their share."""
OFFSETS_D = 7
"""Days after which a broker deletes the offsets of a group without members (`offsets.retention.minutes`)."""
WITHOUT_OFFSETS = "|".join(stage.name for stage in STAGES if stage.section == "sink")
"""Stages whose offsets are in a database."""
WITHOUT_EVENT_TIME = "|".join(stage.name for stage in STAGES if stage.event_time is None and stage.section != "sink")
"""Stages that read no event times. All their partitions are always in the state `unknown`. Those with their offsets in
a database are not among them: the flusher has watermarks, and the others count no tuples."""
MIN_DECIDED = 100
"""Minimum number of left records in five minutes for the alert of the match rate. Below it, a change may be chance."""
PARTITION = f"{STAGE}, partition"
UNKNOWN_PARTITIONS = f'skewless_assigned_partitions{{state="unknown", stage!~"{WITHOUT_EVENT_TIME}"}}'
DEAD_LETTERS = 'skewless_produced_records_total{topic="dead-letters"}'
REFUSED_ROWS = 'skewless_sink_rows_total{outcome="refused"}'


def _growth(counter: str) -> str:
    """Return the growth of a counter by stage over 10 minutes, including what it counted before its first scrape."""
    # A series that was there in the half hour before is not new: scrapes may fail.
    known = f"present_over_time({counter}[30m] offset 10m)"
    return f"sum by ({STAGE}) (\n  {counter} unless {known}\n  or increase({counter}[10m])\n)"


class Bound(NamedTuple):
    """Upper bound of the threshold of an alert."""

    operator: Literal["<", "<="]
    value: float


class Alert(NamedTuple):
    """An alert. `summary` and `description` are Prometheus templates."""

    name: str
    expr: str
    for_duration: str
    """How long the expression must be true before the alert fires."""
    severity: Literal["warning", "critical"]
    summary: str
    description: str
    threshold: float | None = None
    """Default threshold; None for an alert without one."""
    bound: Bound | None = None
    """Bound of other thresholds. With one beyond it, the alert would never fire, or always."""

    def with_threshold(self, text: str) -> str:
        """Return a text of the alert with its default threshold."""
        return text if self.threshold is None else text.replace(THRESHOLD, f"{self.threshold:g}")


ALERTS = (
    Alert(
        "SkewlessWorkerOverloaded",
        f"{WORKER_RATE}\n  > on ({PIPELINE}) group_left () {THRESHOLD} * {MEAN_WORKER_RATE}\n"
        f"  and on ({PIPELINE}) 300 * {MEAN_WORKER_RATE} >= {MIN_ROWS_PER_WORKER}",
        "10m",
        "warning",
        "Worker {{ $labels.worker }} of pipeline {{ $labels.pipeline }} is overloaded",
        f"Routers send it {{{{ $value | humanize }}}} rows per second, more than {THRESHOLD} times the average. Topic "
        "{{ $labels.pipeline }}.hot-keys names the keys that are too hot for one worker.",
        1.5,
    ),
    Alert(
        "SkewlessLagGrowing",
        f"{CATCH_UP} > {THRESHOLD}\n  and deriv({LAG}[10m]) > 0",
        "10m",
        "warning",
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} falls behind",
        "Its lag grows. Without new records it would need {{ $value | humanizeDuration }} to catch up.",
        300,
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
        f"  or sum by ({STAGE}) (min_over_time({UNKNOWN_PARTITIONS}[10m])) > 0\n"
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
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} refuses some records",
        '{{ printf "%.0f" $value }} records were written to the topic dead-letters in the last 10 minutes, or before'
        " the first scrape.",
    ),
    Alert(
        "SkewlessTransactionsAborted",
        f'sum by ({STAGE}) (rate(skewless_transactions_total{{outcome="aborted"}}[5m]))\n'
        f"  / sum by ({STAGE}) (rate(skewless_transactions_total[5m])) > {THRESHOLD}",
        "5m",
        "warning",
        "Stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} aborts many transactions",
        "{{ $value | humanizePercentage }} of its transactions are aborted, and their records are processed again.",
        0.05,
        Bound("<", 1),
    ),
    Alert(
        "SkewlessStateNearLimit",
        f"max by ({STAGE}, instance) (skewless_state_bytes / skewless_state_limit_bytes) > {THRESHOLD}",
        "1m",
        "warning",
        "The state of process {{ $labels.instance }} of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} is"
        " near its limit",
        "It uses {{ $value | humanizePercentage }} of the limit. Above the limit an aggregator or ranker exits with"
        " code 3. An observer drops the keys with few tuples, and exits only if it has too many ticks even so.",
        0.8,
        Bound("<=", 1),
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
        # A process without partitions is ready, and has nothing to commit.
        "changes(skewless_commit_duration_seconds_count[5m]) == 0\n  and skewless_ready == 1\n"
        f"  and on ({STAGE}, instance) skewless_consumer_lag_records",
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
        '{{ printf "%.0f" $value }} rows were written to the table of refused rows in the last 10 minutes, or before'
        " the first scrape.",
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
        "It holds {{ $value | humanizePercentage }} of join.buffer_records or join.buffer_bytes, and reads only its"
        " slowest partition.",
    ),
    Alert(
        "SkewlessMatchRateFell",
        f"{MATCH_RATE} < {THRESHOLD} * ({MATCH_RATE} offset 60m)\n"
        f"  and on ({PIPELINE}) 300 * {DECIDED_RATE} >= {MIN_DECIDED}\n"
        # Pairs are found at once, and unmatched records decided later: the first ratio after a start or a pause is 1.
        f"  and on ({PIPELINE}) 300 * ({DECIDED_RATE} offset 120m) >= {MIN_DECIDED}",
        "10m",
        "warning",
        "The join of pipeline {{ $labels.pipeline }} finds fewer pairs than an hour ago",
        "{{ $value | humanizePercentage }} of the left records have a partner.",
        0.8,
        Bound("<=", 1),
    ),
    Alert(
        "SkewlessLateTuples",
        f"{LATE_SHARE} > {THRESHOLD}\n  and on ({PIPELINE}) 300 * {LATE_RATE} >= {MIN_LATE}",
        "10m",
        "warning",
        "Pipeline {{ $labels.pipeline }} counts many tuples as late",
        "{{ $value | humanizePercentage }} of its tuples are late. They are not in the results, but in the topic late.",
        0.001,
        Bound("<", 1),
    ),
    Alert(
        "SkewlessResultsStale",
        f"{RESULTS_AGE} > {THRESHOLD}\n"
        f"  and on ({PIPELINE}) time() - max by ({PIPELINE}) "
        f'(skewless_max_event_timestamp_seconds{{stage="splitter"}}) < {THRESHOLD}',
        "5m",
        "warning",
        "The results of pipeline {{ $labels.pipeline }} are not up to date",
        "They are complete up to {{ $value | humanizeDuration }} ago, although the splitters read newer records.",
        600,
    ),
    Alert(
        "SkewlessLatencyHigh",
        f"{LATENCY} > {THRESHOLD}",
        "10m",
        "warning",
        "Tuples of pipeline {{ $labels.pipeline }} take long to reach the results",
        "For 1 % of the commits it takes more than {{ $value | humanizeDuration }} from splitter to aggregator.",
        30,
        Bound("<", LATENCY_S[-1]),
    ),
    Alert(
        "SkewlessMemoryNearLimit",
        # Not by stage: a process with all stages has one memory limit.
        f"max by ({PIPELINE}, instance) (\n"
        "  process_resident_memory_bytes\n"
        f"  / on ({PROCESS}) group_right () skewless_memory_limit_bytes\n"
        f") > {THRESHOLD}",
        "5m",
        "warning",
        "Process {{ $labels.instance }} of pipeline {{ $labels.pipeline }} is near its memory limit",
        "It uses {{ $value | humanizePercentage }} of the limit. Above the limit the kernel kills it.",
        0.9,
        Bound("<=", 1),
    ),
    Alert(
        "SkewlessRestoreSlow",
        f'sum by ({STAGE}, instance) (increase(skewless_time_seconds_total{{state="restoring"}}[1h])) > {THRESHOLD}\n'
        f"  and on ({STAGE}, instance) skewless_ready == 0",
        "1m",
        "warning",
        "Process {{ $labels.instance }} of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} restores its"
        " state for long",
        "It has restored for {{ $value | humanizeDuration }} in the last hour, and processes nothing meanwhile.",
        900,
        Bound("<", 3600),
    ),
    Alert(
        "SkewlessRetentionNear",
        f"max by ({PARTITION}) (\n"
        "  skewless_consumer_lag_records\n"
        "  / (skewless_log_end_offset - skewless_log_start_offset)\n"
        "  and skewless_log_start_offset > 0\n"
        f") > {THRESHOLD}",
        "5m",
        "critical",
        "Retention is about to delete records that stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} has not"
        " processed",
        "In partition {{ $labels.partition }} {{ $value | humanizePercentage }} of the records in the log are not"
        " processed.",
        0.5,
        Bound("<", 1),
    ),
    Alert(
        "SkewlessOffsetsExpiring",
        f'group by ({STAGE}) (max_over_time(skewless_build_info{{stage!~"{WITHOUT_OFFSETS}"}}[{OFFSETS_D}d]))\n'
        f"  unless on ({STAGE}) group by ({STAGE}) (max_over_time(skewless_build_info[{THRESHOLD}d]))",
        "0m",
        "warning",
        "The committed offsets of stage {{ $labels.stage }} of pipeline {{ $labels.pipeline }} will expire",
        f"No process of it has run for {THRESHOLD} days. By default a broker deletes offsets after {OFFSETS_D} days.",
        3,
        Bound("<", OFFSETS_D),
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


def template(docs: str) -> dict[str, object]:
    """Return the content of the chart's file of alerts, in which `THRESHOLD` stands for the field `threshold`."""
    rules = [_with_field(_rule(alert._replace(threshold=None), docs), alert.threshold) for alert in ALERTS]
    return {"groups": [{"name": "skewless-alerts", "rules": rules}]}


def _with_field(rule: dict[str, object], threshold: float | None) -> dict[str, object]:
    return rule if threshold is None else {**rule, "threshold": threshold}


def _rule(alert: Alert, docs: str) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": alert.with_threshold(alert.expr),
        "for": alert.for_duration,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.with_threshold(alert.description),
            "runbook_url": f"{docs}#{alert.name.lower()}",
        },
    }
