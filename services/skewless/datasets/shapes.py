"""The shapes of recorded lines: how each is read in either form, written in either, and split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from skewless.datasets.base import Form
from skewless.splitter.fields import LAST_INSTANT
from skewless.splitter.settings import SplitterSettings

SECONDS_BELOW = 100_000_000_000
"""Smaller numbers are seconds (up to the year 5138), larger ones milliseconds (from 1973 on)."""


class Shape(Protocol):
    """What the lines of a dataset look like."""

    timed: bool
    """Whether its lines carry their time."""

    def convert(self, line: bytes, form: Form, time: int) -> tuple[bytes, int]:
        """Turn a line of either form into a record of `form`, with times in ms, and give its time (ms).

        Lines without a time have `time`. Raises ValueError or msgspec.DecodeError for a malformed line.
        """
        ...

    def write(self, fields: Sequence[Any], form: Form) -> bytes:
        """Write a record."""
        ...

    def splitter(self, form: Form) -> SplitterSettings:
        """Give the splitter settings that read the records."""
        ...


class Columns:
    """Fields with a separator between them, as JSON an object of the same names.

    Columns behind the named ones stay in raw lines, and are left out of JSON.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        separator: str,
        *,
        key: str | Mapping[str, Any],
        value: str | None = None,
        time: str | None = None,
    ) -> None:
        self._names = list(columns)
        self._kinds = list(columns.values())
        self._separator = separator
        self._cut = separator.encode()
        self._time = self._names.index(time) if time else -1
        self._parts: dict[str, Any] = {"key": {"field": key} if isinstance(key, str) else dict(key)}
        if value:
            self._parts["value"] = {"field": value}
        if time:
            self._parts["time"] = {"field": time}
        self.timed = time is not None
        written = [int | float | str if name == time else kind for name, kind in columns.items()]
        self._row: Any = msgspec.defstruct("Row", list(zip(self._names, written, strict=True)), gc=False)
        self._decode = msgspec.json.Decoder(self._row).decode
        self._encode = msgspec.json.Encoder().encode

    def convert(self, line: bytes, form: Form, time: int) -> tuple[bytes, int]:
        """See `Shape.convert`. A line that is of this form already, with its time in ms, stays as it is."""
        if line.startswith(b"{"):
            fields = list(msgspec.structs.astuple(self._decode(line)))
            if form == "json" and (not self.timed or fields[self._time] == milliseconds(fields[self._time])):
                return line, fields[self._time] if self.timed else time
        else:
            cells = line.rstrip(b"\r").split(self._cut)
            if len(cells) < len(self._names):
                raise ValueError("too few columns")
            if form == "raw":
                return self._raw(line, cells, time)
            kinds = zip(self._kinds, cells, strict=False)
            fields = [
                cell.decode() if at == self._time else kind(cell.decode()) for at, (kind, cell) in enumerate(kinds)
            ]
        if self.timed:
            time = fields[self._time] = milliseconds(fields[self._time])
        return self.write(fields, form), time

    def write(self, fields: Sequence[Any], form: Form) -> bytes:
        """See `Shape.write`; raises ValueError for a text with a separator in it."""
        if form == "json":
            encoded: bytes = self._encode(self._row(*fields))
            return encoded
        line = self._separator.join(map(str, fields))
        if line.count(self._separator) >= len(fields):
            raise ValueError("a field has the separator in it")
        return line.encode()

    def splitter(self, form: Form) -> SplitterSettings:
        """See `Shape.splitter`."""
        if form == "json":
            return SplitterSettings.model_validate({"format": "json", **self._parts})
        written = {"format": "tsv"} if self._separator == "\t" else {"format": "csv", "separator": self._separator}
        return SplitterSettings.model_validate({**written, "columns": tuple(self._names), **self._parts})

    def _raw(self, line: bytes, cells: list[bytes], time: int) -> tuple[bytes, int]:
        if not self.timed:
            return line, time
        time = milliseconds(cells[self._time].decode())
        text = b"%d" % time
        if cells[self._time] == text:
            return line, time
        cells[self._time] = text
        return self._cut.join(cells), time


def milliseconds(time: float | str) -> int:
    """Read a time in s or ms since the epoch, or in ISO 8601 (UTC without a zone); raises ValueError."""
    if isinstance(time, str):
        if not time.isdigit():
            moment = datetime.fromisoformat(time)
            return milliseconds((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
        time = int(time)
    instant = round(time * 1000) if time < SECONDS_BELOW else int(time)
    if not 0 <= instant <= LAST_INSTANT:
        raise ValueError("time is not within bounds")
    return instant
