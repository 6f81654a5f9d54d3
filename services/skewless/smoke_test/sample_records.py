"""Generates records with given keys in the format of a pipeline's source topic. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from skewless.errors import ConfigurationError
from skewless.parsing.field_settings import FieldRef
from skewless.parsing.formats import find_format
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.wire.record import Headers

KEYS = 10


class Instant(NamedTuple):
    """An event time of generated records."""

    written: int | str
    """In the unit of the settings, for fields that are not times in their schema."""
    time_ms: int


Fields = Sequence[tuple[FieldRef, Any]]
"""Fields of a record as the format finds them, with their values."""
Sample = Callable[[str, Fields], bytes]
"""Returns a record with a key and fields."""


def keys(count: int, prefix: str) -> list[str]:
    """Return the key of each record: every second one is the hot key, the others are the remaining keys in turn."""
    return [f"{prefix}{0 if i % 2 else 1 + i // 2 % (KEYS - 1)}" for i in range(count)]


def make(
    settings: ParsingSettings, record_keys: Sequence[str], time_ms: int, sample: Sample | None = None
) -> RecordColumns:
    """Return one record with the value 1 for each key, all with the same event time.

    `sample` writes a record, by default that of the format. The event time, which is the timestamp too, is `time_ms`,
    rounded up to the unit of the time field. Raises ConfigurationError for a format without samples, and for a function
    of the user.
    """
    if settings.python is not None:
        raise ConfigurationError(
            "splitter.python: the smoke test cannot generate records for a function; test it with `skewless test`"
        )
    sample = sample or plain(settings)
    time, time_ms = _time_in_unit(settings, time_ms)
    size = len(record_keys)
    return RecordColumns(
        values=[
            sample(key, _fields(settings, key, Instant(time, time_ms))) if settings.reads_value else b""
            for key in record_keys
        ],
        timestamps=np.full(size, time_ms, dtype=np.int64),
        keys=[_record_key(settings, key) if settings.reads_record_key else None for key in record_keys],
        headers=[_headers(settings, key, time) for key in record_keys],
    )


def _record_key(settings: ParsingSettings, key: str) -> bytes:
    of_key = settings.of_record_key
    if of_key is None:
        return key.encode()
    return find_format(of_key.format.name).sample(
        of_key.format, key, [(field, key) for field in of_key.required.values()]
    )


def _headers(settings: ParsingSettings, key: str, time: int | str) -> Headers:
    parts = [(part.header, time if part.truncate else key) for part in settings.key.fields]
    values = [(value.header, 1) for value in settings.named_values.values()]
    named = [*values, (settings.key.header, key), *parts, (settings.time.header, time)]
    own = () if settings.envelope is None else settings.envelope.sample_headers()
    return [*own, *((name, str(value).encode()) for name, value in named if name is not None)]


def _time_in_unit(settings: ParsingSettings, time_ms: int) -> tuple[int | str, int]:
    """Return the event time in the unit of `time.field`, and in ms."""
    match settings.time.unit:
        case "s":
            seconds = -(-time_ms // 1000)
            return seconds, seconds * 1000
        case "us":
            return time_ms * 1000, time_ms
        case "ns":
            return time_ms * 1_000_000, time_ms
        case "iso8601":
            instant = datetime.fromtimestamp(time_ms / 1000, UTC)
            return instant.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z", time_ms
        case _:
            return time_ms, time_ms


def _fields(settings: ParsingSettings, key: str, time: Instant) -> Fields:
    parts = [(part.field, time if part.truncate else key) for part in settings.key.fields]
    times: list[tuple[FieldRef | None, Any]] = [(settings.time.field, time)]
    if settings.time.of_day is not None:
        date, _, time_of_day = str(time.written).partition("T")
        times = [(settings.time.field, date), (settings.time.of_day, time_of_day)]
    values = [(value.field, 1) for value in settings.named_values.values()]
    fields = [*values, (settings.key.field if settings.key.in_value else None, key), *parts, *times]
    own = () if settings.envelope is None else settings.envelope.sample_fields()
    return [*((settings.locate(field), value) for field, value in fields if field is not None), *own]


def plain(settings: ParsingSettings) -> Sample:
    """Return the function of a format without schemas."""
    found, chosen = find_format(settings.format.name), settings.format.resolved()
    return lambda key, fields: found.sample(chosen, key, written(fields))


def written(fields: Fields) -> Fields:
    """Return fields with their event times in the unit of the settings."""
    return [(path, value.written if isinstance(value, Instant) else value) for path, value in fields]
