"""Table of all messages: one row for each kind of record, by the record types that the topology names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import msgspec

from skewless import topology
from skewless.algorithms.aggregates import AGGREGATES, LOAD_COLUMN, ROWS_COLUMN, default_fields
from skewless.asyncapi.schemas import Schema, ref, schemas
from skewless.stages.router import state
from skewless.wire.aggregates import AGGREGATE, AggregateRecord, aggregate_type
from skewless.wire.changelog import CHUNK_KEY
from skewless.wire.dead_letters import DEAD_LETTER, DeadLetterHeaders
from skewless.wire.distribution import DISTRIBUTION, TickDistribution
from skewless.wire.headers import (
    ARROW,
    BYTES,
    CONTENT_TYPE_HEADER,
    IDLE_HEADER,
    JSON,
    READ_TIME_HEADER,
    SCHEMA_HEADER,
    SOURCES_HEADER,
    WATERMARK,
    WATERMARKS_HEADER,
)
from skewless.wire.hot_keys import HOT_KEY, HotKeyChange
from skewless.wire.join_changelog import BLOCK_KEY
from skewless.wire.joined import JOIN_LATE, JOINED, UNMATCHED, JoinedRecord, JoinLateRecord, UnmatchedRecord
from skewless.wire.partials import PARTIALS
from skewless.wire.replays import Replay
from skewless.wire.rows import PANE_HEADER, ROWS
from skewless.wire.tuples import (
    LATE,
    TUPLE,
    TUPLE_V2,
    TUPLES,
    TUPLES_V2,
    LateHeaders,
    LateTuple,
    TupleRecord,
    ValuesRecord,
)

MESSAGE_PACK = "application/msgpack"

NOTHING: Schema = {"type": "null"}
TIME_OF_WRITING = "Time of writing."
GUARANTEE_TEXTS = {
    "exactly_once": "exactly once, for consumers with `isolation.level=read_committed`",
    "at_least_once": "at least once",
}
"""Delivery guarantee by the value of `transport.guarantee`."""
EACH_RECORD = "Each record {once}."
LAST_OF_KEY = "Each record {once}. The last record of a key is valid."


@dataclass(frozen=True)
class Message:
    """One kind of record."""

    name: str
    summary: str
    content_type: str
    key: Schema
    timestamp: str
    """Meaning of the record's Kafka timestamp."""
    guarantee: str
    """Delivery guarantee of each record; `{once}` is a placeholder for a text of `GUARANTEE_TEXTS`."""
    payload: type[msgspec.Struct] | Schema
    headers: Schema | None = None

    def fits(self, key: str | None, headers: Mapping[str, str], *, empty: bool) -> bool:
        """Return whether a record of the topic is of this kind; `empty` if it has no value."""
        schema = headers.get(SCHEMA_HEADER, None if self._requires_schema else self.schema_header)
        has_schema = self.schema_header in (None, schema)
        return has_schema and self.key.get("const", key) == key and empty in self._allowed_emptiness

    @property
    def _allowed_emptiness(self) -> tuple[bool, ...]:
        """Allowed values of `empty`: the value of this kind is optional, absent or required."""
        if isinstance(self.payload, dict) and "type" not in self.payload:
            return (True, False)
        return (self.payload == NOTHING,)

    @property
    def schema_header(self) -> str | None:
        """Value of the header `schema`: name and version. None if this kind has no such header."""
        if self.headers is None:
            return None
        name: str = self.headers["properties"][SCHEMA_HEADER]["const"]
        return name

    @property
    def _requires_schema(self) -> bool:
        return self.headers is not None and SCHEMA_HEADER in self.headers["required"]


def _text_key(description: str, pattern: str | None = None) -> Schema:
    return {"type": "string", "description": description} | ({"pattern": pattern} if pattern else {})


PANE: Schema = {
    "type": "string",
    "pattern": "^[1-9][0-9]*$",
    "description": "Length of the panes in ms. Each pane begins at a multiple of it.",
}


