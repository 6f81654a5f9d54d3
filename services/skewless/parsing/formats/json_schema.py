"""Format json_schema: one JSON document per record, with the schema id of a registry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import FieldSettings
from skewless.parsing.formats.base import ExtractedFields, FormatSettings, OptionalFields
from skewless.parsing.formats.json import Json, JsonSettings
from skewless.parsing.formats.schema_format import SchemaFormat, SchemaFormatSettings
from skewless.schema_registry.schema import Schema
from skewless.settings_base import InvalidSettingsError


class JsonSchemaSettings(SchemaFormatSettings):
    """Settings of the format json_schema."""

    name: Literal["json_schema"] = "json_schema"

    @model_validator(mode="after")
    def _has_a_registry(self) -> Self:
        if self.schema_ is not None:
            raise InvalidSettingsError("schema: records without a schema id are read with the format json")
        return self


class JsonSchema(SchemaFormat[Schema]):
    """One JSON object per record, in Confluent's wire format.

    The schema must exist in the registry. Fields are read and checked as in the format json.
    """

    settings: ClassVar[type[FormatSettings]] = JsonSchemaSettings
    field_names: ClassVar[str] = Json.field_names
    kind: ClassVar[str] = "JSON with a schema id"
    schema_type: ClassVar[str] = "JSON"

    def __init__(self, settings: JsonSchemaSettings, fields: FieldSettings) -> None:
        super().__init__(settings, fields)
        self._json = Json(JsonSettings(), fields)

    @classmethod
    def validate(cls, _settings: JsonSchemaSettings, fields: FieldSettings) -> Iterator[str]:
        """Return a line for each field that is missing or not a path, as the format json does."""
        return Json.validate(JsonSettings(), fields)

    def compile_schema(self, schema: Schema, label: str) -> Schema:  # noqa: ARG002 - there is nothing to refuse
        """Return the schema. Records are not validated with it, because their fields are."""
        return schema

    def document(self, schema: Schema, payload: bytes) -> bytes:  # noqa: ARG002 - not needed
        """Return the payload, which is JSON; see `SchemaFormat.document`."""
        return payload

    def extract(self, values: Sequence[bytes | None]) -> ExtractedFields:
        """Read each record's fields; see `Format.extract`."""
        contents, invalid = self._contents(values)
        fields = self._json.extract(contents)
        fields.invalid |= invalid
        return fields

    def lookup(self, values: Sequence[bytes | None]) -> OptionalFields:
        """Read the fields that exist; see `Format.lookup`."""
        contents, invalid = self._contents(values)
        fields = self._json.lookup(contents)
        fields.invalid |= invalid
        return fields

    def _contents(self, values: Sequence[bytes | None]) -> tuple[list[bytes | None], Problems]:
        """Return the documents without their prefixes, and the reasons for records without a usable schema."""
        invalid: Problems = {}
        contents: list[bytes | None] = [None] * len(values)
        for payloads in self.payloads(values, invalid):
            for row, size in zip(payloads.rows.tolist(), (payloads.ends - payloads.starts).tolist(), strict=True):
                value = values[row] or b""
                contents[row] = value[len(value) - size :]
        return contents, invalid
