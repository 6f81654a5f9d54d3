"""Tuples of source partitions as blocks: one row holds some thousands of tuples in order, with dictionary-encoded keys.

Blocks carry tuples from parsing to the simulated groupings, several times over, at a few bytes per tuple and without a
row per tuple. For `mapInArrow`; does not use Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.watermark import WatermarkGenerator
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules, RecordClassification, classify
from skewless.spark.record_columns import record_columns
from skewless.wire.columns import write_table

TUPLES = 20_000
"""Minimum tuples of a block, except for the last one of a partition. A router under load gets about as many at once."""
BLOCKS = "partition int, progress double, block binary, tuples long, late long, bad long, first_ms long, last_ms long"
"""`progress`: position of the block's first record in its partition's offset range, 0 to 1."""
SCHEMA = pa.schema([("key", pa.dictionary(pa.int32(), pa.string())), ("time", pa.int64())])


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How records become tuples. Spark sends it to the executors."""

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


@dataclass(slots=True)
class _Partition:
    """The tuples of one source partition since its last block, and its watermark."""

    watermark_generator: WatermarkGenerator
    keys: list[pa.Array] = field(default_factory=list)
    times: list[NDArray[np.int64]] = field(default_factory=list)
    tuples: int = 0
    late: int = 0
    invalid: int = 0
    progress: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no record was read since the last block."""
        return not (self.tuples or self.late or self.invalid)

    def clear(self) -> None:
        """Start the next block."""
        self.keys, self.times, self.tuples, self.late, self.invalid, self.progress = [], [], 0, 0, 0, None


def blocks(batches: Iterator[pa.RecordBatch], read_plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Convert records (see `kafka_source`), which are in the order of their source partition."""
    parser = RecordParser(read_plan.splitter)
    partitions: dict[int, _Partition] = {}
    for batch in batches:
        row_partitions = batch["source_partition"].to_numpy()
        for number in np.unique(row_partitions).tolist():
            partition = partitions.setdefault(number, _Partition(WatermarkGenerator(read_plan.rules.lateness_ms)))
            in_partition = row_partitions == number
            rows = batch if in_partition.all() else batch.filter(pa.array(in_partition))
            if partition.progress is None:
                partition.progress = read_plan.progress(number, int(rows["offset"][0].as_py()))
            parsed = parser.parse(record_columns(rows, number))
            _add(partition, classify(parsed, read_plan.rules, partition.watermark_generator, read_plan.now))
            if partition.tuples >= TUPLES:
                yield _block(number, partition)
    for number, partition in partitions.items():
        if not partition.is_empty:
            yield _block(number, partition)


def _add(partition: _Partition, classified: RecordClassification) -> None:
    keys, _, times = classified.tuples()
    partition.late += classified.late_tuples
    partition.invalid += len(classified.invalid)
    partition.keys.append(keys)
    partition.times.append(times)
    partition.tuples += len(times)


def _block(number: int, partition: _Partition) -> pa.RecordBatch:
    """Return the row of the next block of a source partition, and clear the partition."""
    keys = pa.chunked_array(partition.keys, pa.string()).combine_chunks().dictionary_encode()
    times = np.concatenate(partition.times) if partition.times else np.zeros(0, dtype=np.int64)
    columns = {
        "partition": pa.array([number], pa.int32()),
        "progress": pa.array([partition.progress], pa.float64()),
        "block": pa.array([_encode_block(keys, times)], pa.binary()),
        "tuples": pa.array([len(times)]),
        "late": pa.array([partition.late]),
        "bad": pa.array([partition.invalid]),
        "first_ms": pa.array([int(times.min()) if len(times) else None], pa.int64()),
        "last_ms": pa.array([int(times.max()) if len(times) else None], pa.int64()),
    }
    partition.clear()
    return pa.record_batch(columns)


def _encode_block(keys: pa.DictionaryArray, times: NDArray[np.int64]) -> bytes:
    return write_table(pa.record_batch([keys, pa.array(times)], schema=SCHEMA), compress=True)


def decode_block(block: bytes) -> tuple[Sequence[str], pa.StringArray, NDArray[np.int32], NDArray[np.int64]]:
    """Return the distinct keys of a block, as a list and as an array, and the key index and event time per tuple."""
    table = pa.ipc.open_stream(block).read_all()
    keys = table["key"].combine_chunks()
    return keys.dictionary.to_pylist(), keys.dictionary, keys.indices.to_numpy(), table["time"].to_numpy()
