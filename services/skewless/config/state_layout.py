"""Derives the state schema from the settings of a pipeline."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from skewless.algorithms.aggregates import BinaryColumn, PartialColumn, ResultField, wire_columns_of
from skewless.algorithms.value_type import VALUE
from skewless.algorithms.windowing.assigner import CalendarWindows
from skewless.config.pipeline_settings import PipelineSettings
from skewless.parsing.join_side_settings import JoinSideSettings
from skewless.parsing.settings import ParsingSettings
from skewless.settings_base import SettingsModel
from skewless.wire.state_schema import (
    DIGEST_CHARACTERS,
    FORMATS,
    MEANING_BITS,
    PARSING,
    PARSING_CHARACTERS,
    AnySchema,
    JoinSchema,
    StateSchema,
)

QUARTER_HOUR_MS = 900_000


def state_schema_of(settings: PipelineSettings) -> StateSchema:
    """Return the state schema of a pipeline with these settings."""
    return StateSchema(
        window=settings.aggregator.window_schema,
        tick_ms=settings.observer.tick_ms,
        columns=_columns(settings),
        decimals=settings.splitter.value.decimals,
        max_workers=settings.worker_input.partitions,
        aggregator_partitions=settings.topics.aggregator_partitions,
        emit=settings.aggregator.emit,
        lateness_ms=settings.event_time.lateness_ms,
        key_parts=len(settings.splitter.key.fields),
        late_rule=settings.event_time.late_rule,
        parsing=_parsing_digests(settings.splitter, _calendar_grid(settings)) if _needs_0_3(settings) else "",
        top=_ranks_digest(settings),
        results=(
            *sorted(map(_meaning, settings.results)),
            *(number for name, number in FORMATS.items() if name == settings.aggregator.format),
        ),
    )


def _meaning(result: ResultField) -> int:
    """Return the digests of the name of a result, and of what it is: its aggregate with its arguments, and its value.

    The names of columns contain the value and most arguments, the name that the result has by default the others.
    """
    what = [result.aggregate.name, result.aggregate.result_name(VALUE), [column.name for column in result.columns]]
    name_bits, what_bits = (
        int.from_bytes(hashlib.sha256(json.dumps(described).encode()).digest()[: MEANING_BITS // 8], "big")
        for described in (result.name, what)
    )
    return name_bits << MEANING_BITS | what_bits


def _ranks_digest(settings: PipelineSettings) -> str:
    """Return the digest of the settings that the ranks of a window depend on: their state contains results."""
    if (top := settings.aggregator.top) is None:
        return ""
    return _short_digest([top.n, top.by, [result.name for result in settings.results], settings.aggregator.numbers])


def _needs_0_3(settings: PipelineSettings) -> bool:
    """Return whether version 0.2.0 cannot read the state schema, also without the digests of the parsing."""
    return (
        bool(settings.splitter.key.fields)
        or settings.event_time.late_rule != "event_time"
        or isinstance(settings.aggregator.windows, CalendarWindows)
    )


def _calendar_grid(settings: PipelineSettings) -> dict[str, int]:
    """Return the span of which windows in a time zone begin at multiples, if it is not whole quarters of an hour.

    It depends on `splitter.time.earliest`: before standard time, zones had local mean time. The panes of records
    between the stages are in one window each only as long as the span stays the same.
    """
    if not isinstance(settings.aggregator.windows, CalendarWindows):
        return {}
    grid_ms = math.gcd(settings.window_grid_ms, QUARTER_HOUR_MS)
    return {} if grid_ms == QUARTER_HOUR_MS else {"grid_ms": grid_ms}


def _parsing_digests(parsing: ParsingSettings, grid: dict[str, int]) -> str:
    """Return the digests of the settings that determine key, time and values of a record, and the panes of times.

    Other settings of the splitter only determine which records are invalid, so they may change. The decimals of values
    are in other fields of the state schema.
    """
    values = parsing.named_values
    described = {
        "splitter.format": [parsing.format.name, _changed(parsing.format)],
        "splitter.key": _changed(parsing.key),
        "splitter.value": {name: _changed(values[name], "decimals", "missing") for name in sorted(values)},
        "splitter.time": _changed(parsing.time, "earliest", "latest") | grid,
        "splitter.where": [_changed(condition) for condition in parsing.where],
    }
    if parsing.envelope is not None:  # the last one: pipelines without one have no digest of it
        described[PARSING[-1]] = [parsing.envelope.name, _changed(parsing.envelope)]
    elif parsing.python is not None:
        described[PARSING[-1]] = ["python", parsing.python]
    return "".join(_short_digest(described[path]) for path in PARSING if path in described)


def _changed(settings: SettingsModel, *ignored: str) -> dict[str, Any]:
    """Return the settings that differ from their defaults, so that new settings do not change a digest."""
    return settings.model_dump(mode="json", exclude=set(ignored), exclude_defaults=True)


def _short_digest(described: object) -> str:
    digest = hashlib.sha256(json.dumps(described).encode()).digest()
    return base64.b64encode(digest).decode()[:PARSING_CHARACTERS]


def _columns(settings: PipelineSettings) -> str:
    decimals = {value.name: value.decimals for value in settings.values}
    return ",".join(sorted(_description(column, decimals) for column in wire_columns_of(settings.results)))


def _description(column: PartialColumn, decimals: Mapping[str, int]) -> str:
    """Return the name of a column, its type if it is binary, and the decimals of the value if it has a name."""
    text = f"{column.name}:{column.type}" if isinstance(column, BinaryColumn) else column.name
    # The decimals of the value `value` are a part of the schema of their own.
    own_decimals = 0 if column.value in (None, VALUE) else decimals[column.value]
    return f"{text}/{own_decimals}" if own_decimals else text


def schema_of_stage(settings: PipelineSettings, section: str) -> AnySchema:
    """Return the state schema of the stage with this section of the settings."""
    if section != "join":
        return state_schema_of(settings)
    join = settings.joined
    rules = join.rules()
    return JoinSchema(
        apart_ms=rules.apart_ms,
        sync_delay_ms=rules.apart_ms + rules.right_disorder_ms,
        window_ms=rules.apart_ms + rules.left_disorder_ms,
        left_topic=join.left.topic,
        right_topic=join.right.topic,
        left=_side_digest(join.left),
        right=_side_digest(join.right),
        repartition=join.repartition,
    )


def _side_digest(side: JoinSideSettings) -> str:
    """Return the digest of the settings that the records of a side are read by."""
    described = side.model_dump_json(exclude={"topic"}, exclude_defaults=True)
    return hashlib.sha256(f"{side.format.name}{described}".encode()).hexdigest()[:DIGEST_CHARACTERS]
