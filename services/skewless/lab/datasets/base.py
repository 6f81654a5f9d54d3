"""Base of all datasets: their options, and batches of source records that depend only on the options and the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from skewless.errors import ConfigurationError
from skewless.lab.datasets.data_files import count_lines
from skewless.settings_base import SettingsModel
from skewless.stages.splitter.settings import SplitterSettings

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: start of event time for records without a time of their own."""
BATCH_RECORDS = 10_000
"""Records per generated batch. The size affects the records of a seed, because each batch draws its own arrays."""
DEFAULT_EVENT_RATE = 1000.0
GENERATED_RECORDS = 1_000_000
"""Default number of records of an endless generator."""
COMMON_OPTIONS = frozenset({"input", "records", "event_rate", "rate", "seed"})
"""Options that generated and recorded records have. Scripts that call each data set may give a seed to all of them."""


class DatasetOptions(SettingsModel):
    """Options of a dataset: options of `skewless produce`."""

    input: tuple[Path, ...] = Field((), description="Files to read, in this order.")
    records: int | None = Field(None, ge=0, description="Number of records of the run.")
    seed: int = Field(1, ge=0, description="Seed of generated records.")
    event_rate: float | None = Field(
        None, ge=0.001, le=1e9, description="Records per second of event time, for records without a time of their own."
    )
    rate: float | None = Field(None, ge=0.001, le=1e9, description="Maximum records per second.")
    skew: float = Field(80.0, ge=0, le=100, description="Percentage of records with the hot country.")
    zipf_exponent: float = Field(1.1, ge=0, le=10, description="Exponent of the Zipf distribution; 0 is uniform.")
    mu: float = Field(1.789, ge=-10, le=10, description="Mean of the logarithm of a log-normal distribution.")
    sigma: float = Field(2.366, ge=0, le=5, description="Standard deviation of that logarithm.")
    keys: int = Field(50_000, ge=1, le=2_000_000, description="Number of distinct keys.")
    matched: float = Field(0.9, ge=0, le=1, description="Share of the impressions that have a click.")
    delay_ms: float = Field(300.0, ge=0, le=1e9, description="Mean time from an impression to its click.")
    disorder_ms: int = Field(0, ge=0, le=10**9, description="Largest time by which a record is older than an earlier.")
    duplicates: float = Field(0.0, ge=0, le=1, description="Share of the records that are sent twice.")
    missing: float = Field(0.0, ge=0, le=1, description="Share of the records that are not sent.")


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Consecutive records: raw values, and event times (ms since the epoch), which become the Kafka timestamps."""

    values: list[bytes]
    times: NDArray[np.int64]
    keys: list[bytes] | None = None
    """Keys of records that belong to the partition of their key. None: the partition is that of their position."""

    def part(self, first: int, end: int) -> RecordBatch:
        """Return the records from `first` to `end` (exclusive)."""
        keys = None if self.keys is None else self.keys[first:end]
        return RecordBatch(self.values[first:end], self.times[first:end], keys)


Source = Callable[[DatasetOptions], Iterator[RecordBatch]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset: the functions that read or generate its records, and the splitter settings that parse them."""

    summary: str
    splitter: Callable[[], SplitterSettings]
    """Returns the splitter settings that parse the records."""
    read: Source | None = None
    """Reads the files of `input` to their end. None: the dataset reads no files."""
    generate: Source | None = None
    """Generates records without files. None: the dataset needs files."""
    generated_records: int | None = GENERATED_RECORDS
    """Default number of generated records; None: all that exist."""
    options: frozenset[str] = frozenset()
    """Options of its generator, in addition to `COMMON_OPTIONS`."""
    keys: Callable[[list[bytes]], list[bytes]] | None = None
    """Returns the key of each record. None: the records have no keys. Records with keys are a stream of a pair: for
    them `generate` takes `records` as the number of impressions, and ends by itself."""
    alias: str | None = None
    """Name in the published evaluation of dynamic key grouping, which is accepted too."""

    def batches(self, options: DatasetOptions) -> Iterator[RecordBatch]:
        """Read the files, or generate an endless stream if `input` is empty.

        Raises ConfigurationError when the options do not fit the dataset.
        """
        if options.input:
            if self.read is None:
                raise ConfigurationError("--input: this dataset reads no files")
            self._check_options(options, COMMON_OPTIONS, "files")
            return self._with_keys(self.read(options))
        if self.generate is None:
            raise ConfigurationError("--input: missing; this dataset needs files: name them")
        self._check_options(options, COMMON_OPTIONS | self.options, "generated records of this dataset")
        return self._with_keys(self.generate(options))

    @staticmethod
    def _check_options(options: DatasetOptions, accepted: frozenset[str], records: str) -> None:
        others = sorted(options.model_fields_set - accepted)
        if others:
            raise ConfigurationError(*(f"--{name.replace('_', '-')}: has no effect on {records}" for name in others))

    def _with_keys(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        if self.keys is None:
            return batches
        keys = self.keys
        return (RecordBatch(batch.values, batch.times, keys(batch.values)) for batch in batches)

    def total(self, options: DatasetOptions) -> int | None:
        """Return the maximum number of records: the option, the lines of the files, or the default. None: unknown.

        Counting the lines reads the files to their end.
        """
        if self.keys is not None and not options.input:
            return None
        if options.records is not None:
            return options.records
        return sum(map(count_lines, options.input)) if options.input else self.generated_records


@dataclass(frozen=True, slots=True)
class FixedRate:
    """Event time that advances by the same step with each record."""

    rate: float
    """Records per second of event time."""
    start_ms: int = START_MS

    @classmethod
    def of(cls, options: DatasetOptions, default: float = DEFAULT_EVENT_RATE) -> FixedRate:
        """Use the event rate if it is set, else the send rate, else `default`."""
        return cls(options.event_rate or options.rate or default)

    def times(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the event times (ms) of the records with the indices `first` to `first + count - 1`."""
        steps = np.arange(first, first + count, dtype=np.float64) * 1000 / self.rate
        return self.start_ms + steps.astype(np.int64)


def take(batches: Iterator[RecordBatch], records: int | None) -> Iterator[RecordBatch]:
    """Yield the first `records` records; None yields all."""
    if records is None:
        yield from batches
        return
    remaining = records
    while remaining > 0 and (batch := next(batches, None)) is not None:
        if len(batch.values) <= remaining:
            yield batch
        else:
            yield batch.part(0, remaining)
        remaining -= len(batch.values)
