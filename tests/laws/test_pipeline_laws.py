"""The whole pure pipeline equals a plain loop under any batches, flushes, kills, rebalances and pauses."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers import batches
from helpers.aggregates import ADDED, digits_of, newest_of, results
from helpers.batches import json_values_in, reasons_in, repeated
from helpers.in_memory_pipeline import WALL_CLOCK, Stage, Topic
from skewless.algorithms import grouping, local_buffer, record_size
from skewless.algorithms.aggregates import PartialColumn, columns_of, default_fields
from skewless.algorithms.local_buffer import LocalRules
from skewless.algorithms.windowing import window
from skewless.algorithms.windowing.assigner import HoppingWindows, WindowAssigner, tumbling
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.engine.executor import State
from skewless.engine.step import InputStep, Step
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules
from skewless.stages.aggregator.step import AggregatorRules, AggregatorStep, SessionStep
from skewless.stages.event_time import committed_state
from skewless.stages.observer.step import ObserverRules, ObserverStep
from skewless.stages.router.step import RouterStep
from skewless.stages.router.upstream import Upstream
from skewless.stages.splitter.checkpoint import decode_checkpoint
from skewless.stages.splitter.local_step import STEPS, LocalSplitterRules
from skewless.stages.splitter.reports import SourceReports
from skewless.stages.splitter.restore import read_again
from skewless.stages.splitter.step import SplitterStep
from skewless.stages.worker import step as worker_step
from skewless.stages.worker.step import WorkerStep
from skewless.wire.headers import idle_of, watermarks_of
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.rows import RowFormat

RESULTS = (*results("count", "sum", "mean", "min", "max"), *default_fields(ADDED))
"""The results of the package, and two of another package with binary partials."""
FORMAT = ParsingSettings.model_validate(
    {"format": "json", "key": {"field": "k[]"}, "value": {"field": "v"}, "time": {"field": "t"}}
)
LOCAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("none", {"max_rows": 1}),
    ("buffer", {"max_rows": 1000}),
    ("buffer", {"max_rows": 3, "adaptive": True}),
    ("windows", {"max_rows": 1000}),
    ("windows", {"max_rows": 3}),
)
"""Mode and rules of local aggregation: one that flushes before commits only, one that is often full, and so on."""
DIVISORS = {7: 7, 50: 5, 100: 5}
"""Length of a pane in ms, and by what the shorter ones are shorter."""
STAGES = ("splitter", "router", "worker", "aggregator", "observer")


@dataclass(frozen=True)
class SourceRecord:
    """One record of the source. Without keys it has no tuples; `invalid` makes it invalid."""

    partition: int
    keys: tuple[str, ...]
    value: int
    time: int
    invalid: bool

    def encode(self) -> bytes:
        if self.invalid:
            return b"?"
        return json.dumps({"k": self.keys, "v": self.value, "t": self.time}).encode()


@dataclass(frozen=True)
class Setup:
    """Settings that a user may choose."""

    sources: int
    workers: int
    max_workers: int
    partitions: int
    pane_ms: int
    panes: int
    lateness_ms: int
    idle_timeout_ms: int | None
    updates: bool
    encoding: str
    grouping: str
    record_bytes: int
    snapshot_ms: int = 1
    every_panes: int | None = None
    """From the start of a window to the next one; None, or more than `panes`: tumbling windows."""
    offset_panes: int = 0
    emit_interval_ms: int = 0
    local: int = 0
    """Index of the local aggregation in LOCAL."""
    local_changes: bool = False
    """Whether each splitter has another one than the splitter before."""
    late_by_window: bool = True
    """Whether the end of its first window makes a tuple late, not its time. For sessions both are the same."""
    gap_ms: int | None = None
    """In addition to the length of a pane: the gap of sessions. None: other windows."""

    @property
    def window_ms(self) -> int:
        return self.pane_ms * self.panes * (1 if self.gap_ms is None else 10)

    @property
    def every_ms(self) -> int:
        return min(self.pane_ms * (self.every_panes or self.panes), self.window_ms)

    @property
    def offset_ms(self) -> int:
        return self.pane_ms * self.offset_panes % self.every_ms

    @property
    def sessions(self) -> SessionWindows | None:
        return None if self.gap_ms is None else SessionWindows(self.pane_ms + self.gap_ms, self.window_ms)

    @property
    def windows(self) -> WindowAssigner:
        return self.sessions or HoppingWindows(self.window_ms, self.every_ms, self.offset_ms)

    @property
    def ticks_are_windows(self) -> bool:
        return self.windows == tumbling(self.window_ms)

    def windows_of(self, time: int) -> list[int]:
        """Start of each window that contains a time, by trying all of them."""
        first = time - self.window_ms + 1
        return [start for start in range(first, time + 1) if (start - self.offset_ms) % self.every_ms == 0]


@dataclass(frozen=True)
class Move:
    """One event: `what` happens to a process of a stage. Numbers are taken modulo the number of choices."""

    what: str
    stage: str
    process: int
    partition: int
    amount: int


source_records = st.builds(
    SourceRecord,
    partition=st.integers(0, 5),
    keys=st.lists(st.sampled_from(["a", "b", "c", "d/1", "é"]), max_size=3).map(tuple),
    value=st.integers(-5, 5),
    time=st.integers(0, 60),
    invalid=st.sampled_from([False] * 9 + [True]),
)
setups = st.builds(
    Setup,
    sources=st.integers(1, 3),
    workers=st.integers(1, 3),
    max_workers=st.integers(3, 4),
    partitions=st.integers(1, 3),
    pane_ms=st.sampled_from([7, 50, 100]),
    panes=st.integers(1, 3),
    lateness_ms=st.sampled_from([0, 30, 1000]),
    late_by_window=st.booleans(),
    idle_timeout_ms=st.sampled_from([None, 1000]),
    updates=st.booleans(),
    encoding=st.sampled_from(["batch", "record"]),
    grouping=st.sampled_from(sorted(grouping.GROUPINGS)),
    record_bytes=st.sampled_from([1, 4 * 2**20]),
    snapshot_ms=st.sampled_from([0, 1000, 10**9]),
    every_panes=st.sampled_from([None, None, 1, 2]),
    offset_panes=st.sampled_from([0, 0, 1]),
    emit_interval_ms=st.sampled_from([0, 0, 3, 10**6]),
    local=st.integers(0, len(LOCAL) - 1),
    local_changes=st.booleans(),
    gap_ms=st.sampled_from([None, None, 0, 5]),
)
moves = st.builds(
    Move,
    what=st.sampled_from(
        ["turn"] * 6
        + ["read", "commit", "abort", "abort", "kill", "kill", "rebalance", "wait", "wait", "resize"]
        + ["grow"]
    ),
    stage=st.sampled_from(STAGES),
    process=st.integers(0, 3),
    partition=st.integers(0, 3),
    amount=st.integers(1, 4),
)


@dataclass(frozen=True)
class Period:
    """A period of a run. Processes (stage, number) in `away` read nothing, and their input waits."""

    feeds: int
    waits: bool
    away: frozenset[tuple[str, int]]
    restarts: str | None
    """A stage that is killed and restarted before the period."""
    batch: int
    """Number of records of a partition that are read at once."""
    commits: bool
    """Whether there is a commit after each batch."""


periods = st.builds(
    Period,
    feeds=st.sampled_from([0, 3, 10]),
    waits=st.booleans(),
    away=st.frozensets(st.tuples(st.sampled_from(STAGES), st.integers(0, 2)), max_size=4),
    restarts=st.sampled_from([None] * 10 + list(STAGES)),
    batch=st.sampled_from([1, 2, 100]),
    commits=st.booleans(),
)


class Pipeline:
    """All stages, with topics in memory."""

    def __init__(self, setup: Setup, feed: Sequence[SourceRecord]) -> None:
        self.setup = setup
        self.feed = list(feed)
        self.fed: list[SourceRecord] = []
        """The records that the source has, with the partitions that they were written to."""
        self.now = WALL_CLOCK
        self.drain = False
        self.workers = setup.workers
        self.splitters = 0
        """Number of splitters so far."""
        self.splitter_rules: dict[InputStep[Any], LocalSplitterRules] = {}
        """Rules of each splitter, by which it also reads held tuples again."""
        self.reread = 0
        """Number of records that splitters have read again."""
        counts = {
            "source": setup.sources,
            "tuples": setup.sources,
            "late": setup.sources,
            "router-state": setup.sources,
            "dead-letters": setup.sources,
            "worker-input": setup.max_workers,
            "distribution": 1,
        }
        others = dict.fromkeys(
            ("partials", "aggregator-changelog", "aggregates", "observer-changelog"), setup.partitions
        )
        self.topics = {name: Topic(partitions) for name, partitions in (counts | others).items()}
        sources = ("source", "tuples", "worker-input", "partials", "partials")
        builders: tuple[Callable[[], InputStep[Any]], ...] = (
            self.splitter,
            self.router,
            self.worker,
            self.aggregator,
            self.observer,
        )
        self.stages = {
            name: Stage(name, self.topics, source, build, self.read_again)
            for name, source, build in zip(STAGES, sources, builders, strict=True)
        }

    def splitter(self) -> SplitterStep:
        setup = self.setup
        self.splitters += 1
        mode, chosen = LOCAL[(setup.local + self.splitters * setup.local_changes) % len(LOCAL)]
        # Every other splitter has shorter panes or local windows, as after a change of the setting.
        pane_ms = setup.pane_ms // (1 if self.splitters % 2 else DIVISORS[setup.pane_ms])
        row_format = self.row_format(pane_ms)
        rules = LocalSplitterRules(
            event_time=EventTimeRules(
                lateness_ms=setup.lateness_ms, max_ahead_ms=0, windows=setup.windows if setup.late_by_window else None
            ),
            tuple_format=batches.FORMAT,
            idle_timeout_ms=setup.idle_timeout_ms,
            drain=self.drain,
            local=LocalRules(columns=row_format.columns, pane_ms=pane_ms, **chosen),
            row_format=row_format,
        )
        step = STEPS[mode](RecordParser(FORMAT), rules, SourceReports(setup.sources, "source"))
        self.splitter_rules[step] = rules
        return step

    def read_again(self, step: InputStep[Any], partition: int, checkpoint: str | None) -> State:
        """Restore a partition of a splitter, as `restore_from` does."""
        rules = self.splitter_rules.get(step)
        held = None if rules is None else decode_checkpoint(checkpoint).held
        if rules is None or held is None:
            return ()
        source, offset = self.topics["source"], held.offset
        read: list[Batch] = []
        while offset < held.end:
            batch, offset = source.read(partition, offset, min(3, held.end - offset)) or (None, held.end)
            read += [batch] if batch else []
        again = read_again(read, held, rules, RecordParser(FORMAT))
        assert again.tuples == held.tuples
        assert min(opening.offset for opening in again.openings.values()) == held.offset
        self.reread += again.records
        return again

    def row_format(self, pane_ms: int) -> RowFormat:
        return RowFormat(self.columns, pane_ms=pane_ms, grid_ms=self.setup.pane_ms)

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (*columns_of(RESULTS), *self.setup.windows.columns)

    def router(self) -> Step:
        setup = self.setup
        return RouterStep(
            grouping.create(setup.grouping, self.workers),
            batches.FORMAT,
            self.row_format(setup.pane_ms),
            max_workers=setup.max_workers,
            encoding=setup.encoding,
            topic="tuples",
            snapshot_ms=setup.snapshot_ms,
            new_upstream=lambda partition, checkpoint: Upstream(partition, setup.sources, checkpoint, "source"),
        )

    def worker(self) -> Step:
        return WorkerStep(
            self.columns,
            batches.FORMAT,
            self.row_format(self.setup.pane_ms),
            pane_ms=self.setup.pane_ms,
            source_partitions=self.setup.sources,
            aggregator_partitions=self.setup.partitions,
            topic="worker-input",
        )

    def aggregator(self) -> Step:
        setup = self.setup
        rules = AggregatorRules(
            RESULTS,
            self.columns,
            setup.windows,
            closed_window_retention_ms=10**6,
            updates=setup.updates,
            emit_interval_ms=setup.emit_interval_ms if setup.updates and not setup.sessions else 0,
        )
        step_type = SessionStep if setup.sessions else AggregatorStep
        return step_type(rules, worker_partitions=self.setup.max_workers, topic="partials")

    def observer(self) -> Step:
        rules = ObserverRules(self.setup.window_ms, self.workers, top_keys=3, grouping=self.setup.grouping)
        setup = self.setup
        return ObserverStep(
            rules, worker_partitions=setup.max_workers, aggregator_partitions=setup.partitions, topic="partials"
        )

    @property
    def may_reopen(self) -> bool:
        """Whether windows may close before all of their tuples are known."""
        return self.setup.idle_timeout_ms is not None or self.topics["source"].partitions > self.setup.sources

    def make(self, move: Move) -> None:
        stage = self.stages[move.stage]
        process = stage.processes[move.process % len(stage.processes)]
        owned = sorted(process.offsets)
        self.now += 1
        if move.what == "turn":
            self.turn(move)
        elif move.what == "wait":
            self.now += 1000
        elif move.what == "resize":
            self.resize(move)
        elif move.what == "grow":
            self.stages["splitter"].grow(move.process)
        elif move.what == "commit":
            stage.commit(process, self.now)
        elif move.what == "abort":
            stage.abort_transaction(process)
        elif move.what == "read":
            if owned:
                stage.read(process, owned[move.partition % len(owned)], move.amount, self.now)
        else:
            processes = 1 if move.stage == "observer" else move.amount
            stage.rebalance(processes, commit=move.what == "rebalance", now=self.now)

    def resize(self, move: Move) -> None:
        """Change W in one process after another: in the moved one, and in all that start later."""
        self.workers = 1 + move.amount % self.setup.max_workers
        for name in ("router", "observer"):
            processes = self.stages[name].processes
            processes[move.process % len(processes)].step.set_workers(self.workers)

    def turn(self, move: Move) -> None:
        """Feed and process a few records in all stages, but let one of them not commit."""
        self.feed_some(move.amount * 2)
        for stage in self.stages.values():
            for process in stage.processes:
                for partition in process.offsets:
                    stage.read(process, partition, move.amount * 2, self.now)
                if stage.name != move.stage:
                    stage.commit(process, self.now)

    def feed_some(self, amount: int) -> None:
        some, self.feed = self.feed[:amount], self.feed[amount:]
        source = self.topics["source"]
        for source_record in some:
            partition = source_record.partition % source.partitions
            source.append(OutputRecord("source", source_record.encode(), partition=partition))
            self.fed.append(replace(source_record, partition=partition))

    def live_through(self, period: Period) -> None:
        """Feed, advance time, and run each stage once, except the processes that are away."""
        if period.restarts:
            stage = self.stages[period.restarts]
            stage.rebalance(len(stage.processes), commit=False, now=self.now)
        self.feed_some(period.feeds)
        self.now += 1000 if period.waits else 1
        for stage in self.stages.values():
            for number, process in enumerate(stage.processes):
                if (stage.name, number) in period.away:
                    continue
                for partition in process.offsets:
                    while stage.read(process, partition, period.batch, self.now):
                        if period.commits:
                            stage.commit(process, self.now)
                stage.commit(process, self.now)

    def run_out(self, away: Collection[str] = ()) -> None:
        """Let every stage process all of its input, except the processes that are away."""
        for _ in range(20):
            moved = [stage.run_out(self.now) for stage in self.stages.values() if stage.name not in away]
            if not any(moved):
                return
        raise AssertionError("stages always have input")

    def finish(self) -> None:
        """End as a bounded run does: the source is complete, and the splitter drains."""
        self.feed_some(len(self.feed))
        self.drain = True
        self.stages["splitter"].rebalance(1, commit=False, now=self.now)
        self.run_out()
        for stage in self.stages.values():
            for process in stage.processes:
                assert all(process.step.finished(process.key_of(partition)) for partition in process.offsets)


@dataclass
class Answer:
    """Expected results of a plain loop over the source."""

    groups: dict[str, list[tuple[int, int]]]
    """Time and value of each tuple, by window and key."""
    late: list[tuple[int, int, str]]
    invalid: list[tuple[int, int]]
    tuples: int = 0
    """Tuples that are not late."""


def expected_of(setup: Setup, feed: Sequence[SourceRecord]) -> Answer:
    answer = Answer(defaultdict(list), [], [])
    newest: dict[int, int] = {}
    offsets: dict[int, int] = defaultdict(int)
    for source_record in feed:
        partition = source_record.partition
        offset = offsets[partition]
        offsets[partition] += 1
        if source_record.invalid:
            answer.invalid.append((partition, offset))
            continue
        windows = [0] if setup.sessions else setup.windows_of(source_record.time)
        by_time = setup.sessions is not None or not setup.late_by_window
        deadline = source_record.time if by_time else windows[0] + setup.window_ms - 1
        if deadline < newest.get(partition, source_record.time) - setup.lateness_ms:
            answer.late += [(partition, offset, key) for key in source_record.keys]
        else:
            answer.tuples += len(source_record.keys)
            for key, start in itertools.product(source_record.keys, windows):
                answer.groups[f"{start}/{key}"].append((source_record.time, source_record.value))
        newest[partition] = max(source_record.time, newest.get(partition, source_record.time))
    return answer


def sessions_of(setup: Setup, groups: dict[str, list[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
    """Cut the tuples of each key where no tuple comes within the gap, and at multiples of the maximum length."""
    windows = setup.sessions
    sessions: dict[str, list[tuple[int, int]]] = {}
    assert windows is not None
    for name, tuples in groups.items():
        ordered = sorted(tuples)
        for at, (time, value) in enumerate(ordered):
            before = ordered[at - 1][0]
            if at == 0 or time - before >= windows.gap_ms or time // windows.max_ms != before // windows.max_ms:
                session = sessions[f"{time}/{name.partition('/')[2]}"] = []
            session.append((time, value))
    return sessions


def end_of(setup: Setup, start: int, tuples: list[tuple[int, int]]) -> int:
    windows = setup.sessions
    if windows is None:
        return start + setup.window_ms
    return min(max(tuples)[0] + windows.gap_ms, (start // windows.max_ms + 1) * windows.max_ms)


def expected(setup: Setup, groups: dict[str, list[tuple[int, int]]]) -> dict[str, dict[str, Any]]:
    records = {}
    for name, tuples in (sessions_of(setup, groups) if setup.sessions else groups).items():
        start, _, key = name.partition("/")
        values = [value for _, value in tuples]
        records[name] = {
            "key": key,
            "window_start": int(start),
            "window_end": end_of(setup, int(start), tuples),
            "count": len(values),
            "sum": sum(values),
            "mean": sum(values) / len(values),
            "min": min(values),
            "max": max(values),
            "digits": digits_of(values),
            "newest": newest_of(tuples),
        }
    return records


def check_results(pipeline: Pipeline) -> tuple[Answer, dict[str, int]]:
    """Check everything but when it was emitted. Returns the answer, and the revision of each result."""
    answer = expected_of(pipeline.setup, pipeline.fed)
    latest = pipeline.topics["aggregates"].latest()
    found = {key.decode(): msgspec.json.decode(value) for key, value in latest.items()}
    revisions = {key: record.pop("revision") for key, record in found.items()}
    assert found == expected(pipeline.setup, answer.groups)
    late = [(row["partition"], row["offset"], row["key"]) for row in json_values_in(pipeline.topics["late"].all())]
    assert sorted(late) == sorted(answer.late)
    dead_letters = pipeline.topics["dead-letters"].all()
    assert sorted(offset for offset, _ in reasons_in(dead_letters)) == sorted(offset for _, offset in answer.invalid)
    return answer, revisions


def check(pipeline: Pipeline) -> None:
    setup, (answer, revisions) = pipeline.setup, check_results(pipeline)
    emitted = [output.key.decode() for output in pipeline.topics["aggregates"].all() if output.key]
    if setup.updates:
        assert revisions == {key: emitted.count(key) - 1 for key in revisions}
    elif not pipeline.may_reopen:
        assert repeated(emitted) == []
        assert set(revisions.values()) <= {0}
    else:
        # The first result of a key that a closed window did not have is a correction.
        assert all(revision in {emitted.count(key) - 1, emitted.count(key)} for key, revision in revisions.items())
    check_ticks(pipeline, answer)


def check_ticks(pipeline: Pipeline, answer: Answer) -> None:
    ticks = json_values_in(pipeline.topics["distribution"].all())
    assert repeated(tick["tick_start"] for tick in ticks) == []
    everything = answer.tuples
    if not pipeline.may_reopen:
        assert sum(tick["tuples"] for tick in ticks) == everything
        assert [tick["tick_start"] for tick in ticks] == sorted(tick["tick_start"] for tick in ticks)
    if ticks and not pipeline.may_reopen:
        assert ticks[-1]["run"]["tuples"] == everything


@pytest.fixture(scope="module", autouse=True)
def small_bounds() -> Iterator[None]:
    """Lower the bounds, so that a few tuples reach them: early reductions, compaction and split records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_step, "BUFFER_ROWS", 4)
        patch.setattr(window, "COMPACTION_THRESHOLD", 3)
        patch.setattr(local_buffer, "PROBE_BATCHES", 2)
        yield