def _internal_headers(schema: str, others: Mapping[str, Schema] = MappingProxyType({})) -> Schema:
    """Return the schema of the headers of an internal record, as `wire.headers.internal_headers` writes them.

    `others` are further headers, which are required.
    """
    watermarks = {
        "type": "string",
        "contentMediaType": JSON,
        "pattern": r'^\{("[0-9]+":-?[0-9]+(,"[0-9]+":-?[0-9]+)*)?\}$',
        "description": "Watermark of each source partition in ms, as a JSON object. "
        "253402300799999 means that the source partition has ended.",
    }
    idle = {
        "type": "string",
        "contentMediaType": JSON,
        "pattern": r"^\[([0-9]+(,[0-9]+)*)?\]$",
        "description": "Source partitions that are idle, as a JSON list: windows do not wait for them. Their "
        "watermarks stay valid. A source partition is active if a record has its watermark and does not list it here.",
    }
    sources = {
        "type": "string",
        "contentMediaType": JSON,
        "pattern": r'^\{("[^"]*":\{("[0-9]+":\[(null|-?[0-9]+),(true|false)\],?)*\},?)*\}$',
        "description": "Only in topic `tuples`, instead of the two others, if the pipeline has `source.topics` or the "
        "source has more partitions than `tuples`: the watermark of each source partition in ms (null: none so far), "
        "and whether it is idle, by topic and number as a JSON object. Source partitions that are not named keep their "
        "state.",
    }
    read_time = {
        "type": "string",
        "pattern": "^[0-9]+$",
        "description": "Time at which the splitter read the newest tuple of the record, in ms since the epoch. Only "
        "metrics depend on it. Optional.",
    }
    reports = {WATERMARKS_HEADER: watermarks, IDLE_HEADER: idle, SOURCES_HEADER: sources}
    properties = {SCHEMA_HEADER: _schema_header(schema), **reports, READ_TIME_HEADER: read_time, **others}
    return {"type": "object", "properties": properties, "required": [SCHEMA_HEADER, *others]}


def _schema_header(schema: str) -> Schema:
    return {"type": "string", "const": schema, "description": "Name and version of the record's format."}


def _public_headers(
    schema: str, content_types: Sequence[str] = (JSON,), others: type[msgspec.Struct] | None = None
) -> Schema:
    """Return the schema of the headers of a public record, as `wire.headers.public_headers` writes them.

    Records of version 0.2.0 have neither schema nor content type. `others` has further headers.
    """
    of_record = {"properties": {}} if others is None else schemas([others])[others.__name__]
    content_type = {"type": "string", "enum": [*content_types], "description": "Media type of the value."}
    properties = {SCHEMA_HEADER: _schema_header(schema), CONTENT_TYPE_HEADER: content_type, **of_record["properties"]}
    return {"type": "object", "properties": properties, "required": of_record.get("required", [])}


def _binary(content_type: str) -> Schema:
    return {"type": "string", "format": "binary", "contentMediaType": content_type}


