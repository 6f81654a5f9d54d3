"""What every dataset gives: chunks of raw source records, from options and files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from skewless.model import Model
from skewless.splitter.settings import SplitterSettings

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: where event time begins for records that carry none."""
CHUNK = 10_000
"""Records that a generator makes at once; part of what a seed gives, since each chunk draws anew."""
DEFAULT_EVENT_RATE = 1000.0


class DatasetOptions(Model):
    """What a user may choose about a dataset; each is the command's option of the same name."""

    input: tuple[Path, ...] = Field((), description="Files to read, in this order.")
    seed: int = Field(1, ge=0, description="Seed of generated records.")
    event_rate: float | None = Field(
        None, gt=0, le=1e9, description="Records per second of event time, where records carry no time of their own."
    )
    rate: float | None = Field(None, gt=0, le=1e9, description="Most records per second.")
    skew: float = Field(80.0, ge=0, le=100, description="Percentage of records that are the hot country.")
    z: float = Field(1.1, ge=0, le=10, description="Exponent of the Zipf distribution; 0 is uniform.")
    keys: int = Field(50_000, ge=1, le=2_000_000, description="Number of distinct keys.")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records: raw values, and event times in ms since the epoch, which become the Kafka timestamps."""

    values: list[bytes]
    times: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset: how its records are made, and the splitter settings that read them."""

    summary: str
    chunks: Callable[[DatasetOptions], Iterator[Chunk]]
    """Endless for generators, to the end of the files otherwise."""
    splitter: Callable[[], SplitterSettings]
    reads_files: bool = False
    """Whether it needs `input`."""
    records: int | None = None
    """How many records a run has unless told otherwise; None: all there are."""


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
