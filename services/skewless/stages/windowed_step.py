"""Base class of the steps that merge partials into windows and store the windows in a changelog topic."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from skewless.algorithms.windowing.window import ChunkId
from skewless.algorithms.windowing.window_store import WindowStore
from skewless.engine.step import HistogramSample, Sample
from skewless.errors import LimitError
from skewless.stages.partials_step import PartialsInput, PartialsStep
from skewless.wire.changelog import chunks_by_window, decode_checkpoint, encode_checkpoint, read_watermarks
from skewless.wire.columns import read_table

CHECKED_ROWS = 262_144
"""The size of the state is checked before each commit, and whenever this many rows were merged since the last check."""
CHECKED_BYTES = 64 * 2**20
"""It is also checked whenever this many bytes were merged. This limit matters for large binary partials."""


@dataclass(frozen=True, slots=True)
class StateLimit:
    """Maximum bytes of state in a process, with the path of the setting and the remedy for the error message."""

    max_bytes: int
    setting: str
    remedy: str


UNLIMITED = StateLimit(2**63 - 1, "", "")


@dataclass(slots=True)
class Input(PartialsInput):
    """State of one partition of partials."""

    windows: WindowStore
    ended: bool = False
    """Whether the watermark is MAX_WATERMARK, so that all windows are closed."""
    held: list[pa.Table] = field(default_factory=list)
    """Partials that the observer has not yet merged into windows."""
    unwritten: set[tuple[int, ChunkId]] = field(default_factory=set)
    """Window and chunk of what the observer has not written, because the window has ended."""


class WindowedStep(PartialsStep[Input]):
    """Holds the windows of each assigned partition, and restores them as of the last commit."""

    def __init__(self, *, worker_partitions: int, topic: str, limit: StateLimit) -> None:
        super().__init__(worker_partitions=worker_partitions)
        self._limit = limit
        self._unchecked_rows = self._unchecked_bytes = 0
        self._topic = topic

    @abstractmethod
    def _new_store(self) -> WindowStore:
        """Return an empty window store for a partition."""

    def _read_chunk(self, value: bytes) -> pa.Table:
        """Return the table of a changelog record."""
        return read_table(value)

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Restore the watermarks and windows of the last commit."""
        committed, windows = decode_checkpoint(checkpoint), self._new_store()
        windows.restore_time(committed.closed_until, committed.kept_ms)
        for window, chunks in chunks_by_window(state).items():
            tables = {chunk: self._read_chunk(value) if value else None for chunk, value in chunks.items()}
            windows.restore(window, tables)
        watermarks = read_watermarks(committed, self._worker_partitions)
        watermarks.restart()
        self._inputs[partition] = Input(watermarks, windows)

    def _merge(self, input_: Input, partials: pa.Table) -> pa.Table | None:
        """Merge partials into their windows. Returns those whose window has expired."""
        expired = input_.windows.merge(partials)
        if self._is_check_due(partials):
            self._check_state()
        return expired

    def _is_check_due(self, partials: pa.Table) -> bool:
        """Count partials; return whether the size of the state should be checked before the next commit."""
        self._unchecked_rows += partials.num_rows
        self._unchecked_bytes += partials.nbytes
        return self._unchecked_rows > CHECKED_ROWS or self._unchecked_bytes > CHECKED_BYTES

    def _absorb(self) -> None:
        """Merge all pending partials, and check the size of the state before the flush writes anything."""
        for input_ in self._inputs.values():
            input_.windows.absorb()
        # Not within a batch: its next record may belong to a window that was reopened for it.
        if self._state_bytes() > self._limit.max_bytes // 2:
            for windows in self._window_stores():
                windows.release()
        self._check_state()

    def _check_state(self) -> None:
        self._unchecked_rows = self._unchecked_bytes = 0
        state_bytes = self._state_bytes()
        if state_bytes > self._limit.max_bytes:
            keys = sum(len(windows) for windows in self._window_stores())
            open_windows = sum(windows.open for windows in self._window_stores())
            raise LimitError(
                f"{len(self._inputs)} partitions of {self._topic} have {state_bytes:,} bytes of state in this process "
                f"({keys:,} keys in {open_windows:,} open windows), more than {self._limit.setting} "
                f"({self._limit.max_bytes:,}): {self._limit.remedy}"
            )

    def _window_stores(self) -> Iterator[WindowStore]:
        return (input_.windows for input_ in self._inputs.values())

    def _state_bytes(self) -> int:
        return sum(windows.nbytes for windows in self._window_stores())

    def collect_metrics(self) -> Iterator[Sample | HistogramSample]:
        """Yield the size of the state and its limit."""
        yield Sample("skewless_state_bytes", (), self._state_bytes())
        yield Sample("skewless_state_limit_bytes", (), self._limit.max_bytes)

    def checkpoint(self, partition: int) -> str:
        """Return the checkpoint: the watermarks, and the time up to which windows are closed."""
        input_ = self._inputs[partition]
        return encode_checkpoint(input_.watermarks, input_.windows)

    def finished(self, partition: int) -> bool:
        """Return whether the input of the partition has ended and all its windows are closed."""
        return self._inputs[partition].ended
