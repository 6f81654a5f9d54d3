"""What a Spark task does to its records, without Spark: Arrow batches of records in, rows of partial results out.

A *chunk* is a part of a source partition that one task reads in order. What is late depends on the largest time of all
chunks before, which no task knows. So a task decides as if its chunk were the first: what is late then is late in any
case, and so are its largest times. The first records of a chunk, its *head*, become one row per tuple, so that they can
be judged again. Behind the head they become partial results: records there can only be late after all if a chunk
before was ahead of the whole head. `judge_chunks` finds such chunks, and they are read again with what came before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import PartialColumn
from skewless.algorithms.partials import merge_partials, to_partials
from skewless.algorithms.watermark import SourceClock
from skewless.records import TUPLES_SCHEMA
from skewless.splitter.formats import create_format
from skewless.splitter.judgement import Judgement, TimeRules, judge
from skewless.splitter.settings import SplitterSettings

HEAD_RECORDS = 1_000
"""The head of a chunk is the batches that begin with one of these."""
BUFFER_TUPLES = 262_144
REDUCE_ROWS = 524_288
TUPLE, PARTIAL, CHUNK = "tuple", "partial", "chunk"
"""Kinds of rows. `time` of a tuple is its event time, of a partial the start of its window; `key` of a chunk is its
`ChunkFacts` as JSON."""

ChunkId = tuple[int | str, int, int]
"""Origin, block (of a file; 0 in Kafka) and first offset: the order of an origin's chunks."""


class ChunkFacts(msgspec.Struct):
    """What the judgement and the report have to know of a chunk."""

    records: int = 0
    tuples: int = 0
    """Neither late nor bad, as far as the chunk alone can tell."""
    late: int = 0
    bad: dict[str, int] = {}
    max_time: int | None = None
    tail_min: int | None = None
    """Smallest time of a record behind the head that was taken for not late."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How records are read; it travels to the tasks. `now`: ms of the clock that `max_future_ms` is measured by."""

    splitter: SplitterSettings
    rules: TimeRules
    columns: tuple[PartialColumn, ...]
    window_ms: int
    now: int
    before: Mapping[ChunkId, int] | None = None
    """Largest time before a chunk: then only these chunks are read, and nothing of them is in doubt."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read a task's records (`origin`, `block`, `offset`, `timestamp`, `value`, perhaps `refused`)."""
        reader = None
        for batch in batches:
            reader = reader or _Reader(self, batch.schema.field("origin").type)
            for part in _same_origin(batch):
                yield from reader.take(part)
        if reader is not None:
            yield from reader.finish()


@dataclass(slots=True)
class _Chunk:
    """A chunk that is being read."""

    id: ChunkId
    clock: SourceClock
    is_known: bool
    last: int
    facts: ChunkFacts = field(default_factory=ChunkFacts)
    tuples: list[pa.RecordBatch] = field(default_factory=list)
    buffered: int = 0
    reduced: list[pa.Table] = field(default_factory=list)
    reduced_rows: int = 0


