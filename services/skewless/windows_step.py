"""What the steps share that merge partials into windows and remember them in a changelog."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from skewless.algorithms.partials import newest_pane
from skewless.algorithms.watermark import OriginMarks
from skewless.algorithms.windowed import Windows
from skewless.changelog import chunks_by_window, read_marks, read_position, write_position
from skewless.errors import LimitError
from skewless.records import Headers, read_table, tell
from skewless.step import Sample, Step

CHECKED_ROWS = 262_144
"""The size of the state is looked at before each commit, and when so many rows have come since."""


@dataclass(frozen=True, slots=True)
class StateLimit:
    """The most bytes of state that a process may hold, and what to do about more."""

    most_bytes: int
    setting: str
    remedy: str


UNLIMITED = StateLimit(2**63 - 1, "", "")


@dataclass(slots=True)
class Input:
    """One partition of partials."""

    marks: OriginMarks
    windows: Windows
    ended: bool = False
    """Whether all windows were closed by the end of time."""
    newest: int | None = None
    """Start of the newest pane."""


class WindowsStep(Step):
    """Holds windows by partition, and goes on with them where the last commit left them."""

    def __init__(self, *, origins: int, topic: str, limit: StateLimit) -> None:
        self._limit = limit
        self._unchecked_rows = 0
        self._origins = origins
        self._topic = topic
        self._inputs: dict[int, Input] = {}

    @abstractmethod
    def _no_windows(self) -> Windows:
        """Make the windows of a partition before its first record."""

    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Take back marks and windows as they were at the last commit."""
        saved, windows = read_position(position), self._no_windows()
        windows.closed_to = saved.closed_to
        for window, chunks in chunks_by_window(state).items():
            windows.restore(window, {number: read_table(value) if value else None for number, value in chunks.items()})
        self._inputs[partition] = Input(read_marks(saved, self._origins), windows)

    def revoke(self, partition: int) -> None:
        """Forget the partition; its state stands in the changelog."""
        self._inputs.pop(partition, None)

    def _hear(self, mine: Input, headers: Headers, partials: pa.Table | None) -> None:
        """Take over what a record says of time; BadRecordError, and nothing is counted, when it cannot be read."""
        tell(mine.marks, headers)
        if partials is not None:
            self.tuples += int(partials["count"].to_numpy().sum())
            mine.newest = newest_pane(partials, mine.newest)

    def _merge(self, mine: Input, partials: pa.Table) -> pa.Table | None:
        """Merge partials into their windows; return those whose window is forgotten."""
        refused = mine.windows.merge(partials)
        self._unchecked_rows += partials.num_rows
        if self._unchecked_rows > CHECKED_ROWS:
            self._check_state()
        return refused

    def _absorb(self) -> None:
        """Merge all that waits, as the first part of a flush: LimitError comes before anything is written."""
        for mine in self._inputs.values():
            mine.windows.absorb()
        self._check_state()

    def _check_state(self) -> None:
        self._unchecked_rows = 0
        if self._state_bytes() > self._limit.most_bytes // 2:
            for mine in self._inputs.values():
                mine.windows.release()
        held = self._state_bytes()
        if held > self._limit.most_bytes:
            keys, windows = (sum(map(of, self._held())) for of in (len, lambda windows: windows.open))
            raise LimitError(
                f"{len(self._inputs)} partitions of {self._topic} have {held:,} bytes of state in this process "
                f"({keys:,} keys in {windows:,} open windows), more than {self._limit.setting} "
                f"({self._limit.most_bytes:,}): {self._limit.remedy}"
            )

    def _held(self) -> Iterator[Windows]:
        return (mine.windows for mine in self._inputs.values())

    def _state_bytes(self) -> int:
        return sum(windows.nbytes for windows in self._held())

    def samples(self) -> Iterator[Sample]:
        """Yield the size of the state."""
        yield Sample("skewless_state_bytes", (), self._state_bytes())
        yield Sample("skewless_state_limit_bytes", (), self._limit.most_bytes)

    def event_time(self, partition: int) -> int | None:
        """Start of the newest pane."""
        return self._inputs[partition].newest

    def position(self, partition: int) -> str:
        """Save marks, and what is closed."""
        mine = self._inputs[partition]
        return write_position(mine.marks, mine.windows)

    def watermark(self, partition: int) -> int | None:
        """Tell the least mark of the partition's origins."""
        return self._inputs[partition].marks.watermark()

    def idle(self, partition: int) -> bool:
        """Return whether all worker partitions are idle."""
        return self._inputs[partition].marks.state().idle

    def finished(self, partition: int) -> bool:
        """Whether all windows of the partition were closed by the end of time."""
        return self._inputs[partition].ended
