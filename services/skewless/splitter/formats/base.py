"""What every record format takes and gives: values of Kafka records in, columns of tuples out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from skewless.splitter.settings import SplitterSettings


@dataclass(frozen=True, slots=True)
class Parsed:
    """The tuples of a batch of records, in the order of the records.

    `keys`, `values` and `records` have one entry per tuple, `times` one per record. A record that is in `bad` has no
    tuples and no meaningful time; one that is not may still have none (a list of no hashtags).
    """

    keys: list[str]
    values: NDArray[np.int64]
    """Fixed-point: the number times 10 to the power of `value.decimals`."""
    records: NDArray[np.int32]
    """Index of each tuple's record in the batch, non-decreasing."""
    times: NDArray[np.int64]
    """Event time of each record: milliseconds since the epoch, UTC."""
    bad: list[tuple[int, str]]
    """(index of the record, reason), ascending; the reason has none of the record's payload."""


class Format(Protocol):
    """Reads batches of one kind of record."""

    def parse(self, values: Sequence[bytes | None], timestamps: NDArray[np.int64]) -> Parsed:
        """Turn record values, and the records' Kafka timestamps (ms), into tuples. Never raises for what it reads.

        The timestamps are zeros where the settings name a field for the time.

        Every record is judged alone: the result does not depend on how the records were cut into batches.
        """
        ...


class FormatType(Protocol):
    """What the registry and the entry point group `skewless.formats` hold: a class of formats."""

    def __call__(self, settings: SplitterSettings) -> Format:
        """Build the format; the settings have passed `problems`."""
        ...

    def problems(self, settings: SplitterSettings) -> Iterator[str]:
        """Say what in the settings does not fit this format, each as `path: what to do`."""
        ...
