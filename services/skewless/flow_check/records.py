"""Records whose keys are known, in the form that a pipeline's splitter reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from skewless.errors import ConfigurationError
from skewless.splitter.formats.paths import LIST, parse_path
from skewless.splitter.settings import FieldRef, SplitterSettings

KEYS = 10
_SEPARATORS = {"csv": ",", "tsv": "\t"}


def keys(count: int, prefix: str) -> list[str]:
    """Name the key of each record: every other one is the same, the rest are shared evenly by the others."""
    return [f"{prefix}{0 if i % 2 else 1 + i // 2 % (KEYS - 1)}" for i in range(count)]


def make(settings: SplitterSettings, named: Sequence[str], time_ms: int) -> tuple[list[bytes], int]:
    """Make one record per key, each with value 1; return them with their event time.

    The time is `time_ms`, or as soon after it as the unit of `time.field` can say. ConfigurationError for a format that
    is not built in.
    """
    time, time_ms = _time(settings, time_ms)
    texts = [_record(settings, key, time) for key in named]
    return [text.encode() for text in texts], time_ms


def _time(settings: SplitterSettings, time_ms: int) -> tuple[int | str, int]:
    match settings.time.unit:
        case "s":
            seconds = -(-time_ms // 1000)
            return seconds, seconds * 1000
        case "us":
            return time_ms * 1000, time_ms
        case "iso8601":
            moment = datetime.fromtimestamp(time_ms / 1000, UTC)
            return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z", time_ms
        case _:
            return time_ms, time_ms


def _record(settings: SplitterSettings, key: str, time: int | str) -> str:
    fields = [(settings.key.field, key), (settings.value.field, 1), (settings.time.field, time)]
    named = [(field, value) for field, value in fields if field is not None]
    match settings.format:
        case "text":
            return key
        case "json":
            return json.dumps(_document(named))
        case "csv" | "tsv":
            separator = settings.separator or _SEPARATORS[settings.format]
            return separator.join(_row(named, settings.columns))
    raise ConfigurationError(f"no records can be made up for the format {settings.format}: only its package knows it")


def _document(fields: Sequence[tuple[FieldRef, Any]]) -> Any:
    document: Any = None
    for path, value in fields:
        document = _put(document, parse_path(str(path)) or (str(path),), value)
    return document


def _put(document: Any, path: Sequence[str], value: Any) -> Any:
    """Put a value where a path leads; a list has one element."""
    if not path:
        return value
    if path[0] == LIST:
        return [_put(document[0] if document else None, path[1:], value)]
    inner = {} if document is None else document
    return inner | {path[0]: _put(inner.get(path[0]), path[1:], value)}


def _row(fields: Sequence[tuple[FieldRef, Any]], columns: Sequence[str]) -> list[str]:
    places = {columns.index(field) if isinstance(field, str) else field: str(value) for field, value in fields}
    return [places.get(place, "") for place in range(max(len(columns), max(places) + 1))]
