"""Codecs of recorded lines: they convert a line into a record, and have the splitter settings that parse it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from skewless.stages.splitter.settings import SplitterSettings
from skewless.times import LAST_INSTANT, SECONDS_BELOW


class LineCodec(Protocol):
    """Format of a dataset's lines and records."""

    has_time: bool
    """True if the lines contain their event time."""

    def convert(self, line: bytes, time: int) -> tuple[bytes, int]:
        """Convert a line into a record with its time in ms, and return the record and the time.

        Lines without a time get `time`. Raises ValueError or msgspec.DecodeError for a malformed line.
        """

    def write(self, fields: Sequence[Any]) -> bytes:
        """Encode a record."""

    def splitter(self) -> SplitterSettings:
        """Return the splitter settings that parse the records."""


class DelimitedCodec:
    """Fields separated by a delimiter. Further columns after the named ones are kept."""

    def __init__(
        self,
        columns: Sequence[str],
        delimiter: str,
        *,
        key: str | Mapping[str, Any],
        value: str | None = None,
        time: str | None = None,
    ) -> None:
        self._columns = columns
        self._delimiter = delimiter
        self._time_column = columns.index(time) if time else -1
        self._fields: dict[str, Any] = {"key": {"field": key} if isinstance(key, str) else dict(key)}
        self._fields |= {role: {"field": name} for role, name in (("value", value), ("time", time)) if name}
        self.has_time = time is not None

    def convert(self, line: bytes, time: int) -> tuple[bytes, int]:
        """See `LineCodec.convert`. Returns a line unchanged if its time is in ms."""
        cells = line.rstrip(b"\r").split(self._delimiter.encode())
        if len(cells) < len(self._columns):
            raise ValueError("too few columns")
        if not self.has_time:
            return line, time
        time = milliseconds(cells[self._time_column].decode())
        time_text = b"%d" % time
        if cells[self._time_column] == time_text:
            return line, time
        cells[self._time_column] = time_text
        return self._delimiter.encode().join(cells), time

    def write(self, fields: Sequence[Any]) -> bytes:
        """See `LineCodec.write`."""
        return self._delimiter.join(map(str, fields)).encode()

    def splitter(self) -> SplitterSettings:
        """See `LineCodec.splitter`."""
        text_format = {"name": "tsv"} if self._delimiter == "\t" else {"name": "csv", "delimiter": self._delimiter}
        return SplitterSettings.model_validate({"format": {**text_format, "columns": self._columns}, **self._fields})


class JsonCodec:
    """A JSON object of a time and a text. A line is such an object, `timestamp TAB text`, or without time the text."""

    def __init__(self, name: str, *, has_time: bool) -> None:
        self._name = name
        self.has_time = has_time
        self._row: Any = msgspec.defstruct("Row", [("timestamp", int | float | str), (name, str)], gc=False)
        self._decode = msgspec.json.Decoder(self._row).decode

    def convert(self, line: bytes, time: int) -> tuple[bytes, int]:
        """See `LineCodec.convert`. Returns an object unchanged if its time is in ms."""
        if line.startswith(b"{"):
            line_time, text = msgspec.structs.astuple(self._decode(line))
            time = milliseconds(line_time)
            if line_time == time:
                return line, time
        elif self.has_time:
            time_text, text, *_ = line.decode().rstrip("\r").split("\t")
            time = milliseconds(time_text)
        else:
            text = line.decode().rstrip("\r")
        return self.write((time, text)), time

    def write(self, fields: Sequence[Any]) -> bytes:
        """See `LineCodec.write`. The fields are time and text."""
        return msgspec.json.encode(self._row(*fields))

    def splitter(self) -> SplitterSettings:
        """See `LineCodec.splitter`. Each record counts 1 for its text."""
        return SplitterSettings.model_validate(
            {"format": "json", "key": {"field": self._name}, "time": {"field": "timestamp"}}
        )


def milliseconds(time: float | str) -> int:
    """Convert a time to ms: s or ms since the epoch, or ISO 8601 (UTC if it has no zone). Raises ValueError."""
    try:
        number = float(time)
    except ValueError:
        moment = datetime.fromisoformat(str(time))
        instant = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
    else:
        instant = number * 1000 if number < SECONDS_BELOW else number
    if not 0 <= instant <= LAST_INSTANT:
        raise ValueError("time is not within bounds")
    return round(instant)