# Without shrinking: it takes longer than a test may, and a failing example is readable as it is.
@settings(max_examples=settings().max_examples * 3 // 2, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    setup=setups,
    feed=st.lists(source_records, min_size=10, max_size=80),
    events=st.lists(moves, min_size=10, max_size=60),
)
def test_pipeline_any_sequence_of_events_gives_exact_results(
    setup: Setup, feed: list[SourceRecord], events: list[Move]
) -> None:
    # Partitions ahead of others. If one of the others was idle and becomes active, its windows are already closed.
    feed = [replace(one, time=one.time + 5 * at + 150 * (one.partition % 3)) for at, one in enumerate(feed)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_size, "RECORD_BYTES", setup.record_bytes)
        pipeline = Pipeline(setup, feed)
        for move in events:
            pipeline.make(move)
        pipeline.finish()
    check(pipeline)


@pytest.mark.parametrize("updates", [True, False])
@pytest.mark.parametrize("kill", [True, False])
def test_pipeline_idle_partition_becomes_active_corrects_closed_windows(*, updates: bool, kill: bool) -> None:
    setup = Setup(2, 2, 3, 2, 50, 1, 0, 1000, updates, "batch", "shuffle", 4 * 2**20)
    times = [(0, 10), (1, 500), (1, 505), (0, 20), (1, 510)]
    feed = [SourceRecord(partition, ("a", "b"), 1, time, invalid=False) for partition, time in times]
    pipeline = Pipeline(setup, feed)
    for amount in (2, 1, 1, 1):
        pipeline.feed_some(amount)
        pipeline.run_out()
        pipeline.now += 1000
        if kill:
            for name in STAGES[1:]:
                pipeline.stages[name].rebalance(1, commit=False, now=pipeline.now)
    pipeline.finish()
    check(pipeline)
    latest = pipeline.topics["aggregates"].latest()
    assert msgspec.json.decode(latest[b"0/a"])["revision"] == 1


