"""Reads the results of a pipeline from its topic `aggregates`. Uses no consumer group."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import result_reader
from skewless.config.topic_plan import require_topic
from skewless.errors import BadRecordError, CheckFailedError
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer.offsets import OffsetRanges, OffsetReader, newest_offsets
from skewless.kafka.consumer.topic_reader import PartitionRecords, TopicReader, read_ranges
from skewless.operations.closed_windows import closed_everywhere
from skewless.operations.results.selection import ResultRecord, Selection, Window, closed_of, no_results
from skewless.wire.aggregates import ToJson, unchanged

FOLLOW_S = 1.0
"""Interval at which `later` looks for new results."""
NEWEST_OFFSETS = 50
"""Offsets of each partition in which `latest` looks for results."""
MAX_PLACES = 3
"""Records that a warning names."""

Warn = Callable[[str], None]
"""Receives a warning of records that are not results, with the reason of the first."""
Change = tuple[bytes | None, ResultRecord | None]
"""A record of the topic: its key, which names window and key of the result, and the result; None for a tombstone."""


def read(
    settings: PipelineSettings, select: Selection, key: str | None, warn: Warn, name: str = "aggregates"
) -> list[ResultRecord]:
    """Return the newest revisions of the selected windows, of one key or of all.

    `name` is the topic: `aggregates` or `top`. Raises CheckFailedError if there is no window to select.
    """
    require_topic(settings, name)
    # Before the records: those that are read may lack results of windows that close later.
    closed_until = closed_everywhere(settings, topology.writer(name).name) if select.by_closing else None
    found = _newest_revisions(_all_changes(settings, warn, name), key if name == "aggregates" else None)
    found = [result for result in found if key in {None, result["key"]}]  # another key may have had the rank
    if not found:
        raise CheckFailedError(no_results(f"topic {settings.topic(name)}", key))
    windows = {_window_of(result) for result in found}
    chosen = select.choose(windows, closed_of(windows, closed_until))
    return [result for result in found if _window_of(result) in chosen]


def later(settings: PipelineSettings, key: str | None, warn: Warn) -> Iterator[list[ResultRecord]]:
    """Return the results that are committed after this call, of one key or of all, in a list for each second."""
    require_topic(settings, "aggregates")
    offsets, topic, to_json = OffsetReader(settings.kafka), settings.topic("aggregates"), result_reader(settings)
    start = offsets.end(topic)

    def read() -> Iterator[list[ResultRecord]]:
        with TopicReader(settings.kafka, topic, start) as reader:
            while True:
                changes = _changes_in(topic, to_json, reader.poll(FOLLOW_S), warn)
                yield [result for _, result in changes if result is not None and key in {None, result["key"]}]
                offsets.end(topic)  # an error if no broker answers

    return read()


def latest(settings: PipelineSettings, limit: int) -> list[ResultRecord]:
    """Return the results that were committed last, at most `limit` of them: the largest windows first.

    Reads only the end of each partition. Records that are not results are left out. There are none if
    the topic does not exist.
    """
    topic, offsets = settings.topic("aggregates"), OffsetReader(settings.kafka)
    if topic not in Admin(settings.kafka).partition_counts():
        return []
    # Each transaction adds a marker, which takes an offset.
    ranges = newest_offsets(offsets.ranges(topic), NEWEST_OFFSETS)
    batches = read_ranges(settings.kafka, topic, ranges)
    found = _newest_revisions(_changes_in(topic, result_reader(settings), batches, lambda _warning: None), None)
    return sorted(found, key=_window_of, reverse=True)[:limit]


def starts_between(settings: PipelineSettings, ranges: OffsetRanges) -> set[int]:
    """Return the starts (ms) of the windows of which a result is written or deleted between these offsets."""
    starts = set()
    for _, messages in read_ranges(settings.kafka, settings.topic("aggregates"), ranges):
        for message in messages:
            with contextlib.suppress(ValueError):  # the key of a foreign record
                starts.add(int((message.key() or b"").partition(b"/")[0]))
    return starts


def _window_of(result: ResultRecord) -> Window:
    return result["window_start"], result["window_end"]


def _newest_revisions(changes: Iterable[Change], key: str | None) -> list[ResultRecord]:
    newest: dict[bytes | None, ResultRecord] = {}
    for row, result in changes:
        if result is None:
            newest.pop(row, None)
        elif key in {None, result["key"]} and (row not in newest or newest[row]["revision"] <= result["revision"]):
            newest[row] = result
    return list(newest.values())


def _all_changes(settings: PipelineSettings, warn: Warn, name: str) -> Iterator[Change]:
    topic, to_json = settings.topic(name), result_reader(settings) if name == "aggregates" else unchanged
    ranges = OffsetReader(settings.kafka).ranges(topic)
    return _changes_in(topic, to_json, read_ranges(settings.kafka, topic, ranges), warn)


def _changes_in(topic: str, to_json: ToJson, batches: Iterable[PartitionRecords], warn: Warn) -> Iterator[Change]:
    """Yield the results and tombstones in records of the topic, and warn of other records."""
    others: list[str] = []
    reason = ""
    for partition, messages in batches:
        for message in messages:
            value = message.value()
            try:
                result = None if value is None else _result(to_json, value)
            except (ValueError, RecursionError, BadRecordError) as error:
                reason = reason or str(error)
                others.append(f"partition {partition} offset {message.offset()}")
            else:
                yield message.key(), result
    if others:
        warn(f"topic {topic} has records that are not results: {_few(others)}; the first: {reason}")


def _result(to_json: ToJson, value: bytes) -> ResultRecord:
    """Return the result in a record. Raises ValueError, RecursionError or BadRecordError if there is none."""
    found = json.loads(to_json(value).decode(), parse_float=Decimal)
    if (
        isinstance(found, dict)
        and isinstance(found.get("key"), str)
        and isinstance(found.get("window_start"), int)
        and isinstance(found.get("window_end"), int)
        and isinstance(found.get("revision"), int)
    ):
        return found
    raise ValueError("it is not a JSON object with the fields of every result, or one has another type")


def _few(places: list[str]) -> str:
    return ", ".join(places[:MAX_PLACES]) + (f" and {len(places) - MAX_PLACES:,} more" if places[MAX_PLACES:] else "")
