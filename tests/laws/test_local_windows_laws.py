"""A splitter with local windows that is killed at any time sends each tuple once, and as early as results need it.

The law holds for any records, any cut into batches, any commits and kills, and any changes of the mode and of the
length of local windows. Silence and idle partitions are in the laws of the whole pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from helpers.batches import FORMAT, batch_of, reports, rows_in, source, tuples_in, watermarks_in, written
from skewless.algorithms.aggregates import AGGREGATES, wire_columns_of
from skewless.algorithms.local_buffer import LocalRules
from skewless.algorithms.windowing.assigner import HoppingWindows, tumbling
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules
from skewless.stages.splitter.checkpoint import decode_checkpoint
from skewless.stages.splitter.local_step import STEPS, LocalSplitterRules, RestoredRows
from skewless.stages.splitter.restore import read_again
from skewless.wire.headers import schema_of
from skewless.wire.record import OutputRecord
from skewless.wire.rows import ROWS, RowFormat

NOW = 10**12
PANE_MS = 60
COLUMNS = wire_columns_of([AGGREGATES["sum"]])
SETTINGS = ParsingSettings.model_validate({"key": {"field": "k"}, "value": {"field": "v"}, "time": {"field": "t"}})
Mode = Literal["none", "buffer", "windows"]


@dataclass(frozen=True)
class Local:
    """Settings of local aggregation of one process."""

    mode: Mode
    window_ms: int
    max_rows: int


@dataclass(frozen=True)
class Turn:
    """Records that are read as one batch, and what happens afterwards."""

    records: Sequence[bytes]
    commits: bool
    restart: Local | None


def record(key: str, time: int) -> bytes:
    return b'{"k": "%s", "v": 1, "t": %d}' % (key.encode(), time)


LATENESS_MS = (0, 7, 50)
# With these times, the watermark is often at the end of a window.
times = st.integers(0, 200) | st.builds(
    lambda panes, lateness: panes * PANE_MS + lateness, st.integers(0, 3), st.sampled_from(LATENESS_MS)
)
records = st.one_of(
    st.builds(record, st.sampled_from("abc"), times),
    st.just(b"?"),
)
locals_ = st.builds(
    Local,
    mode=st.sampled_from(["none", "buffer", "windows", "windows", "windows"]),
    window_ms=st.sampled_from([10, 15, 60]),
    max_rows=st.sampled_from([1, 3, 1000, 1000]),
)
turns = st.builds(Turn, st.lists(records, max_size=6), st.booleans(), st.none() | locals_)


class Splitters:
    """One source partition, and the splitters that process it one after another."""

    def __init__(self, event_time: EventTimeRules, local: Local) -> None:
        self.event_time = event_time
        self.log: list[bytes] = []
        self.offset, self.checkpoint = 0, ""
        self.committed: list[OutputRecord] = []
        self.pending: list[OutputRecord] = []
        self.start(local)

    def start(self, local: Local) -> None:
        """Start a splitter from the last commit; what was not committed is read again."""
        self.local = local
        row_format = RowFormat(COLUMNS, pane_ms=local.window_ms, grid_ms=PANE_MS)
        rules = LocalSplitterRules(
            event_time=self.event_time,
            tuple_format=FORMAT,
            idle_timeout_ms=None,
            drain=False,
            local=LocalRules(columns=COLUMNS, pane_ms=local.window_ms, max_rows=local.max_rows),
            row_format=row_format,
        )
        self.step = STEPS[local.mode](RecordParser(SETTINGS), rules, reports())
        self.step.assign(source(0), self.checkpoint or None, self.restored(rules))
        self.pending = []
        self.read(self.log[self.offset :])

    def restored(self, rules: LocalSplitterRules) -> RestoredRows | tuple[()]:
        held = decode_checkpoint(self.checkpoint).held
        if held is None:
            return ()
        assert held.end == self.offset
        offsets = range(held.offset, held.end)
        batches = [batch_of(0, [self.log[offset]], first=offset) for offset in offsets]
        again = read_again(batches, held, rules, RecordParser(SETTINGS))
        # The range begins with a record that has a held tuple: nothing before it is read.
        assert (again.tuples, min(one.offset for one in again.openings.values())) == (held.tuples, held.offset)
        return again

    def read(self, values: Sequence[bytes]) -> None:
        if values:
            self.pending += self.step.process(batch_of(0, values, first=len(self.log) - len(values)), NOW)

    def turn(self, turn: Turn) -> None:
        self.log += turn.records
        self.read(turn.records)
        if turn.commits:
            self.commit()
        if turn.restart is not None:
            self.start(turn.restart)

    def commit(self) -> None:
        self.committed += [*self.pending, *self.step.flush(NOW)]
        self.pending = []
        self.offset, self.checkpoint = len(self.log), self.step.checkpoint(source(0))


def sent(outputs: Sequence[OutputRecord]) -> Counter[tuple[int, str]]:
    """Count tuples by pane and key."""
    counts: Counter[tuple[int, str]] = Counter()
    for output in written(outputs, "tuples"):
        if schema_of(output.headers) == ROWS:
            for row in rows_in([output]):
                counts[row["pane"] // PANE_MS * PANE_MS, row["key"]] += row["count"]
        else:
            for key, _, time in tuples_in([output]):
                counts[time // PANE_MS * PANE_MS, key] += 1
    return counts


def first_end(time: int, rules: EventTimeRules) -> int:
    """Return the end of the first window of a time to end, by trying all of them. Without windows: after the time."""
    if rules.windows is None:
        return time + 1
    assert isinstance(rules.windows, HoppingWindows)
    size, every = rules.windows.size_ms, rules.windows.every_ms
    return min(end for end in range(time + 1, time + size + 1) if (end - size) % every == 0)


def accepted(log: Sequence[bytes], rules: EventTimeRules) -> list[tuple[str, int]]:
    """Return the tuples that are not late, by a plain loop."""
    found, newest = [], -1
    for value in log:
        if value == b"?":
            continue
        key, time = value.decode().split('"')[3], int(value.decode().rpartition(" ")[2].rstrip("}"))
        if newest < 0 or first_end(time, rules) > newest - rules.lateness_ms:
            found.append((key, time))
        newest = max(newest, time)
    return found


@given(
    lateness_ms=st.sampled_from(LATENESS_MS),
    windows=st.sampled_from(
        [None, tumbling(PANE_MS), HoppingWindows(3 * PANE_MS, PANE_MS), HoppingWindows(3 * PANE_MS, 2 * PANE_MS)]
    ),
    first=locals_,
    events=st.lists(turns, min_size=5, max_size=40),
)
def test_splitter_local_windows_any_cut_and_any_kill_sends_each_tuple_once_and_in_time(
    lateness_ms: int, windows: HoppingWindows | None, first: Local, events: Sequence[Turn]
) -> None:
    event_time = EventTimeRules(lateness_ms=lateness_ms, max_ahead_ms=0, windows=windows)
    splitters = Splitters(event_time, first)
    for event in events:
        splitters.turn(event)
        if not event.commits:
            continue
        tuples = accepted(splitters.log[: splitters.offset], event_time)
        held = decode_checkpoint(splitters.checkpoint).held
        own = splitters.step.watermark(source(0))
        counts = sent(splitters.committed)
        assert counts.total() == len(tuples) - (held.tuples if held else 0)
        # What is sent is complete below the watermark of the partition: a window of results ends as early as without.
        if own is not None:
            complete = own // PANE_MS * PANE_MS
            in_time = Counter((time // PANE_MS * PANE_MS, key) for key, time in tuples if time < complete)
            assert {(pane, key): count for (pane, key), count in counts.items() if pane < complete} == in_time
    splitters.start(Local("none", 10, 1))
    splitters.commit()
    counted = Counter((time // PANE_MS * PANE_MS, key) for key, time in accepted(splitters.log, event_time))
    assert sent(splitters.committed) == counted
    check_watermarks(splitters.committed, event_time)


def check_watermarks(outputs: Sequence[OutputRecord], rules: EventTimeRules) -> None:
    """Check that watermarks never decrease, and that no window closes before its last row."""
    watermark = -(2**53)
    for output in written(outputs, "tuples"):
        if output.value is not None:
            panes = {pane for pane, _ in sent([output])}
            assert all(first_end(pane + PANE_MS - 1, rules) > watermark for pane in panes)
        reported = watermarks_in([output])[0].get(0, watermark)
        assert reported >= watermark
        watermark = reported
