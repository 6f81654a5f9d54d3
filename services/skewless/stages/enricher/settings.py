"""Settings of the enrichment of a topic with fields of compacted topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from skewless.parsing.field_settings import FieldRef, KeySettings, LimitSettings, ValueSettings
from skewless.parsing.formats.json import JsonSettings
from skewless.parsing.join_side_settings import JoinIdSettings
from skewless.parsing.json_path import LIST
from skewless.parsing.settings import FormatChoice, ParsingSettings
from skewless.schema_registry.settings import RegistrySettings
from skewless.settings_base import InvalidSettingsError, SettingsModel, TopicName

AddedHeader = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", max_length=100)]


class _TextParsing(ParsingSettings):
    """Settings of a parser of texts, each of which can also be read alone."""

    @property
    def optional(self) -> dict[str, FieldRef]:
        return self.required


class TableKeySettings(JoinIdSettings):
    """Settings of the key by which a record finds its row: one of `from`, `field` and `header` names its source."""


class TableSettings(SettingsModel):
    """Settings of a table: a compacted topic with one row per record key."""

    topic: TopicName = Field(description="Compacted topic with the rows. A record without a value deletes its row.")
    format: FormatChoice = JsonSettings()
    encoding: Literal["utf8", "int64", "int32"] = Field(
        "utf8",
        description="Encoding of the record keys of this topic, as `splitter.key.encoding`, and of those of "
        "`enrich.topic` with `key: {from: record_key}`.",
    )
    key: TableKeySettings = Field(
        TableKeySettings.model_validate({"from": "record_key"}),
        description="Where a record of `enrich.topic` has the key of its row. Both are compared as texts.",
    )
    fields: dict[AddedHeader, FieldRef] = Field(
        min_length=1,
        max_length=32,
        description="Fields that are added to each record, as headers: {country: geo.country} adds the header "
        "`country` with the text of the row's field. Other settings name it, as in `splitter.key: {header: country}`.",
    )
    missing: Literal["dead_letter", "keep"] = Field(
        "dead_letter",
        description="What becomes of a record without a row, or whose row lacks a field. dead_letter: it is invalid. "
        "keep: it is passed on, with `default` as the text of each missing field.",
    )
    default: str | None = Field(
        None,
        max_length=1000,
        description="With `missing: keep` only: text of a missing field. null: the record does not get the header.",
    )

    @property
    def rows(self) -> ParsingSettings:
        """Settings of the parser of the rows: a text for each field."""
        return _parsing(self.format, {name: ValueSettings(field=field) for name, field in self.fields.items()})

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [
            f"fields.{name}: must not contain a list: a row has one text per field"
            for name, reference in self.fields.items()
            if isinstance(reference, str) and LIST in reference
        ]
        for line in [] if problems else self.rows.format_problems():
            of_field = line.startswith("values.")
            problems.append(f"fields.{line.removeprefix('values.').replace('.field:', ':', 1)}" if of_field else line)
        if self.default is not None and self.missing != "keep":
            problems.append("default: only with missing: keep; remove one of the two")
        if self.key.from_ is self.key.field is self.key.header is None:
            problems.append("key: missing; set one of from, field and header")
        if problems:
            raise InvalidSettingsError(*problems)
        return self


class EnrichSettings(SettingsModel):
    """Settings of the enrichment of a topic: each record gets fields of its rows in one or more tables."""

    topic: TopicName = Field(description="Topic of the records.")
    format: FormatChoice = JsonSettings()
    tables: Annotated[tuple[TableSettings, ...], Field(min_length=1, max_length=16)] = Field(
        description="Tables of which the records get fields."
    )
    limits: LimitSettings = LimitSettings()

    @property
    def records(self) -> ParsingSettings:
        """Settings of the parser of the records: a text for each key of a table that is not the record key."""
        keys = {
            f"tables.{number}.key": ValueSettings(field=table.key.field, header=table.key.header)
            for number, table in enumerate(self.tables)
            if table.key.from_ is None
        }
        return _parsing(self.format, keys, self.limits)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [line.removeprefix("values.") for line in self.records.format_problems()]
        topics, headers = {self.topic: "topic"}, dict[str, str]()
        for number, table in enumerate(self.tables):
            path = f"tables.{number}"
            if table.topic in topics:
                problems.append(f"{path}.topic: is {table.topic}, like {topics[table.topic]}; name another topic")
            if added_by := headers.get(table.key.header or ""):
                problems.append(
                    f"{path}.key.header: {added_by} adds this header, but a key is in the record before; name another "
                    "one, or let a second pipeline enrich the records of this one"
                )
            problems += [
                f"{path}.fields.{name}: {headers[name]} has this name too; choose another one"
                for name in table.fields
                if name in headers
            ]
            topics[table.topic] = f"{path}.topic"
            headers |= dict.fromkeys(table.fields, f"{path}.fields")
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    def bind(self, registry: RegistrySettings | None) -> Iterator[str]:
        """Give the registry to the formats, and yield a line for each one whose schemas are missing."""
        parsed = {"": self.records, **{f"tables.{number}.": table.rows for number, table in enumerate(self.tables)}}
        for path, settings in parsed.items():
            yield from (f"{path}{problem}" for problem in settings.bind(registry))


def _parsing(
    format_: FormatChoice, values: Mapping[str, ValueSettings], limits: LimitSettings | None = None
) -> ParsingSettings:
    """Return the settings of a parser of texts, each of which a record may lack."""
    texts = {name: value.model_copy(update={"kind": "text", "missing": "skip"}) for name, value in values.items()}
    # Each record has this key, so only its texts decide whether it is valid.
    key = KeySettings.model_validate({"from": "partition"})
    return _TextParsing.model_construct(format=format_, key=key, values=texts, limits=limits or LimitSettings())
