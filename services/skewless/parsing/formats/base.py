"""Interface of a record format, which converts values of Kafka records to columns of tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from skewless.parsing.field_settings import FieldSettings
from skewless.settings_base import SettingsModel


class FormatSettings(SettingsModel):
    """Settings of a format. Each format derives its own class."""

    name: str = Field(description="json, csv, tsv, text, or the name of a format that a package adds.")

    def resolved(self) -> FormatSettings:
        """Return the settings as an object of the format's own class."""
        return self


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


class Format(Protocol):
    """Parses batches of records of one format."""

    def parse(self, values: Sequence[bytes | None], timestamps: NDArray[np.int64]) -> ParsedBatch:
        """Return the tuples of record values. Raises no error for an invalid record, and does no I/O.

        `timestamps` are the Kafka timestamps of the records in ms, or zeros if the settings have a field for the time.
        Each record is parsed alone, so the result does not depend on the split into batches.
        """
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
