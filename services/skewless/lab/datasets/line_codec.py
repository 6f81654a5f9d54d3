"""Codecs of recorded lines: they read a line in either encoding, write it in either, and have its splitter settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from skewless.lab.datasets.base import Encoding
from skewless.parsing.converters import LAST_INSTANT
from skewless.stages.splitter.settings import SplitterSettings

SECONDS_BELOW = 100_000_000_000
"""Smaller numbers are seconds (up to the year 5138), larger ones milliseconds (from 1973 on)."""


class LineCodec(Protocol):
    """Format of a dataset's lines."""

    has_time: bool
    """True if the lines contain their event time."""

    def convert(self, line: bytes, encoding: Encoding, time: int) -> tuple[bytes, int]:
        """Convert a line of either encoding into a record of `encoding` and return the record and its time (ms).

        The record has its time in ms. Lines without a time get `time`. Raises ValueError or msgspec.DecodeError for a
        malformed line.
        """
        ...

    def write(self, fields: Sequence[Any], encoding: Encoding) -> bytes:
        """Encode a record."""
        ...

    def splitter(self, encoding: Encoding) -> SplitterSettings:
        """Return the splitter settings that parse the records."""
        ...


class DelimitedCodec:
    """Fields separated by a delimiter (raw), or a JSON object with the same names.

    Columns after the named ones are kept in raw lines and dropped from JSON.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        delimiter: str,
        *,
        key: str | Mapping[str, Any],
        value: str | None = None,
        time: str | None = None,
    ) -> None:
        self._names = list(columns)
        self._types = list(columns.values())
        self._delimiter = delimiter
        self._delimiter_bytes = delimiter.encode()
        self._time_column = self._names.index(time) if time else -1
        self._splitter: dict[str, Any] = {"key": {"field": key} if isinstance(key, str) else dict(key)}
        if value:
            self._splitter["value"] = {"field": value}
        if time:
            self._splitter["time"] = {"field": time}
        self.has_time = time is not None
        json_types = [int | float | str if name == time else column_type for name, column_type in columns.items()]
        self._row: Any = msgspec.defstruct("Row", list(zip(self._names, json_types, strict=True)), gc=False)
        self._decode = msgspec.json.Decoder(self._row).decode
        self._encode = msgspec.json.Encoder().encode

    def convert(self, line: bytes, encoding: Encoding, time: int) -> tuple[bytes, int]:
        """See `LineCodec.convert`. Returns a line unchanged if it has this encoding and its time is in ms."""
        if line.startswith(b"{"):
            fields = list(msgspec.structs.astuple(self._decode(line)))
            if encoding == "json":
                if not self.has_time:
                    return line, time
                if fields[self._time_column] == milliseconds(fields[self._time_column]):
                    return line, fields[self._time_column]
        else:
            cells = line.rstrip(b"\r").split(self._delimiter_bytes)
            if len(cells) < len(self._names):
                raise ValueError("too few columns")
            if encoding == "raw":
                return self._convert_raw(line, cells, time)
            fields = [
                cell.decode() if column == self._time_column else column_type(cell.decode())
                for column, (column_type, cell) in enumerate(zip(self._types, cells, strict=False))
            ]
        if self.has_time:
            time = fields[self._time_column] = milliseconds(fields[self._time_column])
        return self.write(fields, encoding), time

    def write(self, fields: Sequence[Any], encoding: Encoding) -> bytes:
        """See `LineCodec.write`. Raises ValueError if a field contains the delimiter."""
        if encoding == "json":
            encoded: bytes = self._encode(self._row(*fields))
            return encoded
        line = self._delimiter.join(map(str, fields))
        if line.count(self._delimiter) >= len(fields):
            raise ValueError("a field contains the delimiter")
        return line.encode()

    def splitter(self, encoding: Encoding) -> SplitterSettings:
        """See `LineCodec.splitter`."""
        if encoding == "json":
            return SplitterSettings.model_validate({"format": "json", **self._splitter})
        text_format: dict[str, Any] = {"name": "csv", "delimiter": self._delimiter}
        if self._delimiter == "\t":
            text_format = {"name": "tsv"}
        return SplitterSettings.model_validate({"format": text_format | {"columns": self._names}, **self._splitter})

    def _convert_raw(self, line: bytes, cells: list[bytes], time: int) -> tuple[bytes, int]:
        if not self.has_time:
            return line, time
        time = milliseconds(cells[self._time_column].decode())
        time_text = b"%d" % time
        if cells[self._time_column] == time_text:
            return line, time
        cells[self._time_column] = time_text
        return self._delimiter_bytes.join(cells), time


def milliseconds(time: float | str) -> int:
    """Convert a time to ms: s or ms since the epoch, or ISO 8601 (UTC if it has no zone). Raises ValueError."""
    if isinstance(time, str):
        if not time.isdigit():
            moment = datetime.fromisoformat(time)
            return milliseconds((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
        time = int(time)
    instant = round(time * 1000) if time < SECONDS_BELOW else int(time)
    if not 0 <= instant <= LAST_INSTANT:
        raise ValueError("time is not within bounds")
    return instant
