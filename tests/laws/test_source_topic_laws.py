"""Laws of several source topics: their watermarks merge in the partitions of `tuples` as if each one was tracked."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from skewless.algorithms.watermark import MAX_WATERMARK, NOTHING_REPORTED, WatermarkState, WatermarkTracker
from skewless.stages.router.upstream import Upstream
from skewless.stages.splitter.reports import SourceReports
from skewless.wire.headers import report_of_sources
from skewless.wire.topic_partition import TopicPartition

TOPICS = ("a", "b", "c")
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 4), min_size=1)
watermarks = st.sampled_from([*range(0, 60, 10), MAX_WATERMARK])
states = st.builds(WatermarkState, watermarks, st.booleans()) | st.just(WatermarkState(None, idle=True))
steps = st.lists(st.tuples(st.integers(0, 100), states, st.booleans()), max_size=25)


def sources_of(partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number) for topic in sorted(partition_counts) for number in range(partition_counts[topic])
    ]


def flat(expected: Mapping[TopicPartition, WatermarkState]) -> WatermarkState:
    """Return the combined state of all source partitions."""
    tracker = WatermarkTracker(len(expected))
    known = {i: state.watermark for i, state in enumerate(expected.values()) if state.watermark is not None}
    tracker.update(known, [i for i, state in enumerate(expected.values()) if state.idle])
    return tracker.state()


ENDED_EARLIER = WatermarkState(MAX_WATERMARK, idle=True)


def restarted_upstream(upstream: Upstream, target: int, targets: int) -> Upstream:
    restarted = Upstream(target, targets, upstream.checkpoint())
    restarted.restart()
    return restarted


def merged(upstreams: Mapping[int, Upstream]) -> WatermarkState:
    """Return what a worker knows, which has the last report of each partition of `tuples`."""
    tracker = WatermarkTracker(len(upstreams))
    for target, upstream in upstreams.items():
        state = upstream.state
        if state != NOTHING_REPORTED:
            tracker.update({} if state.watermark is None else {target: state.watermark}, [target] * state.idle)
    return tracker.state()


@given(counts, st.integers(1, 6), steps)
def test_several_topics_watermarks_merged_in_two_steps_equal_those_of_all_source_partitions(
    partition_counts: dict[str, int], targets: int, changes: list[tuple[int, WatermarkState, bool]]
) -> None:
    """With idle reports for partitions of `tuples` without a source, restarts of splitters, and of routers."""
    reports = SourceReports(targets)
    reports.observe_topics(partition_counts)
    sources = sources_of(partition_counts)
    expected = dict.fromkeys(sources, NOTHING_REPORTED)
    upstreams = {target: Upstream(target, targets, None) for target in range(targets)}

    def receive() -> None:
        for output in reports.without_source({at: state.watermark == MAX_WATERMARK for at, state in expected.items()}):
            assert output.partition is not None
            upstreams[output.partition].update_of(output.headers)()

    receive()
    for source in sources:  # the first flush after the assignment
        if reports.is_due(reports.target_of(source)):
            upstreams[reports.target_of(source)].update_of(reports.report(source, NOTHING_REPORTED))()
    for choice, state, restarts in changes:
        source = sources[choice % len(sources)]
        if restarts:
            # For a restarted router, all ends are those of an earlier run.
            ended = {at: ENDED_EARLIER for at, state in expected.items() if state.watermark == MAX_WATERMARK}
            expected |= ended
        # A state without a watermark keeps the one that was reported before. An idle partition is not at its end.
        before = expected[source]
        if state.watermark is not None or (state.idle and before.watermark == MAX_WATERMARK):
            expected[source] = state
        else:
            expected[source] = WatermarkState(before.watermark, state.idle or before == ENDED_EARLIER)
        if restarts:
            reports.begin()
            upstreams = {
                target: restarted_upstream(upstream, target, targets) for target, upstream in upstreams.items()
            }
        upstreams[reports.target_of(source)].update_of(reports.report(source, state))()
        receive()
    known = flat(expected)
    if any(state == NOTHING_REPORTED for state in expected.values()):
        assert merged(upstreams).watermark is None
    else:
        assert merged(upstreams) == known


@given(counts, st.integers(1, 4), st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 9), states), max_size=20))
def test_several_topics_that_are_added_later_keep_the_watermarks_of_the_others(
    partition_counts: dict[str, int], targets: int, reported: list[tuple[str, int, WatermarkState]]
) -> None:
    upstream = Upstream(0, targets, None)
    expected: dict[TopicPartition, WatermarkState] = {}
    for topic, number, state in reported:
        source = TopicPartition(topic, number * targets)
        upstream.update_of(report_of_sources({source: state}))()
        before = expected.get(source, NOTHING_REPORTED).watermark
        expected[source] = WatermarkState(before if state.watermark is None else state.watermark, state.idle)
        upstream = Upstream(0, targets, upstream.checkpoint())
    # Source partitions with lower numbers of the same topic exist as well, although nothing was reported of them.
    highest = {topic: max(number for at, number in expected if at == topic) for topic, _ in expected}
    everything = {
        TopicPartition(topic, number): expected.get(TopicPartition(topic, number), NOTHING_REPORTED)
        for topic, last in highest.items()
        for number in range(0, last + 1, targets)
    }
    if expected and flat(everything) != NOTHING_REPORTED:
        assert upstream.state == flat(everything)
    assert partition_counts
