"""Format: everything that is specific to one format of records. It extracts fields from the values of records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from skewless.algorithms.record_size import DOCUMENT_BYTES
from skewless.errors import ConfigurationError
from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import TIME_OF_DAY, FieldRef, FieldSettings, LimitSettings
from skewless.parsing.fixed_point import Scalar
from skewless.parsing.json_path import ROOT
from skewless.parsing.source_records import SourceRecords
from skewless.schema_registry.cache import SchemaCache
from skewless.schema_registry.schema import SchemaId
from skewless.schema_registry.settings import RegistrySettings
from skewless.settings_base import SettingsModel


class FormatSettings(SettingsModel):
    """Settings of a format. Each format derives its own class."""

    name: str = Field(description="Name of the format.")

    def resolved(self) -> FormatSettings:
        """Return the settings as an object of the format's own class."""
        return self

    def bind(self, registry: RegistrySettings | None) -> str | None:  # noqa: ARG002 - for formats with schemas
        """Set the registry of the pipeline. Returns a problem if the format needs one and there is none."""
        return None


TOO_LONG = f"longer than {DOCUMENT_BYTES} bytes as JSON"
"""Reason of a record that results cannot contain."""
_SMALL_BYTES = DOCUMENT_BYTES // 6
"""A text of fewer bytes is not too long, because JSON has at most 6 bytes for each, as in `\\u0001`."""

Decoder = Callable[[Sequence[bytes | None], Problems], tuple[Sequence[int], list[Any]]]
"""Decodes values: returns the indices of the valid ones with their documents, and adds the others to the problems."""


@dataclass(slots=True)
class ExtractedFields:
    """Unconverted fields of the valid records of a batch."""

    rows: Sequence[int] = range(0)
    """Index in the batch of each valid record, ascending."""
    times: list[Scalar] = field(default_factory=list)
    """One per row. Empty without a time field."""
    keys: list[Scalar] = field(default_factory=list)
    """Empty if the key is not in the value of the record."""
    key_rows: NDArray[np.intp] | None = None
    """Index in `rows` of each key, non-decreasing. None: one key per row."""
    parts: dict[str, list[Scalar]] = field(default_factory=dict)
    """Columns with one entry per row: the parts of a composite key, by the path of their group of settings, and the
    time of day of a time in two fields, by TIME_OF_DAY."""
    values: dict[str, Sequence[Scalar | None]] = field(default_factory=dict)
    """Fields of values by their path (see `value_fields`), each with one entry per key."""
    invalid: Problems = field(default_factory=dict)
    """Reasons of invalid records, by index in the batch."""
    reread: Callable[[str, Sequence[int]], Sequence[Scalar]] | None = None
    """Returns the entries of a value's column (by its path) at these indices, with numbers as text that has all their
    digits. Called for the few doubles that may have lost digits. None: their shortest decimal form counts."""


@dataclass(slots=True)
class OptionalFields:
    """Fields of the readable records of a batch that a record need not have."""

    rows: Sequence[int]
    """Index in the batch of each readable record, ascending."""
    columns: dict[str, list[Any]]
    """One entry per row, by the path of the group of settings: a scalar of JSON, or None if the record has none. An
    object or a list may be any object that is not a scalar."""
    invalid: Problems
    """Reasons of unreadable records, by index in the batch."""


