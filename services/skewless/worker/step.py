"""Tuples of a worker partition become deltas of panes by key; between two commits they are all the state there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa

from skewless.algorithms.aggregates import PartialColumn
from skewless.algorithms.hashing import partition_of_keys
from skewless.algorithms.partials import merge_partials, newest_pane, to_partials
from skewless.algorithms.sized import cut
from skewless.algorithms.watermark import END_OF_TIME, NOTHING_REPORTED, OriginMarks, WatermarkState
from skewless.errors import BadRecordError
from skewless.public_records import PlainTuple
from skewless.records import (
    PARTIALS,
    PROGRESS,
    TUPLE,
    TUPLES,
    TUPLES_SCHEMA,
    Batch,
    Output,
    dead_letter,
    expect,
    headers_of,
    progress,
    read_tuples,
    tell,
    write_table,
)
from skewless.step import Sample, Step

BUFFER_TUPLES = 262_144
"""Tuples that wait to be reduced, of all partitions; more of them are reduced at once."""
BUFFER_BYTES = 32 * 2**20
"""Bytes of the records that these tuples came in, likewise: they keep their records' memory."""
HELD_ROWS = 400_000
"""Reduced rows of all partitions; more of them ask for a commit. At a commit each row is held some four times: reduced,
merged, by partition, and as a record in the producer's queue."""
HELD_BYTES = 48 * 2**20
"""Bytes of these rows, likewise, for long keys."""


@dataclass(slots=True)
class _Input:
    """One worker partition: what its origins said of their time, and what came since the last commit."""

    marks: OriginMarks
    tuples: list[pa.RecordBatch] = field(default_factory=list)
    buffered: int = 0
    """Number of these tuples."""
    buffered_bytes: int = 0
    """Bytes of the records that they came in."""
    reduced: list[pa.Table] = field(default_factory=list)
    reduced_rows: int = 0
    reduced_bytes: int = 0
    told: WatermarkState = NOTHING_REPORTED
    """The state that was last reported downstream."""
    newest: int | None = None
    """Start of the newest pane."""
    keys: int = 0
    """Rows of the last commit that had any."""


