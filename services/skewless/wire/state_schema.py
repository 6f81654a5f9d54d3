"""State schema: the settings that state and internal records depend on. They are fixed after the first run.

The metadata of each committed offset contains the schema, and a stage with an incompatible schema refuses to start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec

DIGEST = "sha256:"
DIGEST_CHARACTERS = 32
COLUMN_CHARACTERS = 48
"""Maximum characters of the list of columns in a state schema. A longer list is replaced by its digest."""
TOPIC_CHARACTERS = 48
"""The same for the name of a joined topic."""


PARSING = (
    "splitter.format",
    "splitter.key",
    "splitter.value",
    "splitter.time",
    "splitter.where",
    "splitter.envelope or splitter.python",
)
"""Settings by which the splitter reads records. Results of a window must not mix two versions of them."""
PARSING_CHARACTERS = 4
MEANING_BITS = 16
FORMATS = {"avro": 1 << MEANING_BITS, "json_schema": 2 << MEANING_BITS, "protobuf": 3 << MEANING_BITS}
"""Numbers of the formats of results in `StateSchema.results`, as if each were another result. JSON has none."""


Engine = Literal["services", "spark"]
"""What runs a pipeline: its stages, or `skewless stream`."""


class StateSchema(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=3, forbid_unknown_fields=True):
    """The state schema. Its JSON is an array that starts with its version.

    It has at most 240 characters. The version is the tag. Change it together with
    the fields: a checkpoint with another version is rejected.
    """

    window: int | str
    """Length in ms of tumbling windows from 1970-01-01 on, or a summary of other windows."""
    tick_ms: int
    columns: str
    """Names of the partial columns, separated by commas, or DIGEST and the digest of this list if it is long.

    A binary column has its type (`name:binary`). A column of a named value has the decimals of this value (`name/2`).
    """
    decimals: int
    max_workers: int
    """Partitions of worker-input: each has a watermark in partials."""
    aggregator_partitions: int
    """Partitions of partials. The hash of a key determines its partition."""
    emit: Literal["updates", "final"]
    lateness_ms: int
    key_parts: int = 0
    """Number of parts of a composite key; 0 for another key."""
    late_rule: Literal["window_end", "event_time"] = "event_time"
    parsing: str = ""
    """Digests of the settings in `PARSING`, each of PARSING_CHARACTERS. Empty: unknown, as with version 0.2.0."""
    engine: Engine = "services"
    """What runs the pipeline. Checkpoints of one must not be continued by the other while a micro-batch of Spark may be
    incomplete."""
    top: str = ""
    """Digest of `aggregator.top`, the names of results and `aggregator.numbers`. Empty: keys are not ranked."""
    results: tuple[int, ...] = ()
    """A number for each result: MEANING_BITS of a digest of its name, and as many of what it is. Empty: unknown.

    After them, the number of the format in FORMATS: version 0.5.0 takes it for a result that was added or removed.

    It is not a part of the JSON, because version 0.3 would refuse it: see `encode_offset_metadata`.
    """

    def __post_init__(self) -> None:
        """Replace a long list of columns, also one of version 0.2.0, which has no digests."""
        msgspec.structs.force_setattr(self, "columns", _shortened(self.columns, COLUMN_CHARACTERS))


def _shortened(text: str, characters: int) -> str:
    """Return a text, or its digest if it is longer than this."""
    if len(text) <= characters:
        return text
    return f"{DIGEST}{hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]}"


class JoinSchema(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=102, forbid_unknown_fields=True):
    """The state schema of a join, which has no state in common with the other stages. It has at most 240 characters."""

    apart_ms: int
    sync_delay_ms: int
    window_ms: int
    left_topic: str
    """Name of the topic, or DIGEST and its digest if it is long."""
    right_topic: str
    left: str
    """Digest of the settings that records of this side are read by: a restart reads held records again."""
    right: str
    repartition: Literal["never", "always"] = "never"

    def __post_init__(self) -> None:
        """Replace long names of topics: the watermarks of many partitions need the room."""
        for side in ("left_topic", "right_topic"):
            msgspec.structs.force_setattr(self, side, _shortened(getattr(self, side), TOPIC_CHARACTERS))


AnySchema = StateSchema | JoinSchema


def encode_schema(schema: AnySchema) -> str:
    """Return the JSON of a schema. Last fields with their default are left out, so that version 0.2.0 reads it, too.

    Processes of both versions have the same consumer group while the replicas of a stage are replaced. The JSON is
    without the field `results`.
    """
    if isinstance(schema, StateSchema):
        schema = msgspec.structs.replace(schema, results=())
    items = msgspec.to_builtins(schema)
    if isinstance(schema, StateSchema):
        for default in reversed(StateSchema.__struct_defaults__):
            if items[-1] != default:
                break
            items.pop()
    return msgspec.json.encode(items).decode()


def incompatibilities(previous: AnySchema, current: AnySchema) -> Iterator[str]:
    """Yield a line with both values for each setting that differs."""
    if isinstance(previous, StateSchema) and isinstance(current, StateSchema):
        yield from _state_incompatibilities(previous, current)
    elif isinstance(previous, JoinSchema) and isinstance(current, JoinSchema):
        yield from _join_incompatibilities(previous, current)
    else:
        yield "the group belongs to another stage"


def _join_incompatibilities(previous: JoinSchema, current: JoinSchema) -> Iterator[str]:
    for path, previous_ms, current_ms in (
        ("join.apart_s", previous.apart_ms, current.apart_ms),
        ("join.sync_delay_s", previous.sync_delay_ms, current.sync_delay_ms),
        ("join.window_s", previous.window_ms, current.window_ms),
    ):
        if previous_ms != current_ms:
            yield f"{path}: is {current_ms / 1000}, was {previous_ms / 1000}"
    if previous.repartition != current.repartition:
        yield f"join.repartition: is {current.repartition}, was {previous.repartition}"
    for side in ("left", "right"):
        topic, previous_topic = (getattr(schema, f"{side}_topic") for schema in (current, previous))
        if topic != previous_topic:
            yield f"join.{side}.topic: is {_topic_text(topic)}, was {_topic_text(previous_topic)}"
        if getattr(current, side) != getattr(previous, side):
            yield f"join.{side}: format, id, time or limits have changed"


def _topic_text(topic: str) -> str:
    return f"a topic with a long name (digest {topic})" if topic.startswith(DIGEST) else topic


_CHANGED_FROM: dict[Engine, str] = {
    "services": "pipeline: is run by `skewless stream`, was run by the stages (--take-over continues)",
    "spark": "pipeline: is run by the stages, was run by `skewless stream` (its --hand-back lets the stages continue)",
}


def _format(schema: StateSchema) -> str:
    """Return the format of results; `json` also if it is unknown."""
    return next((name for name, number in FORMATS.items() if number in schema.results), "json")


def _state_incompatibilities(previous: StateSchema, current: StateSchema) -> Iterator[str]:
    if previous.engine != current.engine:
        yield _CHANGED_FROM[previous.engine]
    settings: tuple[tuple[str, object, object], ...] = (
        _windows(previous, current),
        # The readers of another format also read JSON.
        ("aggregator.format", _format(previous), "json" if _format(previous) == "json" else _format(current)),
        ("aggregator.emit", previous.emit, current.emit),
        ("observer.tick_s", previous.tick_ms / 1000, current.tick_ms / 1000),
        ("splitter.value.decimals", previous.decimals, current.decimals),
        ("event_time.late_rule", previous.late_rule, current.late_rule),
        ("event_time.allowed_lateness_s", previous.lateness_ms / 1000, current.lateness_ms / 1000),
        ("worker_input.max_workers", previous.max_workers, current.max_workers),
        ("splitter.key.fields (their number)", previous.key_parts, current.key_parts),
        ("topics.aggregator_partitions", previous.aggregator_partitions, current.aggregator_partitions),
    )
    for path, previous_value, current_value in settings:
        if previous_value != current_value:
            yield f"{path}: is {current_value}, was {previous_value}"
    if previous.columns != current.columns:
        needed = _columns_text(previous).removeprefix("the columns ")
        yield f"aggregator.aggregates: needs {_columns_text(current)}, needed {needed}"
    if _names(previous, current) & _names(current, previous):
        yield "aggregator.aggregates: a result has another aggregate, value or argument than the one of its name had"
    if previous.top and current.top and previous.top != current.top:
        yield "aggregator.top: it, the names of results or aggregator.numbers are not what they were"
    if previous.parsing and current.parsing:
        for i, path in enumerate(PARSING):
            part = slice(i * PARSING_CHARACTERS, (i + 1) * PARSING_CHARACTERS)
            if previous.parsing[part] != current.parsing[part]:
                yield f"{path}: is not what it was"


def _names(schema: StateSchema, other: StateSchema) -> set[int]:
    """Return the digests of the names of those results that the other schema does not have."""
    return {number >> MEANING_BITS for number in set(schema.results) - set(other.results)}


def _columns_text(schema: StateSchema) -> str:
    is_digest = schema.columns.startswith(DIGEST)
    return f"other columns (digest {schema.columns})" if is_digest else f"the columns {schema.columns}"


def _windows(previous: StateSchema, current: StateSchema) -> tuple[str, object, object]:
    """Return the path of the setting of windows, and both values."""
    if isinstance(previous.window, int) and isinstance(current.window, int):
        return "aggregator.window_s", previous.window / 1000, current.window / 1000
    return "aggregator.window", _window_text(previous.window), _window_text(current.window)


def _window_text(window: int | str) -> str:
    return f"size_s {window / 1000:g}" if isinstance(window, int) else window
