"""Table of the messages: one row for each kind of record that consumers of the user read or producers write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from skewless import topology
from skewless.algorithms.aggregates import AGGREGATES, default_fields
from skewless.asyncapi.schemas import Schema, schemas
from skewless.wire.aggregates import AGGREGATE, TOP, aggregate_type, top_type
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
    WATERMARK,
    WATERMARKS_HEADER,
)
from skewless.wire.hot_keys import HOT_KEY, HotKeyChange
from skewless.wire.joined import JOIN_LATE, JOINED, UNMATCHED, JoinedRecord, JoinLateRecord, UnmatchedRecord
from skewless.wire.tuples import LATE, TUPLE, TUPLE_V2, LateHeaders, LateTuple, TupleRecord, ValuesRecord

NOTHING: Schema = {"type": "null"}
GUARANTEE_TEXTS = {
    "exactly_once": "exactly once, for consumers with `isolation.level=read_committed`",
    "at_least_once": "at least once",
}
"""Delivery guarantee by the value of `transport.guarantee`."""


@dataclass(frozen=True)
class Message:
    """One kind of record."""

    name: str
    key: Schema
    timestamp: str
    """Meaning of the record's Kafka timestamp."""
    guarantee: str
    """Delivery guarantee of each record; `{once}` is a placeholder for a text of `GUARANTEE_TEXTS`."""
    payload: type[msgspec.Struct] | Schema
    headers: Schema | None = None
    content_type: str = JSON
    summary: str = ""
    """Empty: the docstring of the payload's type."""
    deletes: bool = False
    """Whether it is the record without a value that deletes another kind, whose key and headers it has."""

    @property
    def schema_header(self) -> str | None:
        """Value of the header `schema`: name and version. None if this kind has no such header."""
        properties = {} if self.headers is None else self.headers.get("properties", {})
        return str(properties[SCHEMA_HEADER]["const"]) if SCHEMA_HEADER in properties else None


def _text_key(description: str, pattern: str | None = None) -> Schema:
    return {"type": "string", "description": description} | ({"pattern": pattern} if pattern else {})


def _event_time(name: str) -> str:
    return f"{name}. For times before 1970, which Kafka cannot store, the time of writing. 0 is stored as 1."


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


def _tuple_headers(schema: str) -> Schema:
    """Return the schema of the headers of a record of worker-input, as `wire.headers.headers_with` writes them."""
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
    read_time = {
        "type": "string",
        "pattern": "^[0-9]+$",
        "description": "Time at which the splitter read the newest tuple of the record, in ms since the epoch. Only "
        "metrics depend on it. Optional.",
    }
    reports = {WATERMARKS_HEADER: watermarks, IDLE_HEADER: idle, READ_TIME_HEADER: read_time}
    properties = {SCHEMA_HEADER: _schema_header(schema), **reports}
    return {"type": "object", "properties": properties, "required": [SCHEMA_HEADER]}


