"""Interface of a record format, which extracts the fields of the values of Kafka records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import TIME_OF_DAY, FieldSettings
from skewless.parsing.fixed_point import Scalar
from skewless.settings_base import SettingsModel


class FormatSettings(SettingsModel):
    """Settings of a format. Each format derives its own class."""

    name: str = Field(description="json, csv, tsv, text, or the name of a format that a package adds.")

    def resolved(self) -> FormatSettings:
        """Return the settings as an object of the format's own class."""
        return self


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


class Format(Protocol):
    """Extracts fields from the values of records of one format."""

    def extract(self, values: Sequence[bytes | None]) -> ExtractedFields:
        """Return the required fields of record values. Raises no error for an invalid record, and does no I/O.

        Each record is read alone, so the result does not depend on the split into batches.
        """
        ...

    def lookup(self, values: Sequence[bytes | None]) -> OptionalFields:
        """Return the optional fields of record values. As `extract`, but a missing field is valid."""
        ...


class FormatType(Protocol):
    """Class of a format: an entry of the registry, or of the entry point group `skewless.formats`."""

    settings: type[FormatSettings]
    """Settings class of this format."""

    def open(self, settings: Any, fields: FieldSettings) -> Format:
        """Return a format with these settings. May do I/O, for example to fetch a schema.

        `settings` is an object of the class `settings`. `validate` has accepted both arguments.
        """
        ...

    def validate(self, settings: Any, fields: FieldSettings) -> Iterator[str]:
        """Yield a line `path: problem and remedy` for each setting that does not fit this format."""
        ...


def is_part(path: str) -> bool:
    """Return whether a field belongs to `ExtractedFields.parts`."""
    return path.startswith("key.fields.") or path == TIME_OF_DAY


def part_or_group(path: str, fields: FieldSettings) -> str:
    """Return how reasons of dead letters call a field: its path, such as `key`, or a part of a composite key."""
    *_, number = path.split(".")
    return f"key part {fields.key.parts[int(number)]}" if number.isdigit() else path