@dataclass
class Reported:
    """Watermarks of the splitter in `tuples`. Every reader sees their order within a partition."""

    watermarks: dict[int, int] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    woke: bool = False
    """Whether an idle partition became active again."""

    def reached(self, sources: int) -> int | None:
        """Event time below which windows must be closed; None if none may be."""
        active = set(range(sources)) - self.idle
        if not active <= self.watermarks.keys():
            return None
        return min((self.watermarks[at] for at in active), default=max(self.watermarks.values(), default=None))


def reported(tuples: Topic) -> Reported:
    found = Reported()
    for partition in sorted(tuples.logs):
        for _, record in tuples.logs[partition]:
            watermarks, idle = watermarks_of(record.headers), idle_of(record.headers)
            assert watermarks.keys() | idle <= {partition}
            found.woke = found.woke or bool(watermarks.keys() & found.idle - idle)
            found.watermarks |= watermarks
            found.idle = (found.idle - watermarks.keys()) | idle
    return found


def check_live(pipeline: Pipeline, fed: Sequence[SourceRecord]) -> None:
    """Check a run whose stages have no input left: windows below the source's watermark are complete, and no others."""
    setup, reports = pipeline.setup, reported(pipeline.topics["tuples"])
    reached = reports.reached(setup.sources)
    highest = max(reports.watermarks.values(), default=None)
    expected_results = expected(setup, expected_of(setup, pipeline.fed).groups)
    found = {key.decode(): msgspec.json.decode(value) for key, value in pipeline.topics["aggregates"].latest().items()}
    revisions = {key: record.pop("revision") for key, record in found.items()}
    ticks = json_values_in(pipeline.topics["distribution"].all())
    assert repeated(tick["tick_start"] for tick in ticks) == []
    if setup.sessions and reports.woke:
        # A tuple of a partition that was idle can open a closed session again.
        found = {key: found[key] for key in found.keys() & closed_by(highest, expected_results)}
    assert found == {key: expected_results[key] for key in found}
    assert closed_by(reached, expected_results) <= found.keys() <= closed_by(highest, expected_results)
    # Local windows delay no result: the windows below the watermark that is sent are those below the splitter's own.
    # But a session may end within a local window.
    closed_by_own = closed_by(own_watermark(pipeline, reports.idle), expected_results)
    assert closed_by_own >= closed_by(reached, expected_results)
    if not setup.sessions or (LOCAL[setup.local][0] != "windows" and not setup.local_changes):
        assert closed_by_own == closed_by(reached, expected_results)
    # If no partition became active again, or only one has records, no window closes too early.
    if setup.sources == 1 or not reports.woke:
        assert found.keys() == closed_by(reached, expected_results)
        assert set(revisions.values()) <= {0}
        if setup.ticks_are_windows:
            assert {tick["tick_start"]: tick["tuples"] for tick in ticks} == tuples_by_window(found.values())