SOURCE = Message(
    "source-record",
    {
        "type": ["string", "null"],
        "description": "Anything. Only a pipeline that names it in `splitter.key.from` reads it.",
    },
    "Event time, if `splitter.time` names no field or header.",
    "As you write it; each committed record is counted once.",
    {"description": "Fields for the key, the value and the time of tuples, unless the record has them."},
    content_type=BYTES,
    summary="Your own records, in the format that `splitter` configures.",
)
JOIN_INPUT = replace(
    SOURCE,
    name="join-record",
    key={"type": "string", "description": "The id."},
    timestamp="Event time, if `time` of the side names no field.",
    guarantee="As you write it; each committed record is joined once.",
    payload={"description": "A record with an id and optionally a time."},
    summary="Your own records, in the format that `join.left` or `join.right` configures.",
)
ENRICHED_RECORD = replace(
    SOURCE,
    name="enriched-record",
    key={"type": ["string", "null"], "description": "The key of your record."},
    timestamp="That of your record. 0 is stored as 1.",
    guarantee="Each record {once}.",
    headers={
        "type": "object",
        "properties": {},
        "patternProperties": {
            ".*": {
                "type": "string",
                "description": "A header of your record, or the text of a field of its row (`enrich.tables.fields`).",
            }
        },
    },
    summary="A record of `enrich.topic` as you wrote it, with the fields of its rows as additional headers.",
)
JOINED_PAIR = Message(
    "joined",
    _text_key("The id."),
    _event_time("`left_time`"),
    "Each pair {once}.",
    JoinedRecord,
    _public_headers(JOINED),
)
UNMATCHED_RECORD = Message(
    "unmatched",
    _text_key("The id."),
    _event_time("`time`"),
    "Each unmatched record {once}, and no other record.",
    UnmatchedRecord,
    _public_headers(UNMATCHED),
)
LATE_OF_JOIN = Message(
    "join-late",
    _text_key("The id."),
    _event_time("`time`"),
    "Each late record {once}. Lateness depends only on the records of its partition, and on `join.idle_timeout_s` if "
    "it is set.",
    JoinLateRecord,
    _public_headers(JOIN_LATE),
)
LATE_TUPLE = Message(
    "late",
    _text_key("The tuple's key."),
    _event_time("Event time of the tuple"),
    "Each late tuple {once}. Lateness depends only on the records of the source.",
    LateTuple,
    _public_headers(LATE, others=LateHeaders),
)
SINGLE_TUPLE = Message(
    "tuple",
    _text_key("The tuple's key."),
    "Time of writing.",
    "Each record {once}.",
    TupleRecord,
    _tuple_headers(TUPLE),
)
SINGLE_TUPLE_V2 = replace(
    SINGLE_TUPLE, name="tuple-with-values", payload=ValuesRecord, headers=_tuple_headers(TUPLE_V2)
)
WATERMARKS = replace(
    SINGLE_TUPLE,
    name="watermark_records",
    key=NOTHING,
    payload=NOTHING,
    headers=_tuple_headers(WATERMARK),
    content_type=BYTES,
    summary="Watermarks without a tuple. The record has no value.",
)
RESULT = Message(
    "aggregate",
    _text_key("`<window_start>/<key>`.", "^-?[0-9]+/"),
    _event_time("`window_start`"),
    "Each result {once}. The record with the highest `revision` is valid; it is the last of its key.",
    aggregate_type(default_fields(AGGREGATES.values())),
    _public_headers(AGGREGATE),
)
DELETED_RESULT = replace(
    RESULT,
    name="deleted-aggregate",
    guarantee="Each deletion {once}. It is valid if it is the last record of its key.",
    payload=NOTHING,
    summary="Deletes the results of its key, if there are any: of a session whose start has changed, or of a key in a "
    "corrected window whose new results do not match `aggregator.having`, also if they never did. The record has no "
    "value.",
    deletes=True,
)
TOP_RESULT = Message(
    "top",
    _text_key("`<window_start>/<rank>`.", "^-?[0-9]+/[0-9]+$"),
    _event_time("`window_start`"),
    "Each change of a rank {once}. The record with the highest `revision` is valid; it is the last of its rank.",
    top_type(default_fields(AGGREGATES.values())),
    _public_headers(TOP),
)
DELETED_TOP_RESULT = replace(
    TOP_RESULT,
    name="deleted-top",
    guarantee="Each deletion {once}. It is valid if it is the last record of its rank.",
    payload=NOTHING,
    summary="Deletes a rank that no key has any more. The record has no value.",
    deletes=True,
)


def with_schema(result: Message, schema: Schema) -> Message:
    """Return the message of results in a format of a registry: a prefix with the schema's id, and the content.

    A deletion has no content in this format either.
    """
    headers = _public_headers(str(result.schema_header), (BYTES,))
    return replace(result, payload=NOTHING if result.deletes else schema, content_type=BYTES, headers=headers)


TICK = Message(
    "distribution",
    _text_key("`tick_start`.", "^-?[0-9]+$"),
    _event_time("`tick_start`"),
    "Each tick {once}.",
    TickDistribution,
    _public_headers(DISTRIBUTION),
)
HOT_KEY_CHANGE = Message(
    "hot-key",
    _text_key("The key."),
    _event_time("`tick_start`"),
    "Each change {once}. The last record of a key says whether it is hot.",
    HotKeyChange,
    _public_headers(HOT_KEY),
)
INVALID_RECORD = Message(
    "dead-letter",
    {"type": ["string", "null"], "description": "Key of the invalid record: any bytes or none."},
    "Timestamp of the invalid record. If it has none, the time of writing the dead letter.",
    "Each invalid record {once}. The other records of its batch are processed.",
    {
        "description": "Value of the invalid record: any bytes or none. For an expired window: the partials that "
        "arrived for it, as columns, in as many dead letters as needed. If windows overlap, the column `window` is the "
        "start of the expired window."
    },
    _public_headers(DEAD_LETTER, (BYTES, ARROW), DeadLetterHeaders),
    BYTES,
    "Key and value of a record that cannot be parsed, unchanged except that a large one is truncated. The headers hold "
    "its topic, partition and offset, and the reason.",
)

MESSAGES: dict[str, tuple[Message, ...]] = {
    "joined": (JOINED_PAIR,),
    "unmatched": (UNMATCHED_RECORD,),
    "join-late": (LATE_OF_JOIN,),
    "late": (LATE_TUPLE,),
    "enriched": (ENRICHED_RECORD,),
    "tuples": (SINGLE_TUPLE, SINGLE_TUPLE_V2, WATERMARKS),
    "aggregate": (RESULT, DELETED_RESULT),
    "top": (TOP_RESULT, DELETED_TOP_RESULT),
    "distribution": (TICK,),
    "hot-key": (HOT_KEY_CHANGE,),
    "dead-letter": (INVALID_RECORD,),
}
"""Messages by the record type of the topic. Those of `tuples` are for worker-input with one record per tuple."""


def messages_of(topic: str) -> tuple[Message, ...]:
    """Return the messages of a public topic, of a topic of the user or of worker-input. Raises KeyError for others."""
    if topic in topology.USER_TOPICS:
        return (JOIN_INPUT if topology.USER_TOPICS[topic] == "join" else SOURCE,)
    return MESSAGES[topology.topic(topic).record]
