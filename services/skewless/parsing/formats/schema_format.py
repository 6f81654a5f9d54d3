"""Base of the formats whose records have a schema: of a registry, named in each record, or of a file."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr

from skewless.algorithms.record_size import DOCUMENT_BYTES
from skewless.errors import ConfigurationError
from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import FieldSettings
from skewless.parsing.formats.base import TOO_LONG, Format, FormatSettings
from skewless.parsing.prevalidate import sized_values
from skewless.parsing.source_records import SourceRecords, last_header
from skewless.schema_registry.cache import SchemaCache, Unusable
from skewless.schema_registry.schema import KEY_HEADER, VALUE_HEADER, Schema, SchemaId, split_prefix
from skewless.schema_registry.settings import RegistrySettings

log = logging.getLogger(__name__)

NO_SCHEMA_ID = "no schema id: the first byte is neither 0 nor 1"
NUMBER_BYTES = 5
"""Bytes of a prefix with a number: a zero byte, and 32 bits, the highest first."""
GUID_BYTES = 17
"""Bytes of a prefix with a GUID."""

Compiled = TypeVar("Compiled")


class SchemaFormatSettings(FormatSettings):
    """Settings of a format whose records have a schema."""

    schema_: str | None = Field(
        None,
        alias="schema",
        min_length=1,
        description="File of the schema of all records, which then have no schema id. Unset: each record names its "
        "schema in the section `registry`.",
    )
    _registry: RegistrySettings | None = PrivateAttr(None)
    _warnings: set[str] | None = PrivateAttr(default_factory=set)
    """Warnings that are logged already. A process may have several parsers with the same settings. None: log none."""

    @property
    def registry(self) -> RegistrySettings:
        """The registry of the schemas. Raises ConfigurationError if there is none."""
        if self._registry is None:
            raise ConfigurationError(missing_registry(self.name))
        return self._registry

    def bind(self, registry: RegistrySettings | None) -> str | None:
        """Set the registry of the schemas; see `FormatSettings.bind`."""
        self._registry = registry
        return missing_registry(self.name) if registry is None and self.schema_ is None else None

    def silence(self) -> None:
        """Log no warning about a schema, because the settings are only tried out."""
        self._warnings = None

    def warn_once(self, warning: str) -> None:
        """Log a warning about a schema, unless a parser with these settings has logged it."""
        if self._warnings is not None and warning not in self._warnings:
            self._warnings.add(warning)
            log.warning("%s", warning)


def missing_registry(name: str) -> str:
    """Return the message for a format without schemas."""
    return (
        f"schemas are missing for the format {name}: set registry.url to the address of the schema registry, or schema "
        "to a file with the schema of all records"
    )


class TooLongError(ValueError):
    """The JSON of a record is longer than `DOCUMENT_BYTES`."""


@dataclass(frozen=True, slots=True)
class Payloads(Generic[Compiled]):
    """The payloads of the records of a batch that have the same schema."""

    schema: Compiled
    rows: NDArray[np.int64]
    """Index of each record in the batch, ascending."""
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Position of each payload in `data`."""


