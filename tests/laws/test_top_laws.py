"""The ranks of each window equal those of a plain loop, for any records, emissions, kills and rebalances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.aggregates import results
from helpers.asyncapi import Records
from helpers.in_memory_pipeline import WALL_CLOCK, Stage, Topic
from helpers.kafka import Record
from skewless.algorithms.aggregates import ResultCondition, wire_columns_of
from skewless.algorithms.partials import to_partials
from skewless.algorithms.ranking import Ranking
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState
from skewless.algorithms.windowing import window
from skewless.algorithms.windowing.assigner import HoppingWindows
from skewless.asyncapi.document import document
from skewless.stages.aggregator.ranker_step import RankerStep
from skewless.stages.aggregator.ranking_step import RankingStep
from skewless.stages.aggregator.step import AggregatorRules, AggregatorStep
from skewless.wire.changelog import window_of
from skewless.wire.headers import headers_with, watermarks_of
from skewless.wire.partials import PARTIALS, write_partials
from skewless.wire.record import OutputRecord

RESULTS = results("count", "sum", "mean", "min")
STAGES = ("aggregator", "ranker")
PANE_MS = 10


@dataclass(frozen=True)
class Setup:
    """Settings that a user may choose."""

    partitions: int
    panes: int
    every_panes: int
    n: int
    by: str
    updates: bool
    selects: bool
    """Whether `aggregator.having` selects the keys with a sum of at least 0."""
    text: bool
    interval_ms: int
    ranked: bool
    """Whether keys are ranked from the beginning on, not from a restart of the aggregators on."""
    retention_ms: int = 10**6
    lateness_ms: int = 0

    @property
    def windows(self) -> HoppingWindows:
        return HoppingWindows(PANE_MS * self.panes, PANE_MS * min(self.every_panes, self.panes))

    @property
    def conditions(self) -> Sequence[ResultCondition]:
        return [ResultCondition(RESULTS[1], "at_least", 0)] if self.selects and not self.updates else []


@dataclass(frozen=True)
class Tuples:
    """Tuples of one record of partials, and by how much it advances the watermark of its partition."""

    keys: tuple[str, ...]
    value: int
    time: int
    advance: int


@dataclass(frozen=True)
class Move:
    """One event: `what` happens to a process of a stage. Numbers are taken modulo the number of choices."""

    what: str
    stage: str
    process: int
    amount: int


setups = st.builds(
    Setup,
    partitions=st.integers(1, 3),
    panes=st.integers(1, 3),
    every_panes=st.integers(1, 3),
    n=st.integers(1, 4),
    by=st.sampled_from([result.name for result in RESULTS]),
    updates=st.booleans(),
    selects=st.booleans(),
    text=st.booleans(),
    interval_ms=st.sampled_from([0, 0, 3, 10**6]),
    ranked=st.sampled_from([True, True, True, False]),
)
tuples = st.builds(
    Tuples,
    keys=st.lists(st.sampled_from(["a", "b", "c", "d/1", "é", "zz", 'q"']), min_size=1, max_size=4).map(tuple),
    value=st.integers(-3, 3) | st.integers(-(2**62), 2**62),
    time=st.integers(0, 25),
    advance=st.sampled_from([0, 0, 5, 20]),
)
moves = st.builds(
    Move,
    what=st.sampled_from(["turn"] * 6 + ["feed", "read", "read", "commit", "abort", "kill", "rebalance", "rank"]),
    stage=st.sampled_from(STAGES),
    process=st.integers(0, 2),
    amount=st.integers(1, 4),
)


class Model:
    """Aggregators and ranker, with topics in memory."""

    def __init__(self, setup: Setup, feed: Sequence[Tuples]) -> None:
        self.setup, self.feed, self.fed = setup, list(feed), list[tuple[str, int, int]]()
        self.now = WALL_CLOCK
        self.watermarks = dict.fromkeys(range(setup.partitions), 0)
        self.ranked, self.ranked_from = setup.ranked, 0
        """Whether keys are ranked, and the end of windows from which on all of their tuples are."""
        self.reopens = False
        """Whether a tuple is behind the watermark of its partition."""
        counts = dict.fromkeys(("partials", "aggregates", "aggregator-changelog"), setup.partitions)
        counts |= dict.fromkeys(("top-candidates", "top", "ranker-changelog", "dead-letters"), 1)
        self.topics = {name: Topic(count) for name, count in counts.items()}
        sources: dict[str, tuple[str, Callable[[], Any]]] = {
            "aggregator": ("partials", self.aggregator),
            "ranker": ("top-candidates", self.ranker),
        }
        self.stages = {name: Stage(name, self.topics, source, build) for name, (source, build) in sources.items()}

    @property
    def rules(self) -> AggregatorRules:
        setup = self.setup
        return AggregatorRules(
            RESULTS,
            wire_columns_of(RESULTS),
            setup.windows,
            closed_window_retention_ms=setup.retention_ms,
            updates=setup.updates,
            lateness_ms=setup.lateness_ms,
            emit_interval_ms=setup.interval_ms if setup.updates else 0,
            numbers="text" if setup.text else "number",
            conditions=setup.conditions,
        )

    @property
    def ranking(self) -> Ranking:
        (by,) = (result for result in RESULTS if result.name == self.setup.by)
        return Ranking(self.setup.n, by, self.setup.conditions)

    def aggregator(self) -> AggregatorStep:
        if not self.ranked:
            return AggregatorStep(self.rules, worker_partitions=1, topic="partials")
        return RankingStep(self.rules, self.ranking, worker_partitions=1, topic="partials")

    def ranker(self) -> RankerStep:
        partitions = self.setup.partitions
        return RankerStep(self.rules, self.ranking, aggregator_partitions=partitions, topic="top-candidates")

    def feed_some(self, amount: int) -> None:
        some, self.feed = self.feed[:amount], self.feed[amount:]
        for one in some:
            for partition in range(self.setup.partitions):
                keys = [key for key in one.keys if sum(key.encode()) % self.setup.partitions == partition]
                self.fed += [(key, one.time, one.value) for key in keys]
                ends = self.setup.windows.first_ends(np.array([one.time]))
                self.reopens = self.reopens or bool(keys and ends[0] <= self.watermarks[partition])
                self.write(partition, keys, one)

    def write(self, partition: int, keys: Sequence[str], one: Tuples) -> None:
        # Another partition may advance by another step, as processes of workers do.
        self.watermarks[partition] += one.advance * (partition + 1)
        headers = headers_with(PARTIALS, {0: WatermarkState(self.watermarks[partition])})
        columns = {
            "key": pa.array(list(keys), pa.string()).dictionary_encode(),
            "time": pa.array([one.time] * len(keys), pa.int64()),
            "value": pa.array([one.value] * len(keys), pa.int64()),
        }
        partials = to_partials([pa.record_batch(columns)], PANE_MS, wire_columns_of(RESULTS))
        record = OutputRecord("partials", write_partials(partials), partition=partition, headers=headers)
        self.topics["partials"].append(record)

    def rank(self) -> None:
        if not self.ranked:
            self.ranked, self.ranked_from = True, max(self.watermarks.values()) + 1
            self.stages["aggregator"].rebalance(2, commit=False, now=self.now)

    def make(self, move: Move) -> None:
        stage = self.stages[move.stage]
        process = stage.processes[move.process % len(stage.processes)]
        self.now += 1
        match move.what:
            case "turn":
                self.turn(move.amount)
            case "feed":
                self.feed_some(move.amount)
            case "read":
                for partition in process.offsets:
                    stage.read(process, partition, move.amount, self.now)
            case "commit":
                stage.commit(process, self.now)
            case "rank":
                self.rank()
            case "abort":
                stage.abort_transaction(process)
            case _:
                processes = 1 if move.stage == "ranker" else move.amount
                stage.rebalance(processes, commit=move.what == "rebalance", now=self.now)

    def turn(self, amount: int) -> None:
        """Feed and aggregate a few records. The ranker commits after each record that it reads."""
        self.feed_some(amount)
        self.stages["aggregator"].run_out(self.now)
        ranker = self.stages["ranker"]
        for _ in range(amount):
            ranker.read(ranker.processes[0], 0, 1, self.now)
            ranker.commit(ranker.processes[0], self.now)

    def run_out(self) -> None:
        while any(stage.run_out(self.now) for stage in self.stages.values()):
            pass

    def finish(self) -> None:
        self.rank()
        self.feed_some(len(self.feed))
        for partition in range(self.setup.partitions):
            headers = headers_with(PARTIALS, {0: WatermarkState(MAX_WATERMARK)})
            nothing = to_partials([], PANE_MS, wire_columns_of(RESULTS))
            record = OutputRecord("partials", write_partials(nothing), partition=partition, headers=headers)
            self.topics["partials"].append(record)
        self.run_out()
        for stage in self.stages.values():
            for process in stage.processes:
                assert all(process.step.finished(process.key_of(partition)) for partition in process.offsets)


def expected(setup: Setup, fed: Sequence[tuple[str, int, int]]) -> dict[bytes, dict[str, Any]]:
    """Return the content of topic `top` by a plain loop."""
    groups: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    size, every = setup.windows.size_ms, setup.windows.every_ms
    for key, time, value in fed:
        for start in range(time - size + 1, time + 1):
            if start % every == 0:
                groups[start][key].append(value)
    ranks = {}
    for start, by_key in groups.items():
        rows: list[dict[str, Any]] = []
        for key, values in by_key.items():
            if not setup.conditions or sum(values) >= 0:
                row = {"count": len(values), "sum": sum(values), "mean": sum(values) / len(values), "min": min(values)}
                rows.append({"key": key, **row})
        rows.sort(key=lambda row: (-row[setup.by], row["key"].encode()))
        for rank, row in enumerate(rows[: setup.n], 1):
            content = {"window_start": start, "window_end": start + size, "rank": rank, **row}
            ranks[f"{start}/{rank}".encode()] = content
    return ranks


def number(value: Any) -> Any:
    """Return a result of a record as a number; sums are texts with `numbers: text`."""
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


def check(model: Model) -> None:
    setup = model.setup
    assert model.topics["dead-letters"].all() == []
    latest = model.topics["top"].latest()
    found = {key: msgspec.json.decode(value) for key, value in latest.items()}
    for row in found.values():
        del row["revision"]
        row["sum"] = number(row["sum"])
    assert ranked(model, found) == ranked(model, expected(setup, model.fed))
    check_changes(model)


def ranked(model: Model, ranks: dict[bytes, dict[str, Any]]) -> dict[bytes, dict[str, Any]]:
    """Return the ranks of windows that were open when keys were ranked for the first time."""
    return {key: row for key, row in ranks.items() if row["window_end"] >= model.ranked_from}


def check_changes(model: Model) -> None:
    """Check that each record changes its rank, and that revisions of a window grow from 0 on without gaps."""
    newest: dict[bytes | None, tuple[dict[str, Any], int]] = {}
    revisions: defaultdict[int, set[int]] = defaultdict(set)
    for record in model.topics["top"].all():
        if record.value is None:
            assert model.setup.conditions, "only conditions make a rank vanish"
            del newest[record.key]
            continue
        row = msgspec.json.decode(record.value)
        revision = row.pop("revision")
        previous, previous_revision = newest.get(record.key, ({}, -1))
        assert previous != row
        assert revision > previous_revision
        newest[record.key] = row, revision
        revisions[row["window_start"]].add(revision)
    if not model.setup.conditions:
        assert all(found == set(range(len(found))) for found in revisions.values())
    if not model.setup.updates and not model.reopens:
        assert all(found == {0} for found in revisions.values())


@pytest.fixture(scope="module", autouse=True)
def small_bounds() -> Iterator[None]:
    """Lower the bounds, so that a few tuples reach them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "COMPACTION_THRESHOLD", 3)
        patch.setattr(window, "PORTION_ROWS", 2)
        yield


