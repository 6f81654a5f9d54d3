"""Tuples of source partitions as blocks: one row holds some thousands of them, in order, with their keys encoded once.

So tuples can be handed from those who parse them to those who run groupings over them, several times over, at a few
bytes each and without a row per tuple. For `mapInArrow`; nothing of Spark is needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.watermark import SourceClock
from skewless.splitter.formats import create_format
from skewless.splitter.formats.base import Format, Parsed
from skewless.splitter.judgement import Judgement, TimeRules, judge
from skewless.splitter.settings import SplitterSettings

TUPLES = 20_000
"""In a block, at least, but for the last of a partition: about as many as a router gets at once under load."""
BLOCKS = "partition int, progress double, block binary, tuples long, late long, bad long, first_ms long, last_ms long"
"""`progress`: where in its partition's span the block begins, 0 to 1."""
SCHEMA = pa.schema([("key", pa.dictionary(pa.int32(), pa.string())), ("time", pa.int64())])
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Reading:
    """How records become tuples. It travels to the executors."""

    splitter: SplitterSettings | None
    """None: the record's key is the key, its timestamp the time."""
    rules: TimeRules
    """What is late or has a time that cannot be is left out, as the splitter does."""
    spans: Mapping[int, tuple[int, int]]
    """By source partition the first offset, and the one behind the last."""
    now: int
    """ms of the clock that times too far ahead are told by."""

    def progress(self, partition: int, offset: int) -> float:
        """Tell how far into its partition's span an offset is, 0 to 1."""
        first, end = self.spans[partition]
        return (offset - first) / max(1, end - first)


@dataclass(slots=True)
class _Partition:
    """What is known of one source partition."""

    clock: SourceClock
    keys: list[pa.Array] = field(default_factory=list)
    times: list[NDArray[np.int64]] = field(default_factory=list)
    tuples: int = 0
    late: int = 0
    bad: int = 0
    progress: float | None = None


def blocks(batches: Iterator[pa.RecordBatch], reading: Reading) -> Iterator[pa.RecordBatch]:
    """Make blocks of records (key, value, partition, offset, at), which are in the order of their partition."""
    parse = _key_and_timestamp if reading.splitter is None else _split(create_format(reading.splitter))
    partitions: dict[int, _Partition] = {}
    for batch in batches:
        numbers = batch["partition"].to_numpy()
        for number in np.unique(numbers).tolist():
            mine = partitions.setdefault(number, _Partition(SourceClock(reading.rules.lateness_ms)))
            rows = batch if (numbers == number).all() else batch.filter(pa.array(numbers == number))
            if mine.progress is None:
                mine.progress = reading.progress(number, int(rows["offset"][0].as_py()))
            _add(mine, judge(parse(rows), reading.rules, mine.clock, reading.now))
            if mine.tuples >= TUPLES:
                yield _block(number, mine)
    yield from (_block(number, mine) for number, mine in partitions.items() if mine.tuples or mine.late or mine.bad)


def _key_and_timestamp(rows: pa.RecordBatch) -> Parsed:
    """Take a record's own key and timestamp for its tuple; one whose key is missing or no UTF-8 is bad."""
    keys = rows["key"]
    try:
        texts = keys.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array([_text(key) for key in keys.to_pylist()], pa.string())
    known = texts.is_valid().to_numpy(zero_copy_only=False)
    records = np.flatnonzero(known).astype(np.int32)
    bad = [(index, "no key that is text") for index in np.flatnonzero(~known).tolist()]
    ones = np.ones(len(records), dtype=np.int64)
    return Parsed(texts.drop_null().to_pylist(), ones, records, rows["at"].to_numpy(), bad)


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _split(record_format: Format) -> Callable[[pa.RecordBatch], Parsed]:
    """Read records as a pipeline's splitter reads them."""

    def parse(rows: pa.RecordBatch) -> Parsed:
        return record_format.parse(rows["value"].to_pylist(), rows["at"].to_numpy())

    return parse


def _add(mine: _Partition, judged: Judgement) -> None:
    keys, _, times = judged.tuples()
    mine.late += judged.late_tuples
    mine.bad += len(judged.bad)
    mine.keys.append(keys)
    mine.times.append(times)
    mine.tuples += len(times)


def _block(partition: int, mine: _Partition) -> pa.RecordBatch:
    keys = pa.chunked_array(mine.keys, pa.string()).combine_chunks().dictionary_encode()
    times = np.concatenate(mine.times) if mine.times else np.zeros(0, dtype=np.int64)
    facts = {
        "partition": pa.array([partition], pa.int32()),
        "progress": pa.array([mine.progress], pa.float64()),
        "block": pa.array([_encoded(keys, times)], pa.binary()),
        "tuples": pa.array([len(times)]),
        "late": pa.array([mine.late]),
        "bad": pa.array([mine.bad]),
        "first_ms": pa.array([int(times.min()) if len(times) else None], pa.int64()),
        "last_ms": pa.array([int(times.max()) if len(times) else None], pa.int64()),
    }
    mine.keys, mine.times, mine.tuples, mine.late, mine.bad, mine.progress = [], [], 0, 0, 0, None
    return pa.record_batch(facts)


def _encoded(keys: pa.DictionaryArray, times: NDArray[np.int64]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=_COMPRESSED) as writer:
        writer.write(pa.record_batch([keys, pa.array(times)], schema=SCHEMA))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decoded(block: bytes) -> tuple[Sequence[str], pa.StringArray, NDArray[np.int32], NDArray[np.int64]]:
    """Read a block: its distinct keys, as a list and as an array, the index of each tuple's key, and the times."""
    table = pa.ipc.open_stream(block).read_all()
    keys = table["key"].combine_chunks()
    return keys.dictionary.to_pylist(), keys.dictionary, keys.indices.to_numpy(), table["time"].to_numpy()
