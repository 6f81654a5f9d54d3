"""Step of the flusher: merges partials by window and key until the next transaction adds them to the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from skewless.algorithms.aggregates import ResultField, columns_of
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.algorithms.windowing.window_deltas import WindowDelta, WindowDeltas
from skewless.engine.step import Sample
from skewless.errors import BadRecordError
from skewless.stages.partials_step import PartialsInput, PartialsStep
from skewless.wire.aggregates import aggregate_constructor, encode_json
from skewless.wire.changelog import WindowCheckpoint, decode_checkpoint, read_watermarks
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.table_rows import refused_record, row

ROWS = 8192
"""Number of rows that are converted to Python objects at once."""


@dataclass(frozen=True, slots=True)
class FlusherRules:
    """Windows, and the numbers to add to them."""

    results: Sequence[ResultField]
    """Results that a database can merge, which are the columns of the table."""
    windows: WindowAssigner
    transaction_rows: int
    """Number of rows after which the step requests a commit."""
    key_parts: Sequence[str] = ()
    """Names of the parts of a composite key."""


@dataclass(slots=True)
class _Input(PartialsInput):
    """A partition of partials since the last commit."""

    deltas: WindowDeltas
    refused: list[OutputRecord] = field(default_factory=list)
    next_offset: int = 0

    @property
    def pending(self) -> int:
        """Number of rows of the next transaction."""
        return len(self.deltas) + len(self.refused)


class FlusherStep(PartialsStep[_Input]):
    """Adds the partials of each assigned partition to windows. Nothing but watermarks is kept after a commit.

    A window has no end here: partials that arrive after the watermark has passed it are added, too.
    """

    stops_for_commit = True

    def __init__(self, rules: FlusherRules, *, worker_partitions: int) -> None:
        super().__init__(worker_partitions=worker_partitions)
        self._rules = rules
        self._columns = columns_of(rules.results)
        self._new_record = aggregate_constructor(rules.results, key_parts=rules.key_parts)

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:  # noqa: ARG002 - the rows are in the database
        """Restore the watermarks of the last commit."""
        watermarks = read_watermarks(decode_checkpoint(checkpoint), self._worker_partitions)
        watermarks.restart()
        self._inputs[partition] = _Input(watermarks, WindowDeltas(self._columns, self._rules.windows))

    def process(self, batch: Batch, now: int) -> Sequence[OutputRecord]:  # noqa: ARG002 - event time only
        """Merge the partials of a batch."""
        input_ = self._inputs[batch.partition]
        for offset, key, value, headers in zip(batch.offsets, batch.keys, batch.values, batch.headers, strict=True):
            try:
                partials = self._read_record(input_, value, headers, self._columns)
            except BadRecordError as error:
                refused = refused_record(batch.partition, offset, key, value or b"", error.reason)
                input_.refused.append(refused)
            else:
                if partials is not None:
                    input_.deltas.merge(partials)
            input_.next_offset = offset + 1
        return ()

    @property
    def wants_commit(self) -> bool:
        """Whether a transaction has all its rows."""
        return self._pending >= self._rules.transaction_rows

    @property
    def _pending(self) -> int:
        return sum(input_.pending for input_ in self._inputs.values())

    def flush(self, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - event time only
        """Yield the rows of the transaction: what must be added to each row of the table."""
        for partition, input_ in self._inputs.items():
            for delta in input_.deltas.take(ROWS):
                yield from self._rows(partition, input_.next_offset - 1, delta)
            yield from input_.refused
            input_.refused.clear()

    def _rows(self, partition: int, offset: int, delta: WindowDelta) -> Iterator[OutputRecord]:
        bounds = delta.window, self._rules.windows.end(delta.window)
        columns: list[list[Any]] = [result.to_python(delta.data) for result in self._rules.results]
        prefix = f"{delta.window}/".encode()
        for key, results in zip(delta.keys.to_pylist(), zip(*columns, strict=True), strict=True):
            record = self._new_record(key, *bounds, *results, 0)
            yield row(partition, offset, prefix + key.encode(), encode_json(record))

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the number of rows that wait for the next transaction."""
        yield Sample("skewless_sink_pending_rows", (), self._pending)

    def checkpoint(self, partition: int) -> str:
        """Return the checkpoint: the watermarks."""
        return msgspec.json.encode(WindowCheckpoint(self._inputs[partition].watermarks.encode())).decode()

    def finished(self, partition: int) -> bool:
        """Return whether the input of the partition has ended."""
        return self.watermark(partition) == MAX_WATERMARK
