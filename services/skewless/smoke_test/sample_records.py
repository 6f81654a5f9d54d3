"""Generates records with given keys in the format of a pipeline's source topic. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from skewless.errors import ConfigurationError
from skewless.parsing.field_settings import FieldRef
from skewless.parsing.formats.delimited import DelimitedSettings
from skewless.parsing.formats.json import JsonSettings
from skewless.parsing.formats.text import TextSettings
from skewless.parsing.json_path import LIST, parse_path
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

KEYS = 10


def keys(count: int, prefix: str) -> list[str]:
    """Return the key of each record: every second one is the hot key, the others are the remaining keys in turn."""
    return [f"{prefix}{0 if i % 2 else 1 + i // 2 % (KEYS - 1)}" for i in range(count)]


def make(settings: ParsingSettings, record_keys: Sequence[str], time_ms: int) -> RecordColumns:
    """Return one record with the value 1 for each key, all with the same event time.

    The event time, which is the timestamp too, is `time_ms`, rounded up to the unit of the time field. Raises
    ConfigurationError for a format that is not built in.
    """
    time, time_ms = _time_in_unit(settings, time_ms)
    size = len(record_keys)
    return RecordColumns(
        values=[_record(settings, key, time).encode() if settings.reads_value else b"" for key in record_keys],
        timestamps=np.full(size, time_ms, dtype=np.int64),
        keys=[key.encode() if settings.reads_record_key else None for key in record_keys],
        headers=[_headers(settings, key, time) for key in record_keys],
    )


def _headers(settings: ParsingSettings, key: str, time: int | str) -> list[tuple[str, bytes]]:
    parts = [(part.header, time if part.truncate else key) for part in settings.key.fields]
    named = [(settings.key.header, key), *parts, (settings.value.header, 1), (settings.time.header, time)]
    return [(name, str(value).encode()) for name, value in named if name is not None]


def _time_in_unit(settings: ParsingSettings, time_ms: int) -> tuple[int | str, int]:
    """Return the event time in the unit of `time.field`, and in ms."""
    match settings.time.unit:
        case "s":
            seconds = -(-time_ms // 1000)
            return seconds, seconds * 1000
        case "us":
            return time_ms * 1000, time_ms
        case "iso8601":
            instant = datetime.fromtimestamp(time_ms / 1000, UTC)
            return instant.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z", time_ms
        case _:
            return time_ms, time_ms


def _record(settings: ParsingSettings, key: str, time: int | str) -> str:
    parts = [(part.field, time if part.truncate else key) for part in settings.key.fields]
    times: list[tuple[FieldRef | None, int | str]] = [(settings.time.field, time)]
    if settings.time.of_day is not None:
        date, _, time_of_day = str(time).partition("T")
        times = [(settings.time.field, date), (settings.time.of_day, time_of_day)]
    fields = [(settings.key.field, key), *parts, (settings.value.field, 1), *times]
    present = [(field, value) for field, value in fields if field is not None]
    match settings.format:
        case TextSettings():
            return key
        case JsonSettings():
            return json.dumps(_document(present))
        case DelimitedSettings() as delimited:
            return delimited.delimiter.join(_row(present, delimited.columns))
    raise ConfigurationError(
        f"cannot generate records in the format {settings.format.name}, because only its package defines it"
    )


def _document(fields: Sequence[tuple[FieldRef, Any]]) -> Any:
    document: Any = None
    for path, value in fields:
        document = _put(document, parse_path(str(path)) or (str(path),), value)
    return document


def _put(document: Any, path: Sequence[str], value: Any) -> Any:
    """Return the document with a value at a path; every list on the path has one element."""
    if not path:
        return value
    if path[0] == LIST:
        return [_put(document[0] if document else None, path[1:], value)]
    inner = {} if document is None else document
    return inner | {path[0]: _put(inner.get(path[0]), path[1:], value)}


def _row(fields: Sequence[tuple[FieldRef, Any]], columns: Sequence[str]) -> list[str]:
    cells = {columns.index(field) if isinstance(field, str) else field: str(value) for field, value in fields}
    return [cells.get(column, "") for column in range(max(len(columns), max(cells) + 1))]
