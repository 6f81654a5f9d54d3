"""THE table of what may stand on a topic: one row per kind of record, by the record types that the topology names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from skewless import public_records, records, topology
from skewless.algorithms.aggregates import AGGREGATES
from skewless.asyncapi.schemas import Schema, ref
from skewless.router import loads

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
MESSAGE_PACK = "application/msgpack"
BYTES = "application/octet-stream"

NOTHING: Schema = {"type": "null"}
WRITTEN = "When it was written."
ONCE = {
    "exactly_once": "exactly once, for readers with `isolation.level=read_committed`",
    "at_least_once": "at least once",
}
"""What `transport.guarantee` gives."""
EACH = "Each record {once}."
LAST = "Each record {once}; the last one of a key counts."


@dataclass(frozen=True)
class Message:
    """One kind of record."""

    name: str
    meaning: str
    content_type: str
    key: Schema
    timestamp: str
    """What the record's Kafka timestamp means."""
    guarantee: str
    """What is sure of each record; `{once}` stands for what `ONCE` says."""
    payload: type[msgspec.Struct] | Schema
    headers: type[msgspec.Struct] | Schema | None = None

    def fits(self, key: str | None, headers: Mapping[str, str], *, empty: bool) -> bool:
        """Whether a record of the topic is of this kind."""
        named = self.schema_header in (None, headers.get(records.SCHEMA_HEADER))
        return named and self.key.get("const", key) == key and empty in self._may_be_empty

    @property
    def _may_be_empty(self) -> tuple[bool, ...]:
        """Whether the value may be missing, has to be, or must not be."""
        if isinstance(self.payload, dict) and "type" not in self.payload:
            return (True, False)
        return (self.payload == NOTHING,)

    @property
    def schema_header(self) -> str | None:
        """Name and version that the header `schema` holds; None where a kind has no such header."""
        if not isinstance(self.headers, dict):
            return None
        name: str = self.headers["properties"][records.SCHEMA_HEADER]["const"]
        return name


def _text_key(meaning: str, pattern: str | None = None) -> Schema:
    return {"type": "string", "description": meaning} | ({"pattern": pattern} if pattern else {})


def _internal(schema: str) -> Schema:
    """Headers of an internal record, as `records.headers_of` writes them."""
    marks = {
        "type": "string",
        "contentMediaType": JSON,
        "pattern": r'^\{("[0-9]+":-?[0-9]+(,"[0-9]+":-?[0-9]+)*)?\}$',
        "description": "How far event time has come, in ms, by origin partition: a JSON object. "
        "253402300799999 says that the origin has ended.",
    }
    idle = {
        "type": "string",
        "contentMediaType": JSON,
        "pattern": r"^\[([0-9]+(,[0-9]+)*)?\]$",
        "description": "Origin partitions that are idle, as a JSON list: windows do not wait for them. Their "
        "watermarks stay valid. An origin with a watermark in a record that does not list it here is active.",
    }
    named = {"type": "string", "const": schema, "description": "Name and version of what the record holds."}
    properties = {records.SCHEMA_HEADER: named, records.WATERMARKS_HEADER: marks, records.IDLE_HEADER: idle}
    return {"type": "object", "properties": properties, "required": [records.SCHEMA_HEADER]}


def _binary(content_type: str) -> Schema:
    return {"type": "string", "format": "binary", "contentMediaType": content_type}