TUPLES_MESSAGE = Message(
    name="tuples",
    summary="Tuples as columns: one record holds many rows.",
    content_type=ARROW,
    key=NOTHING,
    timestamp=TIME_OF_WRITING,
    guarantee=EACH_RECORD,
    payload=_binary(ARROW),
    headers=_internal_headers(TUPLES),
)
TUPLES_V2_MESSAGE = replace(
    TUPLES_MESSAGE,
    name="tuples-with-values",
    summary="Tuples of a pipeline with `splitter.values` as columns, one for each value.",
    headers=_internal_headers(TUPLES_V2),
)
ROWS_MESSAGE = replace(
    TUPLES_MESSAGE,
    name="rows",
    summary="Rows in which the splitter has aggregated tuples (`splitter.local`), by pane or local window and key, "
    "as columns.",
    headers=_internal_headers(ROWS, {PANE_HEADER: PANE}),
)
WATERMARKS_MESSAGE = replace(
    TUPLES_MESSAGE,
    name="watermark_records",
    summary="Watermarks without rows. The record has no value.",
    content_type=BYTES,
    payload=NOTHING,
    headers=_internal_headers(WATERMARK),
)
TUPLE_MESSAGE = Message(
    name="tuple",
    summary=TupleRecord.__doc__ or "",
    content_type=JSON,
    key=_text_key("The tuple's key."),
    timestamp=TIME_OF_WRITING,
    guarantee=EACH_RECORD,
    payload=TupleRecord,
    headers=_internal_headers(TUPLE),
)
TUPLE_V2_MESSAGE = replace(
    TUPLE_MESSAGE,
    name="tuple-with-values",
    summary=ValuesRecord.__doc__ or "",
    payload=ValuesRecord,
    headers=_internal_headers(TUPLE_V2),
)
PARTIALS_MESSAGE = replace(
    TUPLES_MESSAGE,
    name="partials",
    summary="Partial results that changed since the last commit, by pane, key and worker, as columns.",
    headers=_internal_headers(PARTIALS),
)
LATE_MESSAGE = Message(
    name="late",
    summary=LateTuple.__doc__ or "",
    content_type=JSON,
    key=_text_key("The tuple's key."),
    timestamp="Event time of the tuple. For times before 1970, which Kafka cannot store, the time of writing.",
    guarantee="Each late tuple {once}. Lateness depends only on the records of the source.",
    payload=LateTuple,
    headers=_public_headers(LATE, others=LateHeaders),
)
LOADS_MESSAGE = Message(
    name="loads",
    summary="Snapshot of a router's grouping. It survives the process and is only a hint: no result depends on it.",
    content_type=MESSAGE_PACK,
    key=_text_key("`loads/<grouping>`.", "^loads/"),
    timestamp=TIME_OF_WRITING,
    guarantee=LAST_OF_KEY,
    payload=_binary(MESSAGE_PACK)
    | {"description": f"A map: `schema` is {state.SCHEMA}, `state` the snapshot of the grouping."},
)
CHANGELOG_MESSAGE = Message(
    name="chunk",
    summary="Part of the state of a window, or of a tick "
    f"(only `{LOAD_COLUMN.name}`, and `{ROWS_COLUMN.name}` if rows are not tuples, by `<worker>/<key>`), as columns.",
    content_type=ARROW,
    key=_text_key(
        "`<start>/<number of the part>/<kind>`: changes, compacted, deferred-changes or deferred-compacted.", CHUNK_KEY
    ),
    timestamp=TIME_OF_WRITING,
    guarantee=LAST_OF_KEY,
    payload=_binary(ARROW),
)
TOMBSTONE_MESSAGE = replace(
    CHANGELOG_MESSAGE,
    name="tombstone",
    summary="Deletes a part of the state. The record has no value.",
    content_type=BYTES,
    payload=NOTHING,
)
RUN_MESSAGE = replace(
    CHANGELOG_MESSAGE,
    name="run",
    summary="State of the observer for the whole run: tuples and rows by worker, and sketches of keys.",
    content_type=MESSAGE_PACK,
    key={"type": "string", "const": "run"},
    payload=_binary(MESSAGE_PACK),
)
HOT_KEYS_MESSAGE = replace(
    RUN_MESSAGE,
    name="hot-keys",
    summary="State of the observer: the hot keys, and the start of the tick in which each became hot.",
    key={"type": "string", "const": "hot-keys"},
)
AGGREGATE_MESSAGE = Message(
    name="aggregate",
    summary=AggregateRecord.__doc__ or "",
    content_type=JSON,
    key=_text_key("`<window_start>/<key>`.", "^-?[0-9]+/"),
    timestamp="`window_start`. For times before 1970, which Kafka cannot store, the time of writing.",
    guarantee="Each result {once}. The record with the highest `revision` is valid; it is the last of its key.",
    payload=aggregate_type(default_fields(AGGREGATES.values())),
    headers=_public_headers(AGGREGATE),
)
DISTRIBUTION_MESSAGE = Message(
    name="distribution",
    summary=TickDistribution.__doc__ or "",
    content_type=JSON,
    key=_text_key("`tick_start`.", "^-?[0-9]+$"),
    timestamp="`tick_start`. For times before 1970, which Kafka cannot store, the time of writing.",
    guarantee="Each tick {once}.",
    payload=TickDistribution,
    headers=_public_headers(DISTRIBUTION),
)
HOT_KEY_MESSAGE = replace(
    DISTRIBUTION_MESSAGE,
    name="hot-key",
    summary=HotKeyChange.__doc__ or "",
    key=_text_key("The key."),
    guarantee="Each change {once}. The last record of a key says whether it is hot.",
    payload=HotKeyChange,
    headers=_public_headers(HOT_KEY),
)
DEAD_LETTER_MESSAGE = Message(
    name="dead-letter",
    summary="Key and value of a record that cannot be parsed, unchanged except that a large one is truncated. The "
    "headers hold its topic, partition and offset, and the reason.",
    content_type=BYTES,
    key={"type": ["string", "null"], "description": "Key of the invalid record: any bytes or none."},
    timestamp="Timestamp of the invalid record. If it has none, the time of writing the dead letter.",
    guarantee="Each invalid record {once}. The other records of its batch are processed.",
    payload={
        "description": "Value of the invalid record: any bytes or none. For an expired window: the partials that "
        "arrived for it, as columns, in as many dead letters as needed. If windows overlap, the column `window` is the "
        "start of the expired window."
    },
    headers=_public_headers(DEAD_LETTER, (BYTES, ARROW), DeadLetterHeaders),
)
SOURCE_MESSAGE = Message(
    name="source-record",
    summary="Your own records, in the format that `splitter` configures.",
    content_type=BYTES,
    key={
        "type": ["string", "null"],
        "description": "Anything. Only a pipeline that names it in `splitter.key.from` reads it.",
    },
    timestamp="Event time, if `splitter.time` names no field or header.",
    guarantee="As you write it; each committed record is counted once.",
    payload={"description": "Fields for the key, the value and the time of tuples, unless the record has them."},
)
JOIN_INPUT_MESSAGE = replace(
    SOURCE_MESSAGE,
    name="join-record",
    summary="Your own records, in the format that `join.left` or `join.right` configures.",
    key={"type": "string", "description": "The id."},
    timestamp="Event time, if `time` of the side names no field.",
    guarantee="As you write it; each committed record is joined once.",
    payload={"description": "A record with an id and optionally a time."},
)
JOINED_MESSAGE = Message(
    name="joined",
    summary=JoinedRecord.__doc__ or "",
    content_type=JSON,
    key=_text_key("The id."),
    timestamp="`left_time`. For times before 1970, which Kafka cannot store, the time of writing.",
    guarantee="Each pair {once}.",
    payload=JoinedRecord,
    headers=_public_headers(JOINED),
)
UNMATCHED_MESSAGE = replace(
    JOINED_MESSAGE,
    name="unmatched",
    summary=UnmatchedRecord.__doc__ or "",
    timestamp="`time`. For times before 1970, which Kafka cannot store, the time of writing.",
    guarantee="Each unmatched record {once}, and no other record.",
    payload=UnmatchedRecord,
    headers=_public_headers(UNMATCHED),
)
JOIN_LATE_MESSAGE = replace(
    UNMATCHED_MESSAGE,
    name="join-late",
    summary=JoinLateRecord.__doc__ or "",
    guarantee="Each late record {once}. Lateness depends only on the records of its partition, and on "
    "`join.idle_timeout_s` if it is set.",
    payload=JoinLateRecord,
    headers=_public_headers(JOIN_LATE),
)
HELD_BLOCK_MESSAGE = Message(
    name="held-block",
    summary="Offsets of records that wait for a partner: two bitmaps of 4096 offsets, as of the previous and of this "
    "commit.",
    content_type=BYTES,
    key=_text_key("`<left or right>/<number of the block>`.", BLOCK_KEY),
    timestamp=TIME_OF_WRITING,
    guarantee=LAST_OF_KEY,
    payload=_binary(BYTES),
)
BLOCK_TOMBSTONE_MESSAGE = replace(
    HELD_BLOCK_MESSAGE,
    name="held-block-tombstone",
    summary="Deletes a block without waiting records. The record has no value.",
    payload=NOTHING,
)

