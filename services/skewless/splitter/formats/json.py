"""JSON: one object (or list) per record, read by a decoder that knows the types of the few fields it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.splitter.formats.base import Parsed
from skewless.splitter.formats.columns import Columns, Converter
from skewless.splitter.formats.lines import no_columns
from skewless.splitter.formats.paths import Path, Tree, conflicts, lists_of, parse_path
from skewless.splitter.formats.screen import screen

if TYPE_CHECKING:
    from skewless.splitter.settings import SplitterSettings

_KEY = str | int | float | bool
_NUMBER = str | int | float
_MISSING = re.compile(r"Object missing required field `(?P<name>.+?)`(?: - at `\$\.?(?P<path>.*)`)?")
_MISTYPED = re.compile(r".* - at `\$\.?(?P<path>.*)`")
_INDEX = re.compile(r"\[\d+\]")


class Json:
    """Reads key, value and time by their paths. Keys may be strings, numbers or booleans; null and objects are bad.

    Numbers for value and time may also stand in strings. Names that an object has twice: the last one wins.
    """

    def __init__(self, settings: SplitterSettings) -> None:
        self._limits = settings.limits
        self._converter = Converter(settings)
        self._paths = _paths(settings)
        key, value, time = (self._paths.get(name) for name in ("key", "value", "time"))
        tree = Tree({path: _KEY if name == "key" else _NUMBER for name, path in self._paths.items()})
        self._decode = msgspec.json.Decoder(tree.type).decode
        # Where the value stands inside a list of the key's, both start from that list's elements.
        shared = lists_of(value or ())
        self._nodes = tree.walk(shared)
        self._key = tree.walk(key or (), shared)
        self._value = tree.walk(value, shared) if value else None
        self._time = tree.walk(time) if time else None

    @staticmethod
    def problems(settings: SplitterSettings) -> Iterator[str]:
        """Say which fields are missing, are no paths, or collide."""
        yield from no_columns(settings)
        if settings.key.field is None:
            yield "key.field: missing, give the path of the key, such as user.id or hashtags[].text"
        paths = _paths(settings)
        for name, part in (("key", settings.key), ("value", settings.value), ("time", settings.time)):
            if part.field is not None and name not in paths:
                yield f"{name}.field: {part.field!r} is no path, write names with dots between and [] behind lists"
        yield from conflicts(paths)

    def parse(self, values: Sequence[bytes | None], timestamps: NDArray[np.int64]) -> Parsed:
        """Read each record's fields; see `Format.parse`."""
        columns = Columns()
        rows = self._rows(screen(values, self._limits, columns.bad), columns)
        nodes, node_rows = self._nodes.follow(rows)
        columns.keys, key_nodes = self._key.follow(nodes)
        columns.key_rows = node_rows if key_nodes is None else key_nodes if node_rows is None else node_rows[key_nodes]
        if self._value is not None:
            found, _ = self._value.follow(nodes)
            columns.values = found if key_nodes is None else [found[i] for i in key_nodes.tolist()]
        if self._time is not None:
            columns.times, _ = self._time.follow(rows)
        return self._converter.convert(columns, timestamps)

    def _rows(self, values: Sequence[bytes], columns: Columns) -> list[Any]:
        decode, bad, rows = self._decode, columns.bad, []
        candidates = [i for i in range(len(values)) if i not in bad] if bad else range(len(values))
        # Record by record, for the reason given in `screen`; a `try` costs nothing until a record is bad.
        for i in candidates:
            try:
                rows.append(decode(values[i]))
            except msgspec.ValidationError as error:
                bad[i] = self._reason(str(error))
            except msgspec.DecodeError:
                bad[i] = "malformed JSON"
        columns.rows = [i for i in candidates if i not in bad] if bad else candidates
        return rows

    def _reason(self, message: str) -> str:
        """Say which field is wrong; msgspec's message has the path and types, nothing of the payload."""
        missing = _MISSING.fullmatch(message)
        found = missing or _MISTYPED.fullmatch(message)
        at = parse_path(_INDEX.sub("[]", found["path"] or "")) or () if found else ()
        if missing:
            at = (*at, missing["name"])
        for name, path in self._paths.items():
            if path == at and not missing:
                return f"{name} has the wrong type or is out of range"
            if path[: len(at)] == at:
                return f"{name} field missing"
        return "fields of the wrong type"


def _paths(settings: SplitterSettings) -> dict[str, Path]:
    """Give the fields that are set and are paths, by the name of their setting."""
    parts = {"key": settings.key.field, "value": settings.value.field, "time": settings.time.field}
    paths = {name: parse_path(text) for name, text in parts.items() if isinstance(text, str)}
    return {name: path for name, path in paths.items() if path}