class WorkerStep(Step):
    """Aggregates tuples into tumbling panes and emits at each commit what changed since the last one."""

    def __init__(
        self, columns: Sequence[PartialColumn], *, pane_ms: int, origins: int, partitions: int, topic: str
    ) -> None:
        self._columns = tuple(columns)
        self._pane_ms = pane_ms
        self._origins = origins
        self._partitions = partitions
        self._topic = topic
        self._inputs: dict[int, _Input] = {}
        self._taken: Counter[int] = Counter()
        self._given: Counter[int] = Counter()
        """Tuples taken in and rows given out by worker partition, as `tuples`."""
        self._plain = msgspec.json.Decoder(PlainTuple)

    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:  # noqa: ARG002
        """Go on from the marks that were committed."""
        marks = OriginMarks(self._origins)
        if position:
            marks.decode(position)
        self._inputs[partition] = _Input(marks)

    def revoke(self, partition: int) -> None:
        """Forget the partition with its deltas."""
        self._inputs.pop(partition, None)

    def process(self, batch: Batch, now: int) -> Iterator[Output]:  # noqa: ARG002 - event time only
        """Take in the tuples of a batch."""
        mine = self._inputs[batch.partition]
        plain: list[tuple[str, int, int]] = []
        for index, (value, headers) in enumerate(zip(batch.values, batch.headers, strict=True)):
            try:
                schema = expect(headers, TUPLES, TUPLE, PROGRESS)
                tuples = read_tuples(value) if schema == TUPLES else []
                if schema == TUPLE:
                    plain.append(self._read_plain(batch.keys[index], value))
                tell(mine.marks, headers)
                self._buffer(batch.partition, mine, tuples, len(value or b""))
            except BadRecordError as error:
                yield dead_letter(self._topic, batch, index, error.reason)
        if plain:
            keys, values, times = zip(*plain, strict=True)
            columns = [pa.array(keys, pa.string()).dictionary_encode(), pa.array(values), pa.array(times)]
            tuples = pa.record_batch(columns, schema=TUPLES_SCHEMA)
            self._buffer(batch.partition, mine, [tuples], tuples.nbytes)

    @property
    def wants_commit(self) -> bool:
        """Whether more is held than a commit should have to write."""
        inputs = self._inputs.values()
        return sum(each.reduced_rows for each in inputs) > HELD_ROWS or (
            sum(each.reduced_bytes for each in inputs) > HELD_BYTES
        )

    def _read_plain(self, key: bytes | None, value: bytes | None) -> tuple[str, int, int]:
        try:
            fact = self._plain.decode(value or b"")
            return (key or b"").decode(), fact.value, fact.time
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRecordError(f"not a {TUPLE}") from error

    def _buffer(self, partition: int, mine: _Input, batches: Sequence[pa.RecordBatch], size: int) -> None:
        mine.tuples += batches
        rows = sum(batch.num_rows for batch in batches)
        mine.buffered += rows
        mine.buffered_bytes += size
        self.tuples += rows
        self._taken[partition] += rows
        inputs = self._inputs.values()
        if sum(each.buffered for each in inputs) > BUFFER_TUPLES or (
            sum(each.buffered_bytes for each in inputs) > BUFFER_BYTES
        ):
            for each in inputs:
                self._reduce(each)

    def _reduce(self, mine: _Input) -> None:
        if not mine.tuples:
            return
        partials = to_partials(mine.tuples, self._pane_ms, self._columns)
        mine.tuples, mine.buffered, mine.buffered_bytes = [], 0, 0
        mine.reduced.append(partials)
        mine.reduced_rows += partials.num_rows
        mine.reduced_bytes += partials.nbytes

    def flush(self, now: int) -> Iterable[Output]:  # noqa: ARG002 - event time only
        """Emit the deltas since the last commit, then how far time has come; forget the deltas."""
        yield from self._deltas()
        moved = {}
        for partition, mine in self._inputs.items():
            state = mine.marks.state()
            if state not in (NOTHING_REPORTED, mine.told):
                moved[partition] = mine.told = state
        if moved:
            yield from progress("partials", range(self._partitions), moved)

    def _deltas(self) -> Iterator[Output]:
        tables = []
        for partition, mine in self._inputs.items():
            self._reduce(mine)
            if len(mine.reduced) > 1:
                mine.reduced = [merge_partials(mine.reduced, ("pane", "key"), self._columns)]
            for table in mine.reduced:
                self._note(partition, mine, table)
                tables.append(table.append_column("worker", pa.array(np.full(table.num_rows, partition, np.int32))))
            mine.reduced, mine.reduced_rows, mine.reduced_bytes = [], 0, 0
        if not tables:
            return
        deltas = pa.concat_tables(tables)
        targets = partition_of_keys(deltas["key"], self._partitions)
        headers = headers_of(PARTIALS, {})
        for target in range(self._partitions):
            rows = np.flatnonzero(targets == target)
            if len(rows):
                for part in cut(deltas.take(pa.array(rows)).combine_chunks()):
                    yield Output("partials", write_table(part), partition=target, headers=headers)

    def _note(self, partition: int, mine: _Input, partials: pa.Table) -> None:
        """Take note of what is about to be given out."""
        if partials.num_rows:
            mine.keys, mine.newest = partials.num_rows, newest_pane(partials, mine.newest)
            self._given[partition] += partials.num_rows

    def event_time(self, partition: int) -> int | None:
        """Start of the newest pane that was given out."""
        return self._inputs[partition].newest

    def samples(self) -> Iterator[Sample]:
        """Tell the load of each worker partition."""
        for partition, tuples in self._taken.items():
            yield Sample("skewless_worker_tuples_total", (str(partition),), tuples)
        for partition, rows in self._given.items():
            yield Sample("skewless_worker_partials_total", (str(partition),), rows)
        for partition, mine in self._inputs.items():
            yield Sample("skewless_worker_keys", (str(partition),), mine.keys)

    def position(self, partition: int) -> str:
        """Save the last watermark and the idle flag of each source partition."""
        return self._inputs[partition].marks.encode()

    def watermark(self, partition: int) -> int | None:
        """Tell the least mark of the partition's origins."""
        return self._inputs[partition].marks.watermark()

    def idle(self, partition: int) -> bool:
        """Return whether all source partitions are idle."""
        return self._inputs[partition].marks.state().idle

    def finished(self, partition: int) -> bool:
        """Whether the aggregators were told of the end of the partition."""
        return self._inputs[partition].told.watermark == END_OF_TIME