TIMED_RECORD_MESSAGE = Message(
    name="timed-record",
    summary="A record of a joined topic: a byte with the version (1), the event time in ms as a signed 64-bit integer "
    "(big-endian), and the value of the record.",
    content_type=BYTES,
    key=_text_key("The id."),
    timestamp=TIME_OF_WRITING,
    guarantee=EACH_RECORD,
    payload=_binary(BYTES),
)
REPLAY_MESSAGE = Message(
    name="replay",
    summary=Replay.__doc__ or "",
    content_type=JSON,
    key=_text_key("`<topic to which it was written>/<topic>/<partition>/<offset>`.", "^[^/]+/[^/]+/[0-9]+/[0-9]+$"),
    timestamp=TIME_OF_WRITING,
    guarantee="Each replay once, in the transaction that writes the record again.",
    payload=Replay,
)

MESSAGES_BY_SCHEMA: dict[str, tuple[Message, ...]] = {
    "joined": (JOINED_MESSAGE,),
    "unmatched": (UNMATCHED_MESSAGE,),
    "join-late": (JOIN_LATE_MESSAGE,),
    "timed-record": (TIMED_RECORD_MESSAGE, WATERMARKS_MESSAGE),
    "held-block": (HELD_BLOCK_MESSAGE, BLOCK_TOMBSTONE_MESSAGE),
    "tuples": (TUPLES_MESSAGE, TUPLES_V2_MESSAGE, ROWS_MESSAGE, WATERMARKS_MESSAGE),
    "late": (LATE_MESSAGE,),
    "loads": (LOADS_MESSAGE,),
    "partials": (PARTIALS_MESSAGE, WATERMARKS_MESSAGE),
    "chunk": (CHANGELOG_MESSAGE, TOMBSTONE_MESSAGE),
    "aggregate": (AGGREGATE_MESSAGE,),
    "distribution": (DISTRIBUTION_MESSAGE,),
    "hot-key": (HOT_KEY_MESSAGE,),
    "dead-letter": (DEAD_LETTER_MESSAGE,),
    "replay": (REPLAY_MESSAGE,),
}
"""Messages by the record type that a row of the topology names."""
EXTRA_MESSAGES = {
    "worker-input": (TUPLE_MESSAGE, TUPLE_V2_MESSAGE),
    "observer-changelog": (RUN_MESSAGE, HOT_KEYS_MESSAGE),
}
"""Messages that only one topic contains."""


