"""Laws of a join that repartitions: the same outcome at any order, with commits and crashes of all three stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.in_memory_batch import InMemoryBatch
from helpers.join_oracle import Event, answer, late
from helpers.join_stage import NOW, JoinRun, record, step_rules
from helpers.join_stage import PARTITIONS as JOINED
from helpers.repartitioned_join import RepartitionedJoin
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.stages.join.step import ASK_INTERVAL_MS
from skewless.stages.repartition.step import RECORD_TOPICS, RepartitionRules, RepartitionStep
from skewless.wire.record import OutputRecord
from skewless.wire.repartition_checkpoint import first_state
from skewless.wire.timed_records import PREFIX_BYTES

PARTITIONS = 2
"""Partitions of each of the user's topics. Their records are merged in one partition."""
IN_ORDER = 2**60
"""Tolerated disorder of records whose lateness is decided."""

Origin = tuple[int, int]
"""Partition and offset of a record."""

logs = st.lists(st.builds(Event, st.sampled_from("abc"), st.integers(0, 20)), max_size=8)
topics = st.tuples(logs, logs)
acts = st.lists(
    st.tuples(
        st.sampled_from(["read", "commit", "crash", "join", "join", "commit-join", "crash-join"]),
        st.sampled_from(Side),
        st.integers(0, PARTITIONS - 1),
        st.integers(1, 4),
    ),
    max_size=40,
)


class RepartitionRun:
    """The stage of one side, with its committed state in memory."""

    def __init__(self, side: Side, sources: Sequence[Sequence[Event]], rules: JoinRules) -> None:
        self.side, self.sources = side, sources
        records = step_rules(rules).sides[side]
        self.rules = RepartitionRules(
            side=side, records=records, disorder_ms=rules.disorder_ms(side), partitions=1, max_drift_ms=10**9,
            idle_timeout_ms=None, max_ahead_ms=1000, drain=True,
        )  # fmt: skip
        self.committed: list[tuple[int, str | None]] = [(0, None)] * PARTITIONS
        self.outputs: list[OutputRecord] = []
        """Committed outputs."""
        self.start()

    def start(self) -> None:
        """Start a step at the last commit. What was not committed is lost."""
        self.step, self.pending = RepartitionStep(self.rules), list[OutputRecord]()
        self.offsets = [offset for offset, _ in self.committed]
        for partition, (_, checkpoint) in enumerate(self.committed):
            self.step.assign(partition, checkpoint, ())

    def read(self, partition: int, count: int) -> None:
        start = self.offsets[partition]
        events = self.sources[partition][start : start + count]
        if events:
            values = [
                {"id": event.id, "time": event.time, "at": (partition, start + index)}
                for index, event in enumerate(events)
            ]
            outputs = [
                OutputRecord("any", msgspec.json.encode(value), event.id.encode())
                for value, event in zip(values, events, strict=True)
            ]
            batch = InMemoryBatch(partition, outputs, range(start, start + len(events)))
            self.pending += self.step.process(batch, NOW)
            self.offsets[partition] += len(events)

    def commit(self) -> None:
        for partition, offset in enumerate(self.offsets):
            if offset == len(self.sources[partition]):
                self.step.end_of_partition(partition, NOW)
        self.pending += self.step.flush(NOW)
        self.outputs += self.pending
        self.pending = []
        self.committed = [(offset, self.step.checkpoint(at)) for at, offset in enumerate(self.offsets)]

    @property
    def processed(self) -> list[int]:
        """Partitions that are committed to their ends."""
        return [at for at, (offset, _) in enumerate(self.committed) if offset == len(self.sources[at])]

    def of_topic(self, topic: str) -> list[OutputRecord]:
        return [output for output in self.outputs if output.topic == topic]