class SchemaFormat(Format, Generic[Compiled]):
    """Base class of the formats whose records have a schema."""

    settings: ClassVar[type[FormatSettings]] = SchemaFormatSettings
    has_schemas: ClassVar[bool] = True
    in_json: ClassVar[bool] = True
    schema_type: ClassVar[str]
    """Type of the schemas, as a registry names it."""

    def __init__(self, settings: SchemaFormatSettings, fields: FieldSettings) -> None:
        self._limits = fields.limits
        self._warn = settings.warn_once
        self._file_schema: Compiled | None = None
        if settings.schema_ is not None:
            self._file_schema = self.compile_file(FilePath(settings.schema_))
        else:
            self.schemas = self._cache = SchemaCache(settings.registry, self._compiled)

    def compile_file(self, path: FilePath) -> Compiled:
        """Return the compiled schema of a file. Raises ConfigurationError for one that cannot be used."""
        raise ConfigurationError(f"format.schema: {path}: {self.kind} is not read with the schema of a file")

    @abstractmethod
    def compile_schema(self, schema: Schema, label: str) -> Compiled:
        """Return a compiled schema. `label` names it in reasons. Raises ValueError if it is not valid."""

    def _compiled(self, schema_id: SchemaId, schema: Schema) -> Compiled | Unusable:
        if schema.type != self.schema_type:
            return Unusable(f"of type {schema.type}, not {self.schema_type}")
        try:
            return self.compile_schema(schema, f"schema {schema_id}")
        except ValueError:
            return Unusable(f"not a valid schema of type {self.schema_type}")

    def values(self, records: SourceRecords) -> Sequence[bytes | None]:
        """Return the values with the schema ids of their headers as prefix; see `Format.values`."""
        if self._file_schema is not None:
            return records.values
        return with_prefixes(records.values, records, VALUE_HEADER)

    def keys(self, records: SourceRecords) -> Sequence[bytes | None]:
        """Return the keys with the schema ids of their headers as prefix; see `Format.keys`."""
        return with_prefixes(records.keys, records, KEY_HEADER)

    def schema_ids(self, values: Sequence[bytes | None]) -> frozenset[SchemaId]:
        """Return the ids of the schemas of these values; see `Format.schema_ids`."""
        if self._file_schema is not None:
            return frozenset()
        heads = {value[:NUMBER_BYTES] for value in values if value}
        if any(head[0] == 1 for head in heads):
            heads |= {value[:GUID_BYTES] for value in values if value and value[0] == 1}
        return frozenset(found[0] for head in heads if (found := split_prefix(head)) is not None)

    @abstractmethod
    def document(self, schema: Compiled, payload: bytes) -> bytes:
        """Return the payload of a record as JSON. Raises ValueError if it cannot be converted.

        Raises TooLongError if the JSON would be too long, and would take much memory before its length is known.
        """

    def documents(self, values: Sequence[bytes | None]) -> tuple[Sequence[bytes], Problems]:
        """Return each record as JSON; see `Format.documents`."""
        invalid: Problems = {}
        documents = [b""] * len(values)
        for found in self.payloads(values, invalid):
            for row, start, end in zip(found.rows.tolist(), found.starts.tolist(), found.ends.tolist(), strict=True):
                try:
                    document = self.document(found.schema, found.data[start:end].tobytes())
                except TooLongError:
                    invalid[row] = TOO_LONG
                except ValueError:
                    invalid[row] = f"{self.kind} that cannot be converted to JSON"
                else:
                    # One at a time, so that the memory for long ones is free again.
                    if len(document) > DOCUMENT_BYTES:
                        invalid[row] = TOO_LONG
                    else:
                        documents[row] = document
        return documents, invalid

    def payloads(self, values: Sequence[bytes | None], invalid: Problems) -> Iterator[Payloads[Compiled]]:
        """Yield the payloads of each schema, and add the records without a usable schema to `invalid`."""
        sized, joined = sized_values(values, self._limits.record_bytes, invalid)
        lengths = np.fromiter(map(len, sized), np.int64, len(sized))
        ends = np.cumsum(lengths + 1) - 1
        data = np.frombuffer(joined or b"\0", np.uint8)
        starts = ends - lengths
        rows = np.arange(len(sized))
        if invalid:
            rows = np.setdiff1d(rows, np.fromiter(invalid, np.int64, len(invalid)))
        if self._file_schema is not None:
            yield Payloads(self._file_schema, rows, data, starts[rows], ends[rows])
            return
        for schema_id, found, size in _by_schema(data, rows, starts, ends, invalid):
            schema = self._cache.get(schema_id)
            if isinstance(schema, Unusable):
                invalid |= dict.fromkeys(found.tolist(), f"schema {schema_id} is {schema.reason}")
            else:
                yield Payloads(schema, found, data, starts[found] + size, ends[found])


def with_prefixes(values: Sequence[bytes | None], records: SourceRecords, header: str) -> Sequence[bytes | None]:
    """Return values or keys, each with the schema id of its header as prefix."""
    headers = records.headers
    if not any(headers):
        return values
    found = [last_header(of_record, header) for of_record in headers]
    return [
        value if schema_id is None or value is None else schema_id + value
        for value, schema_id in zip(values, found, strict=True)
    ]


def _by_schema(
    data: NDArray[np.uint8],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    invalid: Problems,
) -> Iterable[tuple[SchemaId, NDArray[np.int64], int]]:
    """Yield each schema id with the rows of its records and the bytes of their prefix."""
    long_enough = rows[ends[rows] - starts[rows] >= NUMBER_BYTES]
    numbered = long_enough[data[starts[long_enough]] == 0]
    if len(numbered):
        ids = np.zeros(len(numbered), np.int64)
        for byte in range(1, NUMBER_BYTES):
            ids = ids << 8 | data[starts[numbered] + byte]
        if (ids == ids[0]).all():
            yield int(ids[0]), numbered, NUMBER_BYTES
        else:
            for schema_id in np.unique(ids).tolist():
                yield schema_id, numbered[ids == schema_id], NUMBER_BYTES
    if len(numbered) == len(rows):
        return
    others: dict[SchemaId, list[int]] = {}
    for row in np.setdiff1d(rows, numbered).tolist():
        found = split_prefix(data[starts[row] : ends[row]].tobytes())
        if found is None:
            invalid[row] = NO_SCHEMA_ID
        else:
            others.setdefault(found[0], []).append(row)
    for schema_id, of_schema in others.items():
        yield schema_id, np.array(of_schema, np.int64), GUID_BYTES