def messages_of(topic: str) -> tuple[Message, ...]:
    """Return the messages of a topic of the topology, the one with data first; KeyError if the topic is unknown."""
    if topic in topology.USER_TOPICS:
        return (SOURCE_MESSAGE if topic == "source" else JOIN_INPUT_MESSAGE,)
    return *MESSAGES_BY_SCHEMA[topology.topic(topic).record], *EXTRA_MESSAGES.get(topic, ())


def find(topic: str, key: bytes | None, value: bytes | None, headers: Mapping[str, bytes]) -> Message | None:
    """Return the kind of a record; None if the topic has no such kind."""
    header_texts = {name: header.decode("utf-8", "replace") for name, header in headers.items()}
    key_text = None if key is None else key.decode("utf-8", "replace")
    # Messages that a header or a constant key identifies are tried first.
    candidates = sorted(messages_of(topic), key=lambda row: row.schema_header is None and "const" not in row.key)
    return next((row for row in candidates if row.fits(key_text, header_texts, empty=value is None)), None)


def payload_schema(message: Message) -> Schema:
    """Return the schema of the value; a reference if the value has a type."""
    return dict(message.payload) if isinstance(message.payload, dict) else ref(message.payload)


def types(messages: Mapping[str, Message]) -> list[Any]:
    """Return the types of the values of these messages."""
    return [row.payload for row in messages.values() if isinstance(row.payload, type)]
