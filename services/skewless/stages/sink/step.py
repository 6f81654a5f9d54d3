"""Step of the sink: keeps the last result of each window and key until the next transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from skewless.engine.step import Sample
from skewless.errors import BadRecordError
from skewless.stages.stateless_step import StatelessStep
from skewless.wire.aggregates import ToJson, unchanged
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.table_rows import refused_record, row
from skewless.wire.tuples import Int64


class Result(msgspec.Struct, gc=False):
    """The part of a record of topic `aggregates` that the step needs."""

    key: str
    window_start: Int64
    window_end: Int64
    revision: int


class Rank(msgspec.Struct, rename={"key": "rank"}, gc=False):
    """The part of a record of topic `top` that the step needs."""

    key: int
    window_start: Int64
    window_end: Int64
    revision: int


class _Change(NamedTuple):
    """What becomes of a row."""

    revision: int
    value: bytes | None
    """The record; None for a tombstone alone."""
    deleted: bool
    """Whether a tombstone precedes the record, so that the stored row goes first, whatever its revision."""
    offset: int


class SinkStep(StatelessStep):
    """Merges the results of each assigned partition by window and key, or rank. Nothing is kept after a commit.

    `transaction_rows` is the number of rows after which the step requests a commit. `to_json` returns the JSON of a
    result.
    """

    stops_for_commit = True

    def __init__(
        self, record_type: type[Result | Rank] = Result, *, transaction_rows: int, to_json: ToJson = unchanged
    ) -> None:
        super().__init__()
        self._to_json = to_json
        self._transaction_rows = transaction_rows
        self._changes: dict[int, dict[bytes, _Change]] = {}
        self._refused: dict[int, list[OutputRecord]] = {}
        self._newest: dict[int, int] = {}
        """Start of the newest window by partition."""
        self._pending = 0
        self._decode = msgspec.json.Decoder(record_type).decode

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Start without rows: they are in the database."""
        super().assign(partition, checkpoint, state)
        self._changes[partition], self._refused[partition] = {}, []

    def revoke(self, partition: int) -> None:
        """Drop rows that were not committed."""
        self._pending -= len(self._changes.pop(partition, ())) + len(self._refused.pop(partition, ()))
        self._newest.pop(partition, None)

    def process(self, batch: Batch, now: int) -> Sequence[OutputRecord]:  # noqa: ARG002 - event time only
        """Merge the results of a batch."""
        changes, partition = self._changes[batch.partition], batch.partition
        refused = self._refused[partition]
        before = len(changes) + len(refused)
        for offset, key, stored in zip(batch.offsets, batch.keys, batch.values, strict=True):
            if stored is None:
                changes[key or b""] = _Change(-1, None, deleted=True, offset=offset)
                continue
            try:
                value = self._to_json(stored)
                result = self._decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, BadRecordError) as error:
                refused.append(refused_record(partition, offset, key, stored, f"not a record of aggregates: {error}"))
                continue
            if key != f"{result.window_start}/{result.key}".encode():
                refused.append(
                    refused_record(partition, offset, key, stored, "its key is not that of its window and key")
                )
                continue
            previous = changes.get(key)
            if previous is None:
                changes[key] = _Change(result.revision, value, deleted=False, offset=offset)
            elif result.revision >= previous.revision:
                changes[key] = _Change(result.revision, value, previous.deleted, offset)
            self._newest[partition] = max(result.window_start, self._newest.get(partition, result.window_start))
        self._pending += len(changes) + len(refused) - before
        return ()

    @property
    def wants_commit(self) -> bool:
        """Whether a transaction has all its rows."""
        return self._pending >= self._transaction_rows

    def flush(self, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - event time only
        """Yield the rows of the transaction."""
        for partition, changes in self._changes.items():
            for key, change in changes.items():
                if change.deleted:
                    yield row(partition, change.offset, key, None)
                if change.value is not None:
                    yield row(partition, change.offset, key, change.value)
            yield from self._refused[partition]
            changes.clear()
            self._refused[partition].clear()
        self._pending = 0

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the number of rows that wait for the next transaction."""
        yield Sample("skewless_sink_pending_rows", (), self._pending)

    def max_event_time(self, partition: int) -> int | None:
        """Return the start of the newest window in ms."""
        return self._newest.get(partition)
