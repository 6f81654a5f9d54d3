"""What every dataset gives: chunks of source records, from options and files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from skewless.datasets.files import count_lines
from skewless.errors import ConfigurationError
from skewless.model import Model
from skewless.splitter.settings import SplitterSettings

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: where event time begins for records that carry none."""
CHUNK = 10_000
"""Records that a generator makes at once; part of what a seed gives, since each chunk draws anew."""
DEFAULT_EVENT_RATE = 1000.0
GENERATED = 1_000_000
"""How many records an endless generator gives unless told otherwise."""

Form = Literal["raw", "json"]
"""A line as its source writes it, or a JSON object."""


class DatasetOptions(Model):
    """What a user may choose about a dataset; each is the command's option of the same name (`form` is `--as`)."""

    input: tuple[Path, ...] = Field((), description="Files to read, in this order.")
    form: Form | None = Field(None, description="Form of the records; each dataset has its default.")
    records: int | None = Field(None, ge=0, description="How many records the run is to have.")
    seed: int = Field(1, ge=0, description="Seed of generated records.")
    event_rate: float | None = Field(
        None, gt=0, le=1e9, description="Records per second of event time, where records carry no time of their own."
    )
    rate: float | None = Field(None, gt=0, le=1e9, description="Most records per second.")
    skew: float = Field(80.0, ge=0, le=100, description="Percentage of records that are the hot country.")
    z: float = Field(1.1, ge=0, le=10, description="Exponent of the Zipf distribution; 0 is uniform.")
    mu: float = Field(1.789, ge=-10, le=10, description="Mean of the logarithm of a log-normal distribution.")
    sigma: float = Field(2.366, ge=0, le=5, description="Standard deviation of that logarithm.")
    keys: int = Field(50_000, ge=1, le=2_000_000, description="Number of distinct keys.")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records: raw values, and event times in ms since the epoch, which become the Kafka timestamps."""

    values: list[bytes]
    times: NDArray[np.int64]


Source = Callable[[DatasetOptions], Iterator[Chunk]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset: how its records are made or read, and the splitter settings that read them from a topic."""

    summary: str
    forms: Mapping[Form, Callable[[], SplitterSettings]]
    """Splitter settings by form of the records; the first form is the default."""
    read: Source | None = None
    """From the files of `input` to their end; None: it reads no files."""
    generate: Source | None = None
    """Without files; None: it needs them. `form` is set in the options of both."""
    generated: int | None = GENERATED
    """How many records are generated unless told otherwise; None: all there are."""
    published: str | None = None
    """Its name in the published evaluation of dynamic key grouping, which is taken too."""

    @property
    def records(self) -> int | None:
        """How many records a run has that names neither their number nor files; None: all there are."""
        return None if self.read else self.generated

    def form(self, options: DatasetOptions) -> Form:
        """Give the form of the records; raises ConfigurationError when the dataset does not have the one chosen."""
        default, *_ = self.forms
        if options.form not in {None, *self.forms}:
            raise ConfigurationError(f"--as {options.form}: this dataset has {default} alone, leave the option out")
        return options.form or default

    def splitter(self, form: Form | None = None) -> SplitterSettings:
        """Give the splitter settings that read the records."""
        return self.forms[self.form(DatasetOptions(form=form))]()

    def chunks(self, options: DatasetOptions) -> Iterator[Chunk]:
        """Read the files, or generate without end where none are given.

        Raises ConfigurationError when the options do not fit the dataset.
        """
        chosen = options.model_copy(update={"form": self.form(options)})
        if options.input:
            if self.read is None:
                raise ConfigurationError("--input: this dataset reads no files")
            return self.read(chosen)
        if self.generate is None:
            raise ConfigurationError("--input: missing, this dataset reads files: name them")
        return self.generate(chosen)

    def total(self, options: DatasetOptions) -> int | None:
        """Say how many records there will be at most, as chosen or else as there are; None when that is not known.

        Files are read for it, to their end.
        """
        if options.records is not None:
            return options.records
        return sum(map(count_lines, options.input)) if options.input else self.generated


@dataclass(frozen=True, slots=True)
class FixedRate:
    """Event time that goes on by the same step with each record."""

    rate: float
    """Records per second of event time."""
    start_ms: int = START_MS

    @classmethod
    def of(cls, options: DatasetOptions, default: float = DEFAULT_EVENT_RATE) -> FixedRate:
        """Take the event rate, else the rate of sending, else `default`."""
        return cls(options.event_rate or options.rate or default)

    def times(self, first: int, count: int) -> NDArray[np.int64]:
        """Give the times (ms) of records number `first` to `first + count - 1`."""
        steps = np.arange(first, first + count, dtype=np.float64) * 1000 / self.rate
        return self.start_ms + steps.astype(np.int64)


def take(chunks: Iterator[Chunk], records: int | None) -> Iterator[Chunk]:
    """Cut a dataset after `records` records; None takes all."""
    if records is None:
        yield from chunks
        return
    left = records
    while left > 0 and (chunk := next(chunks, None)) is not None:
        yield chunk if len(chunk.values) <= left else Chunk(chunk.values[:left], chunk.times[:left])
        left -= len(chunk.values)