@settings(max_examples=settings().max_examples * 2, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    setup=setups,
    feed=st.lists(tuples, min_size=5, max_size=40),
    events=st.lists(moves, min_size=5, max_size=60),
    ordered=st.booleans(),
)
def test_ranks_after_any_sequence_of_events_are_those_of_a_plain_loop(
    setup: Setup, feed: list[Tuples], events: list[Move], *, ordered: bool
) -> None:
    if ordered:  # no tuple is late
        feed = [replace(one, time=one.time + 60 * (at // 4), advance=0) for at, one in enumerate(feed)]
        feed = [replace(one, advance=20 * (at % 4 == 3)) for at, one in enumerate(feed)]
    model = Model(setup, feed)
    for move in events:
        model.make(move)
    model.run_out()
    check_live(model)
    model.finish()
    check(model)


def check_live(model: Model) -> None:
    """Check a run without unread input: with `emit: final`, those windows are emitted that all partitions closed."""
    if model.setup.updates and model.setup.ranked and not model.setup.interval_ms:
        check(model)
    if model.setup.updates or model.reopens:
        return
    closed_until = min(model.watermarks.values())
    ranks = ranked(model, expected(model.setup, model.fed)) if model.ranked else {}
    closed = {key for key, row in ranks.items() if row["window_end"] <= closed_until}
    found = {key: msgspec.json.decode(value) for key, value in model.topics["top"].latest().items()}
    assert ranked(model, found).keys() == closed


def test_rank_that_no_key_has_any_more_is_deleted() -> None:
    """A late tuple brings the sum of a key below the condition."""
    setup = Setup(2, 1, 1, 3, "sum", updates=False, selects=True, text=False, interval_ms=0, ranked=True)
    feed = [Tuples(("a", "b", "c"), 1, 5, 0), Tuples(("a",), 0, 15, 50), Tuples(("b",), -5, 5, 0)]
    model = Model(setup, feed)
    model.feed_some(2)
    model.run_out()
    assert sorted(model.topics["top"].latest()) == [b"0/1", b"0/2", b"0/3", b"10/1"]
    model.finish()
    check(model)
    assert sorted(model.topics["top"].latest()) == [b"0/1", b"0/2", b"10/1"]
    deletions = [record for record in model.topics["top"].all() if record.value is None]
    assert [record.key for record in deletions] == [b"0/3"]
    held = Records(document())
    for record in deletions:
        written = Record(0, 0, record.timestamp or 0, record.key, None, dict(record.headers))
        assert list(held.problems("top", written)) == []


def test_ranking_step_that_is_assigned_again_reports_its_watermark_again() -> None:
    setup = Setup(1, 1, 1, 3, "sum", updates=False, selects=False, text=False, interval_ms=0, ranked=True)
    model = Model(setup, [Tuples(("a",), 1, 5, 7)])
    model.feed_some(1)
    stage = model.stages["aggregator"]
    (process,) = stage.processes
    reports = []
    for _ in range(2):  # the first transaction is aborted
        stage.read(process, 0, 10, model.now)
        reports += [watermarks_of(output.headers) for output in process.step.flush(model.now) if output.headers]
        stage.abort_transaction(process)
    assert reports == [{0: 7}, {0: 7}]


FINAL = Setup(2, 1, 1, 3, "sum", updates=False, selects=False, text=False, interval_ms=0, ranked=True)


def test_ranker_that_commits_after_each_record_emits_complete_windows_only() -> None:
    model = Model(FINAL, [Tuples(("a", "b", "c"), 1, 5, 0), Tuples(("a", "b"), 0, 15, 50)])
    model.feed_some(2)
    for _ in range(20):
        model.turn(1)
    model.finish()
    check(model)


def test_correction_of_a_window_that_closed_without_changes_replaces_its_list() -> None:
    model = Model(replace(FINAL, partitions=1), [Tuples(("b",), 5, 5, 0), Tuples(("a",), 1, 5, 0)])
    model.feed_some(2)
    model.run_out()  # while the window is open
    for late in (Tuples(("c",), 0, 15, 50), Tuples(("b",), -10, 5, 0)):
        model.feed.append(late)
        model.feed_some(1)
        model.run_out()
    model.finish()
    check(model)
    assert msgspec.json.decode(model.topics["top"].latest()[b"0/1"])["key"] == "a"


def test_correction_by_a_partition_that_was_far_behind_in_an_earlier_bounded_run_changes_its_ranks() -> None:
    behind, ahead = Tuples(("b",), 1, 5, 0), Tuples(("a",), 1, 1005, 0)
    model = Model(replace(FINAL, retention_ms=20), [behind, ahead])
    model.finish()
    for stage in model.stages.values():
        stage.rebalance(1, commit=True, now=model.now)
    model.feed.append(behind)
    model.reopens = True
    model.finish()
    check(model)
    assert msgspec.json.decode(model.topics["top"].latest()[b"0/1"])["count"] == 2


def test_correction_of_ranks_that_is_in_time_after_a_bounded_run_changes_them() -> None:
    keys = ("a", "b")  # of different partitions
    model = Model(replace(FINAL, retention_ms=20, lateness_ms=1000), [Tuples(keys, 1, time, 0) for time in (5, 1005)])
    model.finish()
    for stage in model.stages.values():
        stage.rebalance(1, commit=True, now=model.now)
    model.feed.append(Tuples(keys, 1, 5, 0))
    model.reopens = True
    model.finish()
    check(model)
    assert msgspec.json.decode(model.topics["top"].latest()[b"0/1"])["count"] == 2


def test_ranks_of_sums_beyond_doubles_in_several_partitions_are_exact() -> None:
    model = Model(FINAL, [Tuples(("a",), 2**53, 5, 0), Tuples(("b",), 2**53 + 1, 5, 0)])
    model.finish()
    check(model)
    assert msgspec.json.decode(model.topics["top"].latest()[b"0/1"])["key"] == "b"


def test_ranker_after_bounded_runs_in_one_commit_each_keeps_the_windows_of_the_last_one() -> None:
    model = Model(replace(FINAL, retention_ms=20), [])
    for run in range(4):
        model.feed.append(Tuples(("a", "b"), 1, 1000 * run + 5, 0))
        model.finish()
        for stage in model.stages.values():
            stage.rebalance(1, commit=True, now=model.now)
    check(model)
    left = model.topics["ranker-changelog"].latest()
    assert {window_of(key) for key in left} == {3000}