class WholeRun:
    """Both stages, and the join of what they have committed."""

    def __init__(self, rules: JoinRules, sources: Mapping[Side, Sequence[Sequence[Event]]]) -> None:
        self.stages = {side: RepartitionRun(side, logs, rules) for side, logs in sources.items()}
        self.join = JoinRun(step_rules(rules, merged_partitions=dict.fromkeys(Side, PARTITIONS), drain=True))

    def act(self, act: str, side: Side, partition: int, count: int) -> None:
        stage = self.stages[side]
        match act:
            case "read":
                stage.read(partition, count)
            case "commit":
                stage.commit()
            case "crash":
                stage.start()
            case "join":
                self.join.read(side, count)
            case "commit-join":
                self.join.commit(self._at_end())
            case "crash-join":
                self.join.crash()
        for each, writer in self.stages.items():
            self.join.logs[each] = writer.of_topic(RECORD_TOPICS[each])
            self.join.processed[each] = writer.processed

    def _at_end(self) -> list[Side]:
        return [side for side in Side if self.join.offsets[side] == len(self.join.logs[side])]

    def finish(self) -> None:
        """Read everything."""
        for side in Side:
            for partition in range(PARTITIONS):
                self.act("read", side, partition, 1_000)
            self.act("commit", side, 0, 0)
        for side in Side:
            self.act("join", side, 0, 1_000)
        for _ in range(2):  # the first one reads the end, the second one ends the join
            self.act("commit-join", Side.LEFT, 0, 0)
        for stage in self.stages.values():
            assert all(stage.step.finished(partition) for partition in range(PARTITIONS))
        assert all(self.join.step.finished(partition) for partition in JOINED.values())


def origin(value: dict[str, Any]) -> Origin:
    partition, offset = value["at"]
    return partition, offset


@given(left=topics, right=topics, disorder=st.tuples(st.integers(0, 8), st.integers(0, 8)), acts=acts)
@example(  # an earlier commit ended partition 0, and the join restarts before the other one has ended
    left=([Event("a", 1)], [Event("b", 2)]),
    right=([], []),
    disorder=(0, 0),
    acts=[
        ("read", Side.LEFT, 0, 1), ("commit", Side.LEFT, 0, 1), ("join", Side.LEFT, 0, 4),
        ("commit-join", Side.LEFT, 0, 1), ("crash-join", Side.LEFT, 0, 1),
    ],
)  # fmt: skip
def test_repartitioned_join_any_order_commits_and_crashes_emits_the_definition_once(
    left: tuple[list[Event], ...],
    right: tuple[list[Event], ...],
    disorder: tuple[int, int],
    acts: list[tuple[str, Side, int, int]],
) -> None:
    rules = JoinRules(5, *disorder)
    run = WholeRun(rules, {Side.LEFT: left, Side.RIGHT: right})
    for act, side, partition, count in acts:
        run.act(act, side, partition, count)
    run.finish()
    assert_outcome(run.join, run.stages, rules)


def test_repartitioned_join_second_bounded_run_does_not_take_the_earlier_end_for_its_own() -> None:
    sources: dict[Side, list[list[Event]]] = {side: [[Event("a", 1)], []] for side in Side}
    run = WholeRun(JoinRules(5, 0, 0), sources)
    run.finish()
    for side in Side:
        sources[side][0].append(Event("b", 10))
        run.act("crash", side, 0, 0)
    run.act("crash-join", Side.LEFT, 0, 0)
    run.act("read", Side.RIGHT, 0, 1)
    run.act("commit", Side.RIGHT, 0, 0)
    run.act("join", Side.RIGHT, 0, 1_000)
    run.act("commit-join", Side.LEFT, 0, 0)
    assert not any(run.join.step.finished(partition) for partition in JOINED.values())
    run.finish()
    assert_outcome(run.join, run.stages, JoinRules(5, 0, 0))
    assert [pair["id"] for pair in run.join.texts("joined")] == ["a", "b"]


def test_repartitioned_join_topics_that_grow_in_a_second_bounded_run_are_read_to_their_new_ends() -> None:
    sources: dict[Side, list[list[Event]]] = {side: [[Event("a", 1)], []] for side in Side}
    run = WholeRun(JoinRules(5, 0, 0), sources)
    run.finish()
    run.act("crash-join", Side.LEFT, 0, 0)
    for side in Side:
        sources[side][0] += [Event("b", 10), Event("c", 11)]
        for act in ("crash", "read", "commit", "join"):
            run.act(act, side, 0, 1)
        run.act("join", side, 0, 1_000)
    run.act("commit-join", Side.LEFT, 0, 0)
    assert not any(run.join.step.finished(partition) for partition in JOINED.values())
    run.finish()
    assert_outcome(run.join, run.stages, JoinRules(5, 0, 0))
    assert [pair["id"] for pair in run.join.texts("joined")] == ["a", "b", "c"]


