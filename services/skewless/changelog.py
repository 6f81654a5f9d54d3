"""Windows in a changelog topic: one record per chunk, its key `<window start>/<number>`, its value columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from skewless.algorithms.watermark import OriginMarks
from skewless.algorithms.windowed import Chunk, Windows
from skewless.records import Output, write_table


class Position(msgspec.Struct):
    """What is saved beside an offset of a partition whose windows are in a changelog."""

    marks: str = ""
    """Watermarks and idle flags of its origins, as `OriginMarks.encode` writes them."""
    closed_to: int | None = None


def read_position(position: str | None) -> Position:
    """Read what was saved; a partition that was never committed begins with nothing."""
    return msgspec.json.decode(position, type=Position) if position else Position()


def read_marks(saved: Position, workers: int) -> OriginMarks:
    """Read the watermarks of all worker partitions."""
    # Idle worker partitions are not excluded. Each worker partition covers all source partitions: one that is still
    # idle while another is active has tuples left to read, and their windows must not close before.
    marks = OriginMarks(workers, exclude_idle=False)
    if saved.marks:
        marks.decode(saved.marks)
    return marks


def write_position(marks: OriginMarks, windows: Windows) -> str:
    """Write what is to be saved."""
    return msgspec.json.encode(Position(marks.encode(), windows.closed_to)).decode()


def chunk_key(window: int, number: int) -> bytes:
    """Key of a chunk."""
    return f"{window}/{number}".encode()


def window_of(key: bytes) -> int:
    """Window of a chunk, by its key."""
    return int(key.partition(b"/")[0])


def chunks_by_window(state: Sequence[tuple[bytes, bytes]]) -> Mapping[int, Mapping[int, bytes]]:
    """Sort records (key, value) by window and number of the chunk."""
    by_window: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
    for key, value in state:
        by_window[window_of(key)][int(key.partition(b"/")[2])] = value
    return by_window


def chunk_output(topic: str, partition: int, chunk: Chunk) -> Output:
    """Write a chunk; one that is taken back is a tombstone."""
    value = None if chunk.table is None else write_table(chunk.table)
    return Output(topic, value, chunk_key(chunk.window, chunk.number), partition)
