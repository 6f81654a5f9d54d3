"""Plain text: the whole record is the key's field, or, with a pattern, the text that its keys are found in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from skewless.splitter.formats.base import Parsed
from skewless.splitter.formats.columns import Columns, Converter
from skewless.splitter.formats.lines import Lines, no_columns

if TYPE_CHECKING:
    from skewless.splitter.settings import SplitterSettings


class Text:
    """Reads a record as one UTF-8 line; a line end at its end is no part of it."""

    def __init__(self, settings: SplitterSettings) -> None:
        self._lines = Lines(settings.limits)
        self._converter = Converter(settings)

    @staticmethod
    def problems(settings: SplitterSettings) -> Iterator[str]:
        """Say which settings make no sense where there is only one field."""
        yield from no_columns(settings)
        for name, part in (("key", settings.key), ("value", settings.value), ("time", settings.time)):
            if part.field is not None:
                yield f"{name}.field: text has no fields, remove it (or choose csv or tsv)"

    def parse(self, values: Sequence[bytes | None], timestamps: NDArray[np.int64]) -> Parsed:
        """Read each record's line; see `Format.parse`."""
        columns = Columns()
        columns.rows, lines = self._lines.read(values, columns.bad)
        columns.keys.extend(lines)
        return self._converter.convert(columns, timestamps)
