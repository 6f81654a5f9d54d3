"""Tuples of source partitions as blocks: one row holds some thousands of tuples in order, with dictionary-encoded keys.

Blocks carry tuples from parsing to the simulated groupings, several times over, at a few bytes per tuple and without a
row per tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.watermark import WatermarkGenerator
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import SourceRecords
from skewless.parsing.validation import EventTimeRules, RecordClassification, classify
from skewless.wire.columns import write_table

TUPLES = 20_000
"""Tuples of a block; the last one of a partition has fewer. A router under load gets about as many at once."""
SCHEMA = pa.schema([("key", pa.dictionary(pa.int32(), pa.string())), ("time", pa.int64())])


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How records become tuples."""

    splitter: ParsingSettings
    rules: EventTimeRules
    """Tuples that are late or have an invalid time are left out, as the splitter does."""
    offset_ranges: Mapping[int, tuple[int, int]]
    """By source partition: first offset (inclusive) and end offset (exclusive)."""
    now: int
    """Wall-clock time in ms, used to detect timestamps too far in the future."""

    def progress(self, partition: int, offset: int) -> float:
        """Return the position of an offset in its partition's offset range, 0 to 1."""
        first, end = self.offset_ranges[partition]
        return (offset - first) / max(1, end - first)


class Block(NamedTuple):
    """A block of tuples of one source partition."""

    partition: int
    progress: float
    """Position of the first tuple's record in its partition's offset range, 0 to 1; 1 without tuples."""
    block: bytes
    """The tuples; see `decode_block`."""
    tuples: int
    late: int
    """Late tuples that were read since the previous block of the partition."""
    bad: int
    """Invalid records that were read since then."""


@dataclass(slots=True)
class _Partition:
    """The tuples of one source partition since its last block, and its watermark."""

    watermark_generator: WatermarkGenerator
    keys: list[pa.StringArray] = field(default_factory=list)
    times: list[NDArray[np.int64]] = field(default_factory=list)
    offsets: list[NDArray[np.int64]] = field(default_factory=list)
    """Offset of each tuple's record."""
    tuples: int = 0
    late: int = 0
    invalid: int = 0

    def add(self, classified: RecordClassification, offsets: NDArray[np.int64]) -> None:
        """Add records, which have these offsets."""
        keys, _, times = classified.tuples()
        self.late += classified.late_tuples
        self.invalid += len(classified.invalid)
        self.keys.append(keys)
        self.times.append(times)
        self.offsets.append(offsets[classified.records_of_tuples])
        self.tuples += len(times)

    def take(self, tuples: int) -> tuple[pa.StringArray, NDArray[np.int64], NDArray[np.int64]]:
        """Remove the first tuples and return their keys, times and offsets."""
        keys = pa.chunked_array(self.keys, pa.string()).combine_chunks()
        times, offsets = np.concatenate(self.times), np.concatenate(self.offsets)
        self.keys, self.times, self.offsets = [keys[tuples:]], [times[tuples:]], [offsets[tuples:]]
        self.tuples -= tuples
        return keys[:tuples], times[:tuples], offsets[:tuples]


class BlockBuilder:
    """Builds the blocks of source partitions, whose records must be added in the order of their offsets.

    The tuples of the blocks do not depend on how the records are divided into calls of `add`.
    """

    def __init__(self, read_plan: ReadPlan) -> None:
        self._read_plan = read_plan
        self._parser = RecordParser(read_plan.splitter)
        self._partitions: dict[int, _Partition] = {}

    def add(self, number: int, offsets: NDArray[np.int64], records: SourceRecords) -> Iterator[Block]:
        """Add the next records of a source partition, which have these offsets. Yields the blocks that are complete."""
        read_plan = self._read_plan
        if number not in self._partitions:
            self._partitions[number] = _Partition(WatermarkGenerator(read_plan.rules.lateness_ms))
        partition = self._partitions[number]
        parsed = self._parser.parse(records)
        partition.add(classify(parsed, read_plan.rules, partition.watermark_generator, read_plan.now), offsets)
        while partition.tuples >= TUPLES:
            yield self._next_block(number, TUPLES)

    def finish(self) -> Iterator[Block]:
        """Yield the last block of each source partition."""
        for number, partition in self._partitions.items():
            if partition.tuples or partition.late or partition.invalid:
                yield self._next_block(number, partition.tuples)

    def _next_block(self, number: int, tuples: int) -> Block:
        partition = self._partitions[number]
        keys, times, offsets = partition.take(tuples)
        block = Block(
            partition=number,
            progress=self._read_plan.progress(number, int(offsets[0])) if tuples else 1.0,
            block=_encode_block(keys.dictionary_encode(), times),
            tuples=tuples,
            late=partition.late,
            bad=partition.invalid,
        )
        partition.late = partition.invalid = 0
        return block


def _encode_block(keys: pa.DictionaryArray, times: NDArray[np.int64]) -> bytes:
    return write_table(pa.record_batch([keys, pa.array(times)], schema=SCHEMA), compress=True)


def decode_block(block: bytes) -> tuple[pa.DictionaryArray, NDArray[np.int64]]:
    """Return the key and the event time of each tuple of a block."""
    table = pa.ipc.open_stream(block).read_all().combine_chunks()
    return table["key"].chunk(0), table["time"].chunk(0).to_numpy()