@dataclass(frozen=True, slots=True)
class ParsedBatch:
    """The tuples of a batch of records, in the order of the records.

    `keys`, each of `values`, and `records` have one entry per tuple, `times` has one per record. An invalid record has
    no tuples and no meaningful time. A valid record may have no tuples either, for example one with an empty list of
    keys.
    """

    keys: list[str]
    values: Mapping[str, pa.Array]
    """Values by name. A number is an integer: multiplied by 10 to the power of its `decimals`. A text is an entry of a
    dictionary. Optional values that are missing are null."""
    records: NDArray[np.int32]
    """Index of each tuple's record in the batch, non-decreasing."""
    times: NDArray[np.int64]
    """Event time of each record in milliseconds since the epoch (UTC)."""
    invalid: list[tuple[int, str]]
    """(index, reason) of each invalid record, ascending. A reason must not contain any of the record's payload."""
    filtered: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Indices of the records that do not meet the conditions, ascending. They have no tuples."""
    rounded: int = 0
    """Number of values that have more decimals than their setting keeps, those of invalid records among them."""
    tracebacks: Mapping[int, str] = field(default_factory=dict)
    """Tracebacks of the invalid records for which a function of the user failed, by index."""


@dataclass(frozen=True, slots=True)
class SampledField:
    """A field of sampled records, with its values."""

    reference: FieldRef
    values: list[Scalar]
    share: float
    """Share of the sampled records that have the field."""


@dataclass(frozen=True, slots=True)
class DetectedFormat:
    """Format of the records of a topic."""

    description: str
    settings: dict[str, Any] | None
    """Value of `splitter.format`; None if no format can read the records."""
    fields: list[SampledField] = field(default_factory=list)
    other_share: float = 0.0
    """Share of the sampled values that are not of this format."""
    kinds: dict[str, float] = field(default_factory=dict)
    """Shares of the kinds of the sampled values, if they are not all of one kind."""
    advice: str | None = None
    """How a pipeline can use the topic although no format can read its records, or no setting can name a field."""


class Format(ABC):
    """Base class of the formats. An object extracts fields from the values of records.

    A format has no other place than its class, and its line in the registry (or its entry point of the group
    `skewless.formats`). The docstring of the class is its description in the reference.
    """

    settings: ClassVar[type[FormatSettings]]
    """Settings class of this format."""
    field_names: ClassVar[str] = ""
    """How settings such as `key.field` name a field of a record, for the reference."""
    has_paths: ClassVar[bool] = True
    """Whether fields are nested, so that a field has a path such as `after.id`."""
    kind: ClassVar[str] = ""
    """What `decode` accepts, for reports about topics: `text`. Empty: the name of the format."""
    min_share: ClassVar[float] = 0.9
    """Share of the sampled values of a topic that `decode` has to accept, so that the topic can be of this format."""

    in_json: ClassVar[bool] = False
    """Whether `documents` returns JSON. Otherwise it returns text."""
    has_schemas: ClassVar[bool] = False
    """Whether records have a schema, without which they cannot be read."""
    schemas: SchemaCache[Any] | None = None
    """Schemas of a registry that the format reads records with."""

    @abstractmethod
    def __init__(self, settings: Any, fields: FieldSettings) -> None:
        """Prepare for records with these settings, which `validate` has accepted. May do I/O, as to fetch a schema.

        `settings` is an object of the class `settings`.
        """

    @classmethod
    def validate(cls, settings: Any, fields: FieldSettings) -> Iterator[str]:  # noqa: ARG003 - for subclasses
        """Yield a line `path: problem and remedy` for each setting that does not fit this format."""
        if fields.key.in_value and fields.key.field is None:
            yield f"key.field: missing, set it: {cls.field_names}"

    @classmethod
    def decoder(cls, settings: Any, limits: LimitSettings) -> Decoder | None:  # noqa: ARG003 - for subclasses
        """Return a function that decodes whole values for `splitter.python`; None if the format has none."""
        return None

    def values(self, records: SourceRecords) -> Sequence[bytes | None]:
        """Return what `extract` and `lookup` read of records: their values, as a rule."""
        return records.values

    def keys(self, records: SourceRecords) -> Sequence[bytes | None]:
        """Return what `extract` reads of records whose key has this format: their keys, as a rule."""
        return records.keys

    def schema_ids(self, values: Sequence[bytes | None]) -> frozenset[SchemaId]:  # noqa: ARG002 - for subclasses
        """Return the ids of the schemas in `schemas` that values or keys need."""
        return frozenset()

    @abstractmethod
    def extract(self, values: Sequence[bytes | None]) -> ExtractedFields:
        """Return the required fields of record values. Raises no error for an invalid record.

        Does no I/O, except to fetch schemas that are not in `schemas` yet.

        Each record is read alone, so the result does not depend on the split into batches.
        """

    def documents(self, values: Sequence[bytes | None]) -> tuple[Sequence[bytes], Problems]:
        """Return valid values as results contain them, and the reasons of those that cannot be in one, by index."""
        documents = [value or b"" for value in values]
        if max(map(len, documents), default=0) < _SMALL_BYTES:
            return documents, {}
        invalid: Problems = {row: TOO_LONG for row, document in enumerate(documents) if self._is_too_long(document)}
        for row in invalid:
            documents[row] = b""
        return documents, invalid

    def _is_too_long(self, document: bytes) -> bool:
        is_json = self.in_json or len(document) < _SMALL_BYTES
        return (len(document) if is_json else len(msgspec.json.encode(document.decode()))) > DOCUMENT_BYTES

    @abstractmethod
    def lookup(self, values: Sequence[bytes | None]) -> OptionalFields:
        """Return the optional fields of record values. As `extract`, but a missing field is valid."""

    @classmethod
    def sample(cls, settings: Any, key: str, fields: Sequence[tuple[FieldRef, Any]]) -> bytes:  # noqa: ARG003 - as above
        """Return the value of a record with these fields for the smoke test. `key` is its key, also if no field is."""
        raise ConfigurationError(f"cannot generate records in the format {settings.name}: {cls.__name__} has no sample")

    @classmethod
    def decode(cls, value: bytes) -> Any | None:  # noqa: ARG003 - as above
        """Return a sampled value of a topic as `detect` needs it; None if it cannot be of this format."""
        return None

    @classmethod
    def detect(cls, documents: Sequence[Any]) -> DetectedFormat | None:  # noqa: ARG003 - as above
        """Return the settings and fields of decoded values; None if they are not of this format."""
        return None


def is_part(path: str) -> bool:
    """Return whether a field belongs to `ExtractedFields.parts`."""
    return path.startswith("key.fields.") or path == TIME_OF_DAY


def source_label(path: str, fields: FieldSettings, header: str | None = None) -> str:
    """Return how reasons of dead letters call a field or header: its setting and its name, such as `key field user.id`.

    `path` is the path of its group of settings. A key that is the whole line or record key is called `key`.
    """
    *_, number = path.split(".")
    group = f"key part {fields.key.parts[int(number)]}" if number.isdigit() else path
    if header is not None:
        return f"{group} header {header}"
    field_name = fields.required.get(path, ROOT)
    return group if field_name == ROOT else f"{group} field {field_name}"
