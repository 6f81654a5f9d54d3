"""Format text: the whole record is the key field. With `key.pattern`, the keys are the matches in this text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import FieldRef, FieldSettings, LimitSettings
from skewless.parsing.formats.base import (
    Decoder,
    DetectedFormat,
    ExtractedFields,
    Format,
    FormatSettings,
    OptionalFields,
)
from skewless.parsing.json_path import field_setting
from skewless.parsing.line_decoder import LineDecoder, line_of


class TextSettings(FormatSettings):
    """Settings of the format text, which has no options."""

    name: Literal["text"] = "text"


class Text(Format):
    """Each record is one line of UTF-8 text, without its line end."""

    settings: ClassVar[type[FormatSettings]] = TextSettings
    field_names: ClassVar[str] = "not set, the only field is the whole line"
    has_paths: ClassVar[bool] = False
    kind: ClassVar[str] = "text"
    decode = staticmethod(line_of)

    def __init__(self, _settings: TextSettings, fields: FieldSettings) -> None:
        self._lines = LineDecoder(fields.limits)

    @classmethod
    def validate(cls, _settings: TextSettings, fields: FieldSettings) -> Iterator[str]:
        """Yield a line for each field that is set, because text has no fields."""
        for path in {**fields.required, **fields.optional}:
            yield f"{field_setting(path)}: text has no fields, remove it (or choose csv or tsv)"

    @classmethod
    def decoder(cls, _settings: TextSettings, limits: LimitSettings) -> Decoder:
        """Return a function that decodes lines as `str`; see `Format.decoder`."""
        return LineDecoder(limits).read

    def extract(self, values: Sequence[bytes | None]) -> ExtractedFields:
        """Read the line of each record; see `Format.extract`."""
        extracted = ExtractedFields()
        extracted.rows, lines = self._lines.read(values, extracted.invalid)
        extracted.keys.extend(lines)
        return extracted

    def lookup(self, values: Sequence[bytes | None]) -> OptionalFields:
        """Check that the records are readable; see `Format.lookup`. Text has no fields."""
        invalid: Problems = {}
        rows, _ = self._lines.read(values, invalid)
        return OptionalFields(rows, {}, invalid)

    @classmethod
    def sample(cls, _settings: TextSettings, key: str, _fields: Sequence[tuple[FieldRef, Any]]) -> bytes:
        """Return the key as a line; see `Format.sample`."""
        return key.encode()

    @classmethod
    def detect(cls, _lines: Sequence[str]) -> DetectedFormat:
        """Accept any lines; see `Format.detect`."""
        return DetectedFormat("text", {"name": "text"})