TUPLES = Message(
    name="tuples",
    meaning="Tuples as columns: one record holds many rows.",
    content_type=ARROW,
    key=NOTHING,
    timestamp=WRITTEN,
    guarantee=EACH,
    payload=_binary(ARROW),
    headers=_internal(records.TUPLES),
)
PROGRESS = replace(
    TUPLES,
    name="progress",
    meaning="How far event time has come, where there are no rows to say it with; it has no value.",
    content_type=BYTES,
    payload=NOTHING,
    headers=_internal(records.PROGRESS),
)
TUPLE = Message(
    name="tuple",
    meaning=public_records.PlainTuple.__doc__ or "",
    content_type=JSON,
    key=_text_key("The tuple's key."),
    timestamp=WRITTEN,
    guarantee=EACH,
    payload=public_records.PlainTuple,
    headers=_internal(records.TUPLE),
)
PARTIALS = replace(
    TUPLES,
    name="partials",
    meaning="What changed since the last commit: partial results per pane, key and worker, as columns.",
    headers=_internal(records.PARTIALS),
)
LATE = Message(
    name="late",
    meaning=public_records.LateTuple.__doc__ or "",
    content_type=JSON,
    key=_text_key("The tuple's key."),
    timestamp="The tuple's event time; before 1970, which Kafka cannot say, when it was written.",
    guarantee="Each late tuple {once}. What is late follows from the source's log alone.",
    payload=public_records.LateTuple,
)
LOADS = Message(
    name="loads",
    meaning="What a router's grouping remembers: a hint that outlives the process, no result depends on it.",
    content_type=MESSAGE_PACK,
    key=_text_key("`loads/<grouping>`.", "^loads/"),
    timestamp=WRITTEN,
    guarantee=LAST,
    payload=_binary(MESSAGE_PACK) | {"description": f"A map: `schema` is {loads.SCHEMA}, `state` the grouping's own."},
)
CHUNK = Message(
    name="chunk",
    meaning="Part of the state of a window, or of a tick (`count` alone, by `<worker>/<key>`), as columns.",
    content_type=ARROW,
    key=_text_key("`<start>/<number of the chunk>`.", "^-?[0-9]+/-?[0-9]+$"),
    timestamp=WRITTEN,
    guarantee=LAST,
    payload=_binary(ARROW),
)
TOMBSTONE = replace(
    CHUNK,
    name="tombstone",
    meaning="A chunk that is taken back; it has no value.",
    content_type=BYTES,
    payload=NOTHING,
)
RUN = replace(
    CHUNK,
    name="run",
    meaning="What the observer remembers of the whole run: tuples by worker, and sketches of keys.",
    content_type=MESSAGE_PACK,
    key={"type": "string", "const": "run"},
    payload=_binary(MESSAGE_PACK),
)
AGGREGATE = Message(
    name="aggregate",
    meaning=public_records.KeyInWindow.__doc__ or "",
    content_type=JSON,
    key=_text_key("`<window_start>/<key>`.", "^-?[0-9]+/"),
    timestamp="`window_start`; before 1970, which Kafka cannot say, when the record was written.",
    guarantee="Each result {once}. The record with the highest `revision` is valid, it is the last of its key.",
    payload=public_records.aggregate_type(AGGREGATES),
)
DISTRIBUTION = Message(
    name="distribution",
    meaning=public_records.TickDistribution.__doc__ or "",
    content_type=JSON,
    key=_text_key("`tick_start`.", "^-?[0-9]+$"),
    timestamp="`tick_start`; before 1970, which Kafka cannot say, when the record was written.",
    guarantee="Each tick {once}.",
    payload=public_records.TickDistribution,
)
DEAD_LETTER = Message(
    name="dead-letter",
    meaning="Key and value of a record that cannot be read, unchanged but for the end of a large one; the headers say "
    "where it stood and what is wrong.",
    content_type=BYTES,
    key={"type": ["string", "null"], "description": "The bad record's own key, any bytes or none."},
    timestamp="That of the bad record; where it has none, when the dead letter was written.",
    guarantee="Each bad record {once}; its neighbours are processed.",
    payload={
        "description": "The bad record's own value: any bytes, or none. Where a window is forgotten, columns of what "
        "came for it, in as many dead letters as they need."
    },
    headers=public_records.DeadLetterHeaders,
)
SOURCE = Message(
    name="source-record",
    meaning="Your own records, in the format that `splitter` is told.",
    content_type=BYTES,
    key={"type": ["string", "null"], "description": "Anything: no result depends on it."},
    timestamp="Event time, where `splitter.time` names no field.",
    guarantee="As you write it; each committed record is counted once.",
    payload={"description": "A record with a key and, if wanted, a value and a time."},
)

BY_RECORD: dict[str, tuple[Message, ...]] = {
    "tuples": (TUPLES, PROGRESS),
    "late": (LATE,),
    "loads": (LOADS,),
    "partials": (PARTIALS, PROGRESS),
    "chunk": (CHUNK, TOMBSTONE),
    "aggregate": (AGGREGATE,),
    "distribution": (DISTRIBUTION,),
    "dead-letter": (DEAD_LETTER,),
}
"""By the record type that a row of the topology names."""
FURTHER = {"worker-input": (TUPLE,), "ticks": (RUN,)}
"""What stands on one topic alone."""


def messages_of(topic: str) -> tuple[Message, ...]:
    """List what may stand on a topic of the topology, the kind that is of use to readers first; KeyError if unknown."""
    if topic == "source":
        return (SOURCE,)
    return *BY_RECORD[topology.topic(topic).record], *FURTHER.get(topic, ())


def find(topic: str, key: bytes | None, value: bytes | None, headers: Mapping[str, bytes]) -> Message | None:
    """Tell of which kind a record is; None when it is none that may stand there."""
    text = {name: fact.decode("utf-8", "replace") for name, fact in headers.items()}
    named = None if key is None else key.decode("utf-8", "replace")
    # What names itself by header or key comes before what does not.
    candidates = sorted(messages_of(topic), key=lambda row: row.schema_header is None and "const" not in row.key)
    return next((row for row in candidates if row.fits(named, text, empty=value is None)), None)


def payload_schema(message: Message) -> Schema:
    """Describe the value, by reference where it has a type."""
    return dict(message.payload) if isinstance(message.payload, dict) else ref(message.payload)


def headers_schema(message: Message) -> Schema | None:
    """Describe the headers, by reference where they have a type."""
    if message.headers is None or isinstance(message.headers, dict):
        return message.headers
    return ref(message.headers)


def types(messages: Mapping[str, Message]) -> list[Any]:
    """List the types that these kinds of records are made of."""
    parts = [part for row in messages.values() for part in (row.payload, row.headers)]
    return [part for part in parts if isinstance(part, type)]
