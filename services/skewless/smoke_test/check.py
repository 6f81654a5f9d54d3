"""Runs the smoke test: chooses a source partition and event time, sends records, and waits for their counts."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from skewless import topology
from skewless.algorithms.aggregates import TUPLE_COUNT
from skewless.algorithms.watermark import WatermarkGenerator
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.algorithms.windowing.sessions import FIRST, LAST, SessionWindows
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import result_reader
from skewless.engine.message_batch import MessageBatch
from skewless.errors import BrokerError, CheckFailedError, ConfigurationError, UnreachableError
from skewless.kafka.admin.groups import GroupReader
from skewless.kafka.consumer.offsets import OffsetReader, newest_offsets
from skewless.kafka.consumer.topic_reader import TopicReader, read_ranges
from skewless.kafka.producer.bulk import BulkProducer
from skewless.parsing.formats.base import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import SourceRecords
from skewless.parsing.validation import EventTimeRules, classify
from skewless.smoke_test import sample_records
from skewless.smoke_test.schema_samples import sample_of
from skewless.wire.topic_partition import TopicPartition
from skewless.wire.window_counts import CountRecord, WindowCounts, differences

NEWEST_RECORDS = 1_000
"""Number of newest records of each source partition whose event times are read."""
EARLIEST_MS = 86_400_000
"""Event time for a topic that was never written to. It is not 0, because Kafka records cannot have the timestamp 0."""
POLL_S = 0.2
SETTLED_S = 3.0
"""Time for which the counts must stay correct: a record that is counted twice increases a correct count later."""

NO_PROCESS_S = 10.0
"""Time without correct counts after which stages without a process are reported. A start takes a few seconds."""

INSTEAD = "test the pipeline with given records (`skewless test`), or audit its results (`skewless audit`)"
EMITS_FINAL = "aggregator.emit is final: a window closes only when newer records arrive in the source"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SmokeTestResult:
    """Result of a successful smoke test."""

    records: int
    cells: int
    """Number of keys by window."""
    partition: int
    seconds: float
    """Time from sending the first record until all counts were correct."""


def run(settings: PipelineSettings, count: int, prefix: str, timeout_s: float) -> SmokeTestResult:
    """Send `count` records whose keys begin with `prefix`, and wait until all counts have been correct for SETTLED_S.

    Raises CheckFailedError with the differences after `timeout_s`, ConfigurationError for a pipeline that the smoke
    test cannot check, UnreachableError if no broker answers.
    """
    topic = topic_plan.source_topics(settings)[0]
    if settings.own_source is not None:
        raise ConfigurationError(
            f"source.topic: the pipeline writes {topic} itself, and records of a test would remain in it: {INSTEAD}"
        )
    if settings.aggregator.having:
        raise ConfigurationError(
            f"aggregator.having: the smoke test cannot check results that it leaves out: {INSTEAD}"
        )
    if settings.aggregator.top:
        raise ConfigurationError(f"aggregator.top: keys of the smoke test would take the ranks of others: {INSTEAD}")
    if not any(result.name == result.aggregate.name == TUPLE_COUNT.name for result in settings.results):
        raise ConfigurationError(f"aggregator.aggregates: must contain {TUPLE_COUNT.name}: the smoke test checks it")
    parser, offsets = RecordParser(settings.splitter), OffsetReader(settings.kafka)
    partition, newest = _choose_partition_and_time(offsets, topic, parser, settings.event_time_rules())
    keys = sample_records.keys(count, prefix)
    records = sample_records.make(settings.splitter, keys, newest, sample_of(settings, topic))
    expected = _expected_counts(parser, records, settings.aggregator.windows)
    _require_unchanged_keys(expected, prefix)
    results = settings.topic("aggregates")
    with TopicReader(settings.kafka, results, offsets.end(results)) as reader:
        started = time.monotonic()
        producer = BulkProducer(settings.kafka, topic, 1, first=partition)
        producer.send(records.values, records.timestamps.tolist(), records.keys, records.headers)
        producer.flush()
        seconds = _wait_for_counts(reader, settings, expected, prefix, started, timeout_s)
    return SmokeTestResult(count, len(expected), partition, seconds)


def _choose_partition_and_time(
    offsets: OffsetReader, topic: str, parser: RecordParser, rules: EventTimeRules
) -> tuple[int, int]:
    """Return the source partition with the largest valid event time, and that event time in ms.

    The event time is the current time if all records of the topic are deleted.
    """
    # Older records would be late in this partition. Newer records would advance the watermark and make records of other
    # producers late. In a topic that was never written to, the records therefore get the earliest possible time.
    retained = offsets.ranges(topic)
    if not any(end for _, end in retained.values()):
        return 0, max(EARLIEST_MS, rules.earliest)
    now = round(time.time() * 1000)
    newest_times = [
        (newest, partition)
        for partition, messages in read_ranges(offsets.kafka, topic, newest_offsets(retained, NEWEST_RECORDS))
        for newest in _event_times(
            parser.parse(MessageBatch(TopicPartition(topic, partition), 0, messages)), rules, now
        )
    ]
    if not newest_times:
        return 0, now
    newest, partition = max(newest_times)
    return partition, newest


def _event_times(parsed: ParsedBatch, rules: EventTimeRules, now: int) -> list[int]:
    valid = classify(parsed, rules, WatermarkGenerator(rules.lateness_ms), now).valid
    times: list[int] = parsed.times[valid].tolist()
    return times


def _expected_counts(parser: RecordParser, records: SourceRecords, assigner: WindowAssigner) -> WindowCounts:
    """Count the tuples that the splitter creates from the records, with the splitter's own parser."""
    parsed = parser.parse(records)
    times = parsed.times[parsed.records]
    if isinstance(assigner, SessionWindows):
        tuples = pa.table({"key": pa.array(parsed.keys, pa.string()), FIRST.name: times, LAST.name: times})
        session_of = assigner.session_of(tuples)
        starts = assigner.merged(tuples, session_of, assigner.columns)[FIRST.name].to_numpy()
        return Counter(zip(starts[session_of].tolist(), parsed.keys, strict=True))
    counts, windows = assigner.assign(times)
    keys = np.repeat(np.array(parsed.keys, dtype=np.object_), counts)
    return Counter(zip(windows.tolist(), keys.tolist(), strict=True))


