"""Format text: the whole record is the key field. With `key.pattern`, the keys are the matches in this text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from skewless.parsing.field_settings import FieldSettings, value_fields
from skewless.parsing.formats.base import FormatSettings, ParsedBatch
from skewless.parsing.json_path import field_setting
from skewless.parsing.line_decoder import LineDecoder
from skewless.parsing.tuple_builder import ExtractedFields, TupleBuilder


class TextSettings(FormatSettings):
    """Settings of the format text, which has no options."""

    name: Literal["text"] = "text"


class Text:
    """Reads each record as one line of UTF-8 text, without its line end."""

    settings: ClassVar[type[FormatSettings]] = TextSettings

    def __init__(self, fields: FieldSettings) -> None:
        self._lines = LineDecoder(fields.limits)
        self._converter = TupleBuilder(fields)

    @classmethod
    def open(cls, _settings: TextSettings, fields: FieldSettings) -> Self:
        """See `FormatType.open`."""
        return cls(fields)

    @staticmethod
    def validate(_settings: TextSettings, fields: FieldSettings) -> Iterator[str]:
        """Yield a line for each field that is set, because text has no fields."""
        values = {name: reference for name, (_, reference) in value_fields(fields).items()}
        for name, reference in {"key": fields.key.field, **values, "time": fields.time.field}.items():
            if reference is not None:
                yield f"{field_setting(name)}: text has no fields, remove it (or choose csv or tsv)"

    def parse(self, values: Sequence[bytes | None], timestamps: NDArray[np.int64]) -> ParsedBatch:
        """Parse the line of each record; see `Format.parse`."""
        columns = ExtractedFields()
        columns.rows, lines = self._lines.read(values, columns.invalid)
        columns.keys.extend(lines)
        return self._converter.convert(columns, timestamps)
