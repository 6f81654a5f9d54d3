"""What the steps share that merge partials into windows and remember them in a changelog."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from skewless.algorithms.partials import newest_pane
from skewless.algorithms.watermark import OriginMarks
from skewless.algorithms.windowed import Windows
from skewless.changelog import chunks_by_window, read_marks, read_position, write_position
from skewless.records import Headers, read_table, tell
from skewless.step import Step


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

    def __init__(self, *, origins: int, topic: str) -> None:
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