def _require_unchanged_keys(expected: WindowCounts, prefix: str) -> None:
    """Raise ConfigurationError if the splitter changes the keys, because they could equal other keys."""
    if not expected or any(prefix not in key for _, key in expected):
        raise ConfigurationError(
            f"splitter: does not keep keys such as {prefix}0 of generated records; "
            "this pipeline cannot be checked with generated records"
        )


def _wait_for_counts(  # noqa: PLR0913, PLR0917 - by position
    reader: TopicReader,
    settings: PipelineSettings,
    expected: WindowCounts,
    prefix: str,
    started: float,
    timeout_s: float,
) -> float:
    """Return the seconds since `started` after which the counts were correct."""
    decode, to_json = msgspec.json.Decoder(CountRecord).decode, result_reader(settings)
    counts: WindowCounts = Counter()
    correct_since: float | None = None
    reported = False
    deadline = time.monotonic() + timeout_s  # not of sending
    while time.monotonic() < deadline:
        for message in (message for _, messages in reader.poll(POLL_S) for message in messages):
            value, record_key = message.value(), message.key() or b""
            if value is None and prefix.encode() in record_key:  # a session has got an earlier start
                window, _, key = record_key.decode().partition("/")
                counts.pop((int(window), key), None)
            elif value is not None and prefix.encode() in value:
                record = decode(to_json(value))
                counts[record.window_start, record.key] = record.tuples
        if counts != expected:
            correct_since = None
        elif correct_since is None:
            correct_since = time.monotonic()
        elif time.monotonic() > correct_since + SETTLED_S:
            return correct_since - started
        if correct_since is None and not reported and time.monotonic() > started + NO_PROCESS_S:
            reported = True
            for line in _without_process(settings):
                log.warning("%s; waits until %g s are over", line, timeout_s)
    hint = [EMITS_FINAL] if settings.aggregator.emit == "final" else []
    lines = [*_without_process(settings), *differences(expected, counts), *hint]
    raise CheckFailedError("\n  ".join([f"after {timeout_s:g} s counts are not correct:", *lines]))


def _without_process(settings: PipelineSettings) -> list[str]:
    """Return a line that names the stages up to the results without a process; none if all have one, or it is unknown.

    A stage has a process if its group has a member.
    """
    names = topology.upstream(topology.RESULTS_STAGE) | {topology.RESULTS_STAGE}
    stages = [row.name for row in topology.needed_stages(settings) if row.name in names]
    try:
        groups = GroupReader(settings.kafka)
        found = {stage: groups.describe(settings.group(stage)) for stage in stages}
    except (BrokerError, UnreachableError):
        return []  # the other errors say more
    missing = [stage for stage, group in found.items() if not group.members]
    if not missing or f"{settings.full_name}-{topology.QUERY}" in found[topology.SOURCE_STAGE].members:
        return []
    line = f"no process of {', '.join(missing)} runs: start what is missing, for example with `skewless up`"
    # A broker lists only groups that the user may describe.
    if settings.kafka.security_protocol != "PLAINTEXT" and all(group.state == "Dead" for group in found.values()):
        line += ", or allow this user to describe the groups (`skewless topics acls`)"
    return [line]