writes = st.lists(
    st.tuples(st.sampled_from(Side), st.integers(0, PARTITIONS - 1), st.lists(st.integers(0, 30), max_size=6)),
    max_size=20,
)


@given(writes=writes)
@example(  # partition 1 of the left topic has its first records behind those that do not fit, the oldest one last
    writes=[
        (Side.RIGHT, 0, [0, 1, 2, 3]), (Side.RIGHT, 1, [9, 10]), (Side.LEFT, 0, [10, 11, 12, 13]),
        (Side.LEFT, 0, [14] * 6), (Side.LEFT, 1, [9]), (Side.LEFT, 1, [15]), (Side.LEFT, 1, [8]),
    ],
)  # fmt: skip
def test_repartitioned_join_that_cannot_read_on_takes_no_record_for_late(
    writes: list[tuple[Side, int, list[int]]],
) -> None:
    run = RepartitionedJoin(JoinRules(5, 7, 7), PARTITIONS, buffer_records=3)
    for side, partition, times in writes:
        run.join.now += ASK_INTERVAL_MS
        run.write(side, partition, *(record(f"{time}", time) for time in times))
        run.run()
    assert run.join.texts("join-late") == []


@given(
    times=st.lists(st.integers(0, 30), max_size=12),
    disorder=st.integers(0, 8),
    at=st.integers(0, 12),
    restarts=st.booleans(),
)
def test_repartition_first_state_bounds_all_records_that_are_written(
    times: list[int], disorder: int, at: int, *, restarts: bool
) -> None:
    rules = JoinRules(5, disorder, disorder)
    events = [Event("a", time) for time in times]
    run = RepartitionRun(Side.LEFT, [events, []], rules)
    for count in (at, 12):
        run.read(0, count)
        run.commit()
        bound = first_state(run.committed[0][1], disorder)
        if count == at:
            early = bound
            if restarts:
                run.start()
    written = [time for offset, time in enumerate(times) if offset not in late(events, disorder)]
    assert all(state.watermark is None or state.watermark <= min(written) for state in (early, bound))
    assert (bound.watermark is None) == (not times)


def assert_outcome(join: JoinRun, stages: dict[Side, RepartitionRun], rules: JoinRules) -> None:
    """Compare with the definition: lateness by source partition, pairs in the order of the merged logs."""
    origins: dict[Side, list[Origin]] = {}
    for side, stage in stages.items():
        values = [output.value for output in stage.of_topic(RECORD_TOPICS[side])]
        origins[side] = [origin(msgspec.json.decode(value[PREFIX_BYTES:])) for value in values if value is not None]
        late_ones = {
            (at, offset) for at, log in enumerate(stage.sources) for offset in late(log, rules.disorder_ms(side))
        }
        whole = {(at, offset) for at, log in enumerate(stage.sources) for offset in range(len(log))}
        assert Counter(origins[side]) == Counter(whole - late_ones)
        written = [msgspec.json.decode(output.value or b"") for output in stage.of_topic("join-late")]
        assert sorted((row["partition"], row["offset"]) for row in written) == sorted(late_ones)
    logs = {side: [stages[side].sources[part][at] for part, at in origins[side]] for side in Side}
    expected = answer(logs[Side.LEFT], logs[Side.RIGHT], JoinRules(rules.apart_ms, IN_ORDER, IN_ORDER), ended=True)
    left, right = origins[Side.LEFT], origins[Side.RIGHT]
    pairs = [(origin(pair["left"]), origin(pair["right"])) for pair in join.texts("joined")]
    assert Counter(pairs) == Counter((left[one], right[other]) for one, other in expected.pairs)
    for side, offsets in ((Side.LEFT, expected.unmatched_left), (Side.RIGHT, expected.unmatched_right)):
        unmatched = [origin(row["record"]) for row in join.texts(f"unmatched-{side.value}")]
        assert Counter(unmatched) == Counter(origins[side][at] for at in offsets)
    assert join.texts("join-late") == []