def own_watermark(pipeline: Pipeline, idle: Collection[int]) -> int | None:
    """Return the minimum of the watermarks of the source partitions, as the splitters have committed them."""
    committed, sources = pipeline.stages["splitter"].committed, range(pipeline.setup.sources)
    checkpoints = {at: decode_checkpoint(committed.get(at, (0, None))[1]) for at in sources}
    own = {at: committed_state(each, pipeline.setup.lateness_ms).watermark for at, each in checkpoints.items()}
    return Reported({at: watermark for at, watermark in own.items() if watermark is not None}, set(idle)).reached(
        pipeline.setup.sources
    )


def closed_by(watermark: int | None, results: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {key for key, record in results.items() if watermark is not None and record["window_end"] <= watermark}


def tuples_by_window(results: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    tuples: dict[int, int] = defaultdict(int)
    for record in results:
        tuples[record["window_start"]] += record["count"]
    return tuples


live_setups = st.builds(
    replace, setups, idle_timeout_ms=st.just(1000), updates=st.just(False), sources=st.sampled_from([1, 1, 2, 3])
)


@settings(max_examples=settings().max_examples * 3 // 5, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    setup=live_setups,
    processes=st.fixed_dictionaries({name: st.integers(1, 3) for name in STAGES[:-1]}),
    feed=st.lists(source_records, min_size=30, max_size=60),
    events=st.lists(periods, min_size=5, max_size=15),
)
def test_pipeline_endless_run_is_complete_up_to_the_watermark_of_the_source(
    setup: Setup, processes: dict[str, int], feed: list[SourceRecord], events: list[Period]
) -> None:
    feed = [replace(one, time=one.time + 25 * at + 150 * one.partition) for at, one in enumerate(feed)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_size, "RECORD_BYTES", setup.record_bytes)
        pipeline = Pipeline(setup, feed)
        for name, number in processes.items():
            pipeline.stages[name].rebalance(number, commit=False, now=pipeline.now)
        for period in events:
            pipeline.live_through(period)
        pipeline.run_out()
        fed = feed[: len(feed) - len(pipeline.feed)]
        check_live(pipeline, fed)
        # When all partitions are idle, the same windows close in all runs: those below the highest watermark.
        pipeline.now += 1000
        pipeline.run_out()
        check_live(pipeline, fed)
        reports = reported(pipeline.topics["tuples"])
        assert reports.idle == set(range(setup.sources))
        assert reports.reached(setup.sources) == max(reports.watermarks.values(), default=None)
        pipeline.finish()
    check(pipeline)


IDLE_SETUP = Setup(2, 2, 3, 2, 50, 1, 0, 1000, False, "batch", "shuffle", 4 * 2**20)


@pytest.mark.parametrize("away", STAGES[1:])
@pytest.mark.parametrize("lower", [0, 1])
def test_pipeline_watermark_and_idle_in_one_batch_close_the_windows_of_the_watermark(away: str, lower: int) -> None:
    times = [(lower, 10), (1 - lower, 20), (1 - lower, 210), (lower, 60)]
    feed = [SourceRecord(partition, ("a", "b"), 1, time, invalid=False) for partition, time in times]
    pipeline = Pipeline(IDLE_SETUP, feed)
    pipeline.feed_some(len(feed))
    pipeline.run_out({away})
    pipeline.now += 1000
    pipeline.run_out({away})
    pipeline.run_out()
    assert {tick["tick_start"] for tick in json_values_in(pipeline.topics["distribution"].all())} == {0, 50}
    assert set(pipeline.topics["aggregates"].latest()) == {b"0/a", b"0/b", b"50/a", b"50/b"}


def test_pipeline_idle_worker_partition_with_unread_input_holds_windows_open() -> None:
    setup = replace(IDLE_SETUP, sources=1, workers=3)
    feed = [SourceRecord(0, (f"{number}",), 1, time, invalid=False) for time in (10, 20, 260) for number in range(9)]
    pipeline = Pipeline(setup, feed)
    pipeline.stages["worker"].rebalance(3, commit=False, now=pipeline.now)
    pipeline.feed_some(9)
    pipeline.run_out()
    pipeline.now += 1000
    pipeline.run_out()
    for _ in range(3):
        pipeline.live_through(Period(18, False, frozenset({("worker", 1)}), None, 100, commits=False))
    pipeline.run_out()
    (tick,) = json_values_in(pipeline.topics["distribution"].all())
    assert (tick["tick_start"], tick["tuples"]) == (0, 18)
    revisions = [row["revision"] for row in json_values_in(pipeline.topics["aggregates"].all())]
    assert revisions == [0] * 9


def test_pipeline_partition_that_was_empty_in_a_bounded_run_keeps_windows_of_the_next_run_open() -> None:
    times = [(0, 10), (0, 60), (0, 400), (1, 120)]
    feed = [SourceRecord(partition, ("a",), 1, time, invalid=False) for partition, time in times]
    pipeline = Pipeline(replace(IDLE_SETUP, workers=1), feed)
    splitter = pipeline.stages["splitter"]
    pipeline.feed_some(1)
    pipeline.drain = True
    splitter.rebalance(1, commit=False, now=pipeline.now)
    pipeline.run_out()
    assert set(pipeline.topics["aggregates"].latest()) == {b"0/a"}
    pipeline.drain = False
    splitter.rebalance(2, commit=False, now=pipeline.now)
    for process in splitter.processes:
        splitter.commit(process, pipeline.now)
    pipeline.feed_some(2)
    pipeline.run_out()
    assert set(pipeline.topics["aggregates"].latest()) == {b"0/a"}
    pipeline.finish()
    check(pipeline)
    assert {row["revision"] for row in json_values_in(pipeline.topics["aggregates"].all())} == {0}


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("restarts", [None, "router", "worker", "aggregator"])
@pytest.mark.parametrize("away", ["splitter", "router", "worker"])
def test_pipeline_run_after_a_bounded_run_waits_for_each_partition(
    away: str, restarts: str | None, *, drains: bool, interrupted: bool
) -> None:
    """The bounded run is interrupted when partition 0 has ended and partition 1 has not begun."""
    days = [(partition, day * 86_400_000) for day in range(4) for partition in range(2)]
    feed = [SourceRecord(partition, tuple("abcdefgh"), 1, time, invalid=False) for partition, time in days]
    pipeline = Pipeline(replace(IDLE_SETUP, idle_timeout_ms=None), feed)
    pipeline.feed_some(2)
    pipeline.drain = True
    pipeline.stages["splitter"].rebalance(2, commit=False, now=pipeline.now)
    if interrupted:
        pipeline.live_through(Period(0, False, frozenset({("splitter", 1)}), None, 100, commits=True))
    else:
        pipeline.run_out()
    pipeline.drain = drains
    for name in STAGES:
        pipeline.stages[name].rebalance(1 if name == "observer" else 2, commit=False, now=pipeline.now)
    for feeds in (4, 2, 0, 0):
        pipeline.live_through(Period(feeds, False, frozenset({(away, 1 - interrupted)}), restarts, 100, commits=True))
    pipeline.run_out()
    pipeline.finish()
    if drains:  # where a stage is at its end before all records have reached it, so that windows and ticks close early
        check_results(pipeline)
    else:
        check(pipeline)


def test_pipeline_idle_partition_that_ends_keeps_windows_of_other_partitions_open() -> None:
    setup = replace(IDLE_SETUP, workers=1)
    feed = [SourceRecord(partition, ("a",), 1, time, invalid=False) for partition, time in [(0, 10), (1, 20), (1, 30)]]
    pipeline = Pipeline(setup, feed)
    pipeline.feed_some(2)
    pipeline.run_out()
    pipeline.now += 1000
    pipeline.run_out()
    pipeline.drain = True
    splitter = pipeline.stages["splitter"]
    splitter.rebalance(2, commit=False, now=pipeline.now)
    pipeline.feed_some(1)
    splitter.commit(splitter.processes[0], pipeline.now)
    pipeline.run_out({"splitter"})
    assert json_values_in(pipeline.topics["aggregates"].all()) == []
    pipeline.finish()
    check(pipeline)
    (result,) = json_values_in(pipeline.topics["aggregates"].all())
    assert (result["count"], result["revision"]) == (3, 0)
