"""Runs a pipeline in memory over records of a test, and returns everything that it writes to its public topics."""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import UNSET

from skewless import topology
from skewless.api.pipeline import Pipeline
from skewless.api.results import Result, result_reader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import CheckFailedError, ConfigurationError, unknown
from skewless.in_memory import InMemoryPipeline
from skewless.operations.dead_letters import decode_headers
from skewless.parsing.field_settings import instant_of
from skewless.parsing.record_parser import python_function
from skewless.times import LAST_INSTANT
from skewless.wire.dead_letters import DeadLetterHeaders
from skewless.wire.record import OutputRecord

DEAD_LETTERS = "dead-letters"
NO_JSON = (DEAD_LETTERS, "enriched")
"""Public topics whose values are those of the user's records."""
_encode = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True, kw_only=True)
class Record:
    """A Kafka record. A value that is neither text nor bytes is written as JSON."""

    value: Any = None
    key: str | bytes | None = None
    timestamp: int | datetime | None = None
    """Kafka timestamp: ms since the epoch, or a time, in UTC if it names no zone. None: the time of the run."""
    partition: int = 0
    topic: str | None = None
    """Needed if the pipeline reads several topics."""
    headers: Mapping[str, str | bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InvalidRecord:
    """A record that the pipeline cannot read."""

    topic: str
    partition: int
    offset: int
    """Its position among the records of its partition, from 0 on."""
    reason: str
    key: bytes | None
    value: bytes | None
    traceback: str | None = None
    """Traceback of the function of `splitter.python`, if it failed."""


@dataclass(frozen=True)
class Outcome:
    """Everything that a pipeline has computed from the records of a test."""

    results: Sequence[Result]
    """The last version of each result, by window and key."""
    late: Sequence[Mapping[str, Any]]
    """Late tuples, as the records of topic `late`: key, value or values, time, watermark, partition, offset. Then late
    records of a join, as those of `join-late`."""
    invalid: Sequence[InvalidRecord]
    """Records that cannot be read."""
    topics: Mapping[str, Sequence[Mapping[str, Any]]]
    """JSON of the records of all public topics, such as `joined`, except for those with records of the user."""


def run(pipeline: Pipeline, records: Iterable[Record | Any], *, now: int | datetime | None = None) -> Outcome:
    """Process the records with all stages up to the end of their topics, so that all windows close.

    An element that is not a `Record` is the value of one. Records of a partition are read in their order, so lateness
    depends on it. `now` is the time of the run, by default that of the clock: it is the timestamp of records that have
    none, and records that are ahead of it by more than `event_time.max_ahead_s` are invalid.

    Raises ConfigurationError if `pipeline` is no pipeline or `records` no list, for a record that cannot be written,
    and for one of a topic that the pipeline does not read. Raises CheckFailedError if the function of `splitter.python`
    gives other tuples when it is called again.
    """
    if not isinstance(pipeline, Pipeline):
        raise ConfigurationError(f"pipeline: {pipeline!r} is no Pipeline: give sk.Pipeline(...) or sk.Pipeline.load()")
    # Iterating over one of these gives names, letters or columns, which would be invalid records.
    if isinstance(records, str | bytes | Mapping | Record) or hasattr(records, "to_dict"):
        kind = type(records).__name__
        raise ConfigurationError(f"records: is a {kind}: give a list of records, for a DataFrame to_dict('records')")
    try:
        records = list(records)
    except TypeError:
        raise ConfigurationError(f"records: is no list, but {records!r}: give a list of records") from None
    now_ms = time.time_ns() // 1_000_000 if now is None else _ms("now", now)
    outcome, unstable = outcome_of(pipeline.settings, records, now_ms)
    if unstable:
        raise CheckFailedError(unstable)
    return outcome


def outcome_of(
    settings: PipelineSettings, records: Iterable[Record | Any], now_ms: int, parse_float: Callable[[str], Any] = float
) -> tuple[Outcome, str]:
    """Process the records with a pipeline of these settings, see `run`.

    Also returns for which records the function of `splitter.python` depends on more than the record; empty if for none.
    `parse_float` reads the numbers with decimals in topics and late tuples.
    """
    outputs = [_output(record, position, settings) for position, record in enumerate(records)]
    partitions: dict[str, int] = {}
    for output in outputs:
        partitions[output.topic] = max(partitions.get(output.topic, 1), (output.partition or 0) + 1)
    written = InMemoryPipeline(settings, partitions).process(outputs, now_ms, end=True)
    public = [row.name for row in topology.needed_topics(settings) if row.public and row.name not in NO_JSON]
    topics = {
        name: [json.loads(record.value, parse_float=parse_float) for record in written[name] if record.value]
        for name in public
    }
    invalid = [
        _invalid(found, record)
        for record in written.get(DEAD_LETTERS, ())
        if (found := decode_headers(record.headers)) is not None
    ]
    late = [*topics.get("late", ()), *topics.get("join-late", ())]
    outcome = Outcome(_newest_results(written.get("aggregates", ()), settings), late, invalid, topics)
    own = settings.own_source
    unstable = _unstable_records(settings, outputs if own is None else written[own])
    return outcome, unstable


def _unstable_records(settings: PipelineSettings, records: Iterable[OutputRecord]) -> str:
    """Return for which records that the splitter reads its function depends on more than the record."""
    if settings.splitter.python is None:
        return ""
    found = python_function(settings.splitter).unstable([record.value for record in records])
    if not found:
        return ""
    numbers = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
    topic = "" if settings.own_source is None else f" of {settings.own_source}"
    return (
        f"splitter.python: gives other tuples for records {numbers}{topic} when it is called again, or for the record "
        "alone: a restart would change results, so it must depend on nothing but the record"
    )


def _invalid(headers: DeadLetterHeaders, record: OutputRecord) -> InvalidRecord:
    position = (headers.topic, int(headers.partition), int(headers.offset))
    traceback = None if headers.traceback is UNSET else headers.traceback
    return InvalidRecord(*position, headers.reason, record.key, record.value, traceback)


def _output(record: Record | Any, position: int, settings: PipelineSettings) -> OutputRecord:
    record = record if isinstance(record, Record) else Record(value=record)
    topics = sorted({*settings.user_topics.values(), *settings.table_topics.values()})
    if not isinstance(record.topic, str | None):
        raise ConfigurationError(f"records.{position}: topic: {record.topic!r} is not the name of a topic")
    topic = record.topic or (topics[0] if len(topics) == 1 else None)
    if topic is None:
        named = " and ".join(topics) or "the topics of a pattern"
        raise ConfigurationError(f"records.{position}: name its topic, because the pipeline reads {named}")
    if topic not in topics and settings.source_pattern is None:
        raise ConfigurationError(f"records.{position}: {unknown('source topic', topic, topics)}")
    timestamp = None if record.timestamp is None else _ms("timestamp", record.timestamp)
    if not hasattr(record.partition, "__index__"):
        raise ConfigurationError(f"records.{position}: partition: {record.partition!r} is not a number")
    if not isinstance(record.headers, Mapping):
        raise ConfigurationError(f"records.{position}: headers: must be a mapping, such as {{'name': 'value'}}")
    try:
        headers = [(name, _bytes(value) or b"") for name, value in record.headers.items()]
        return OutputRecord(topic, _bytes(record.value), _bytes(record.key), record.partition, timestamp, headers)
    except (TypeError, ValueError, RecursionError) as error:  # such as half of a surrogate pair, or a list in itself
        raise ConfigurationError(f"records.{position}: cannot be written as JSON in UTF-8: {error}") from None


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _encode(value)


def _ms(name: str, time: int | datetime) -> int:
    try:
        ms = operator.index(instant_of(time))
    except (TypeError, ValueError):
        ms = -1
    if not 0 <= ms <= LAST_INSTANT:
        raise ConfigurationError(f"{name}: {time!r} is not a time: give whole ms since the epoch, or a datetime")
    return ms


def _newest_results(records: Iterable[OutputRecord], settings: PipelineSettings) -> list[Result]:
    if settings.source is None:
        return []
    read = result_reader(settings.results, settings.splitter.key.parts)
    newest: dict[bytes | None, Result] = {}
    for record in records:
        newest.pop(record.key, None)
        if record.value is not None:  # otherwise a correction has removed the result
            newest[record.key] = read(json.loads(record.value, parse_float=Decimal))
    return sorted(newest.values(), key=lambda result: (result.window_start, result.window_end, result.key))
