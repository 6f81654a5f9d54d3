"""Headers of records: schema and content type of the value; internal records also report upstream partitions.

A report has the watermarks and idle flags of upstream partitions.
An upstream partition is named by its number (headers `watermarks` and `idle`) or, in topic `tuples`, by topic and
number (header `sources`). In a pipeline with `source.topic`, a partition of `tuples` that has only the source partition
with the same number names it by its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState, WatermarkTracker
from skewless.errors import BadRecordError
from skewless.wire.record import Headers, OutputRecord, OwnHeaders
from skewless.wire.topic_partition import TopicPartition

SCHEMA_HEADER = "schema"
CONTENT_TYPE_HEADER = "content-type"
"""Media type of the value of a public record."""
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
BYTES = "application/octet-stream"
WATERMARKS_HEADER = "watermarks"
IDLE_HEADER = "idle"
SOURCES_HEADER = "sources"
"""States of source partitions by topic and number: watermark (null: none so far), and whether the partition is idle."""
READ_TIME_HEADER = "read_time_ms"
"""Time at which the splitter read the newest tuple of a record, in ms since the epoch. Only metrics depend on it."""
MAX_TIME_DIGITS = 16
WATERMARK = "skewless.watermark.v1"
"""Schema of a record without a value. It only reports watermarks."""


def schema_of(headers: Headers) -> str:
    """Return the schema of a record. Raises BadRecordError if it has none."""
    for name, value in headers:
        if name == SCHEMA_HEADER and value is not None:
            return value.decode("ascii", "replace")
    raise BadRecordError("no schema header")


Report = TypeVar("Report")
Watermark = Annotated[int, Meta(ge=-(2**53), le=MAX_WATERMARK)]

_watermarks_decoder = msgspec.json.Decoder(dict[int, Watermark])
_idle_decoder = msgspec.json.Decoder(frozenset[Annotated[int, Meta(ge=0)]])
_sources_decoder = msgspec.json.Decoder(dict[str, dict[Annotated[int, Meta(ge=0)], tuple[Watermark | None, bool]]])


def watermarks_of(headers: Headers) -> dict[int, int]:
    """Return the watermarks in a record by upstream partition. Raises BadRecordError if the header is invalid."""
    return _decoded(headers, WATERMARKS_HEADER, _watermarks_decoder) or {}


def idle_of(headers: Headers) -> frozenset[int]:
    """Return the upstream partitions that a record reports as idle. Raises BadRecordError if the header is invalid."""
    return _decoded(headers, IDLE_HEADER, _idle_decoder) or frozenset()


def sources_of(headers: Headers) -> dict[TopicPartition, WatermarkState]:
    """Return the states of source partitions in a record. Raises BadRecordError if the header is invalid."""
    by_topic = _decoded(headers, SOURCES_HEADER, _sources_decoder) or {}
    return {
        TopicPartition(topic, partition): WatermarkState(*state)
        for topic, states in by_topic.items()
        for partition, state in states.items()
    }


def _decoded(headers: Headers, wanted: str, decoder: msgspec.json.Decoder[Report]) -> Report | None:
    """Return the content of a header; None if the record does not have it."""
    for name, value in headers:
        if name == wanted:
            try:
                return decoder.decode(value or b"")
            except msgspec.DecodeError as error:
                raise BadRecordError(f"invalid {name} header") from error
    return None


def state_of(headers: Headers, partition: int) -> WatermarkState:
    """Return the state of an upstream partition in a record. Raises BadRecordError if a header is invalid."""
    return WatermarkState(watermarks_of(headers).get(partition), partition in idle_of(headers))


def newest_read_time(records: Iterable[Headers]) -> int | None:
    """Return the newest read time in the headers of several records; None if no record has a valid one.

    Records of earlier versions have none.
    """
    newest: int | None = None
    for headers in records:
        for name, value in headers:
            if name == READ_TIME_HEADER and value is not None and value.isdigit() and len(value) <= MAX_TIME_DIGITS:
                newest = max(int(value), newest or 0)
    return newest


def read_time_header(read_time: int | None) -> OwnHeaders:
    """Return the header with a read time; no header without one."""
    return [] if read_time is None else [(READ_TIME_HEADER, b"%d" % read_time)]


def require_schema(headers: Headers, *schemas: str) -> str:
    """Return the schema of a record. Raises BadRecordError if it is not one of `schemas`."""
    schema = schema_of(headers)
    if schema not in schemas:
        raise BadRecordError(f"unknown schema {schema}")
    return schema


def update_watermarks(tracker: WatermarkTracker, headers: Headers) -> None:
    """Update watermarks and idle flags from a record. Raises BadRecordError if an upstream partition is unknown."""
    try:
        tracker.update(watermarks_of(headers), idle_of(headers))
    except ValueError as error:
        raise BadRecordError(str(error)) from error


def schema_header(schema: str) -> tuple[str, bytes]:
    """Return the header that names the schema of a record."""
    return SCHEMA_HEADER, schema.encode()


def public_headers(schema: str, content_type: str = JSON) -> list[tuple[str, bytes]]:
    """Return the headers of the public records of a schema."""
    return [schema_header(schema), (CONTENT_TYPE_HEADER, content_type.encode())]


def report_of(states: Mapping[int, WatermarkState]) -> OwnHeaders:
    """Return the headers that report the states of upstream partitions."""
    watermarks = {partition: state.watermark for partition, state in states.items() if state.watermark is not None}
    idle = sorted(partition for partition, state in states.items() if state.idle)
    named = ((WATERMARKS_HEADER, watermarks), (IDLE_HEADER, idle))
    return [(name, msgspec.json.encode(value)) for name, value in named if value]


def report_of_sources(states: Mapping[TopicPartition, WatermarkState]) -> OwnHeaders:
    """Return the header that reports the states of source partitions of several topics."""
    by_topic: dict[str, dict[int, WatermarkState]] = {}
    for source, state in states.items():
        by_topic.setdefault(source.topic, {})[source.partition] = state
    return [(SOURCES_HEADER, msgspec.json.encode(by_topic))]


def headers_with(schema: str, states: Mapping[int, WatermarkState]) -> OwnHeaders:
    """Return the headers of an internal record that reports the states of upstream partitions."""
    return [schema_header(schema), *report_of(states)]


def watermark_records(
    topic: str, partitions: Iterable[int], states: Mapping[int, WatermarkState]
) -> list[OutputRecord]:
    """Return a record without rows for each partition, which reports the states of upstream partitions."""
    headers = headers_with(WATERMARK, states)
    return [OutputRecord(topic, None, partition=partition, headers=headers) for partition in partitions]