class _Reader:
    """Reads chunk after chunk of one task."""

    def __init__(self, reading: Reading, origin: pa.DataType) -> None:
        self._reading = reading
        self._format = create_format(reading.splitter)
        self._chunk: _Chunk | None = None
        self._schema = row_schema(origin, reading.columns)

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Read records of one origin and block."""
        offsets = batch["offset"].to_numpy()
        origin, block = batch["origin"][0].as_py(), batch["block"][0].as_py()
        if self._chunk is None or self._chunk.id[:2] != (origin, block):
            yield from self.finish()
            self._chunk = self._begin((origin, block, int(offsets[0])))
        chunk = self._chunk
        if offsets[0] < chunk.last or np.any(np.diff(offsets) < 0):
            raise ValueError(f"records of {origin} are not in the order of their offsets")
        chunk.last = int(offsets[-1])
        if self._is_wanted(chunk):
            yield from self._read(chunk, batch)

    def _begin(self, chunk_id: ChunkId) -> _Chunk:
        before = (self._reading.before or {}).get(chunk_id)
        return _Chunk(
            chunk_id, SourceClock(self._reading.rules.lateness_ms, before), before is not None, last=chunk_id[2]
        )

    def _is_wanted(self, chunk: _Chunk) -> bool:
        return self._reading.before is None or chunk.is_known

    def _read(self, chunk: _Chunk, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        facts, is_head = chunk.facts, not chunk.is_known and chunk.facts.records < HEAD_RECORDS
        parsed = self._format.parse(batch["value"].to_pylist(), batch["timestamp"].to_numpy())
        judged = judge(parsed, self._reading.rules, chunk.clock, self._reading.now, _refused(batch))
        keys, values, times = judged.tuples()
        _count(facts, judged, len(times))
        facts.max_time = chunk.clock.max_time
        if is_head:
            yield from self._tuples(chunk, keys, values, times)
            return
        if judged.wanted.any():
            least = int(parsed.times[judged.wanted].min())
            facts.tail_min = least if facts.tail_min is None else min(least, facts.tail_min)
        yield from self._buffer(chunk, keys, values, times)

    def _tuples(
        self, chunk: _Chunk, keys: pa.StringArray, values: NDArray[np.int64], times: NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        if len(times):
            ones = np.ones(len(times), dtype=np.int64)
            partials = [values if column.source == "value" else ones for column in self._reading.columns]
            yield self._rows(chunk, TUPLE, [times, keys, *partials])

    def _buffer(
        self, chunk: _Chunk, keys: pa.StringArray, values: NDArray[np.int64], times: NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        if not len(times):
            return
        columns = [keys.dictionary_encode(), pa.array(values), pa.array(times)]
        chunk.tuples.append(pa.record_batch(columns, schema=TUPLES_SCHEMA))
        chunk.buffered += len(times)
        if chunk.buffered > BUFFER_TUPLES:
            self._reduce(chunk)
        if chunk.reduced_rows > REDUCE_ROWS:
            yield from self._partials(chunk)

    def _reduce(self, chunk: _Chunk) -> None:
        reduced = to_partials(chunk.tuples, self._reading.window_ms, self._reading.columns)
        chunk.tuples, chunk.buffered = [], 0
        chunk.reduced.append(reduced)
        chunk.reduced_rows += reduced.num_rows

    def _partials(self, chunk: _Chunk) -> Iterator[pa.RecordBatch]:
        merged = merge_partials(chunk.reduced, ("pane", "key"), self._reading.columns)
        chunk.reduced, chunk.reduced_rows = [], 0
        for part in merged.combine_chunks().to_batches(max_chunksize=50_000):
            yield self._rows(chunk, PARTIAL, part.columns)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """End the chunk that is being read: its partial results and its facts."""
        chunk, self._chunk = self._chunk, None
        if chunk is None or not self._is_wanted(chunk):
            return
        if chunk.tuples:
            self._reduce(chunk)
        if chunk.reduced:
            yield from self._partials(chunk)
        nothing = [pa.nulls(1, pa.int64())] * len(self._reading.columns)
        facts = pa.array([msgspec.json.encode(chunk.facts).decode()])
        yield self._rows(chunk, CHUNK, [pa.nulls(1, pa.int64()), facts, *nothing])

    def _rows(self, chunk: _Chunk, kind: str, columns: Sequence[pa.Array | NDArray[np.int64]]) -> pa.RecordBatch:
        size = len(columns[0])
        own = [
            pa.repeat(pa.scalar(value, kind.type), size) for value, kind in zip(chunk.id, self._schema, strict=False)
        ]
        return pa.record_batch([*own, pa.repeat(kind, size), *columns], schema=self._schema)


def row_schema(origin: pa.DataType, columns: Sequence[PartialColumn]) -> pa.Schema:
    """Describe the rows that a `Reading` gives."""
    numbers = [(column.name, pa.int64()) for column in columns]
    own = [("origin", origin), ("block", pa.int64()), ("first", pa.int64()), ("kind", pa.string())]
    return pa.schema([*own, ("time", pa.int64()), ("key", pa.string()), *numbers])


def _refused(batch: pa.RecordBatch) -> list[int]:
    """Find records that the stream refused by its own clock, where it was asked."""
    if "refused" not in batch.schema.names:
        return []
    refused: list[int] = np.flatnonzero(batch["refused"].to_numpy(zero_copy_only=False)).tolist()
    return refused


def _count(facts: ChunkFacts, judged: Judgement, tuples: int) -> None:
    facts.records += len(judged.good)
    facts.tuples += tuples
    facts.late += judged.late_tuples
    if judged.bad:
        facts.bad = dict(Counter(facts.bad) + Counter(judged.bad.values()))


def _same_origin(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut where the origin or the block changes."""
    origins = batch["origin"].dictionary_encode().indices.to_numpy()
    blocks = batch["block"].to_numpy()
    cuts = np.flatnonzero((np.diff(origins) != 0) | (np.diff(blocks) != 0)) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), batch.num_rows], strict=True):
        if end > start:
            yield batch.slice(start, end - start)


def judge_chunks(
    chunks: Mapping[ChunkId, ChunkFacts], lateness_ms: int
) -> tuple[dict[ChunkId, int], dict[ChunkId, int]]:
    """Find what the chunks before say of each: (mark below which its head is late, largest time before if it is wrong).

    A chunk is missing in the first where nothing came before it, and in the second where its tail was judged right.
    """
    marks: dict[ChunkId, int] = {}
    wrong: dict[ChunkId, int] = {}
    newest: dict[int | str, int] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk[1:]):
        facts, before = chunks[chunk], newest.get(chunk[0])
        if before is not None:
            marks[chunk] = before - lateness_ms
            if facts.tail_min is not None and facts.tail_min < marks[chunk]:
                wrong[chunk] = before
        times = [time for time in (before, facts.max_time) if time is not None]
        if times:
            newest[chunk[0]] = max(times)
    return marks, wrong
