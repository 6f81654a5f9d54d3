"""Event time of the input partitions of each stage by their checkpoints, for `skewless status`."""

from __future__ import annotations

from collections.abc import Sequence

from skewless import topology
from skewless.algorithms.join.window_join import Side
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkGenerator, WatermarkState, WatermarkTracker
from skewless.config.stage_start import StageStart
from skewless.stages.router.upstream import Upstream
from skewless.stages.splitter import checkpoint as splitter_checkpoint
from skewless.wire import changelog, join_changelog, repartition_checkpoint

Checkpoints = Sequence[str | None]


def of_splitter(start: StageStart, _topic: str, checkpoints: Checkpoints) -> list[WatermarkState]:
    """Return the state of each source partition."""
    committed = map(splitter_checkpoint.decode_checkpoint, checkpoints)
    return [committed_state(each, start.settings.event_time.lateness_ms) for each in committed]


def of_repartition(start: StageStart, topic: str, checkpoints: Checkpoints) -> list[WatermarkState]:
    """Return the state of each partition of a joined topic. `topic` is the name of the side."""
    committed = map(repartition_checkpoint.decode_checkpoint, checkpoints)
    disorder_ms = start.settings.joined.rules().disorder_ms(Side(topic))
    return [committed_state(each, disorder_ms) for each in committed]


def committed_state(
    committed: splitter_checkpoint.Checkpoint | repartition_checkpoint.RepartitionCheckpoint, lateness_ms: int
) -> WatermarkState:
    """Return the state of a partition that the user writes. The end of a bounded run is not in its checkpoint."""
    return WatermarkState(WatermarkGenerator(lateness_ms, committed.max_time).watermark(), committed.idle)


def of_router(start: StageStart, _topic: str, checkpoints: Checkpoints) -> list[WatermarkState]:
    """Return the combined state of the source partitions of each partition."""
    only = start.settings.aggregated.topic
    return [Upstream(p, len(checkpoints), checkpoint, only).state for p, checkpoint in enumerate(checkpoints)]


def of_worker(start: StageStart, _topic: str, checkpoints: Checkpoints) -> list[WatermarkState]:
    """Return the combined state of all source partitions, as each partition knows it."""
    trackers = [WatermarkTracker(start.count_partitions("tuples")) for _ in checkpoints]
    for tracker, checkpoint in zip(trackers, checkpoints, strict=True):
        if checkpoint:
            tracker.decode(checkpoint)
    return [tracker.state() for tracker in trackers]


def of_windows(_start: StageStart, _topic: str, checkpoints: Checkpoints) -> list[WatermarkState]:
    """Return the state of each partition of a stage that merges partials into windows."""
    committed = map(changelog.decode_checkpoint, checkpoints)
    return [changelog.read_watermarks(each).state() for each in committed]


def of_join(start: StageStart, topic: str, checkpoints: Checkpoints) -> list[WatermarkState]:
    """Return the state of each partition of an input, by its name in the topology."""
    committed = map(join_changelog.decode_checkpoint, checkpoints)
    disorder_ms = None
    if topic in topology.USER_TOPICS:  # otherwise another stage writes the topic, and its watermarks come from there
        disorder_ms = start.settings.joined.rules().disorder_ms(Side(topic))
    return [_join_state(each, disorder_ms) for each in committed]


def _join_state(committed: join_changelog.JoinCheckpoint, disorder_ms: int | None) -> WatermarkState:
    if committed.ended:
        return WatermarkState(MAX_WATERMARK)
    known = [committed.floor]
    if committed.max_time is not None and disorder_ms is not None:
        known.append(committed.max_time - disorder_ms)
    return WatermarkState(max((time for time in known if time is not None), default=None))
