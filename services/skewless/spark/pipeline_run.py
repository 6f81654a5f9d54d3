"""Pipelines that have run, and what to read of their topics. Does not use Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from skewless.algorithms.windowing.assigner import HoppingWindows, WindowAssigner
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BrokerError, CheckFailedError
from skewless.kafka.consumer.offsets import OffsetReader

if TYPE_CHECKING:
    from skewless.spark.kafka_options import TopicRanges

TOPICS = ("worker-input", "tuples", "partials", "aggregator-changelog", "router-state", "distribution")


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A pipeline that has run, and what to read of its topics."""

    settings: PipelineSettings
    offsets: TopicRanges
    """By topic of the topology and partition: first offset (inclusive) and end offset (exclusive)."""
    is_whole: bool = True
    """False if retention has deleted the first part of the run. Then what its workers completed is not known."""

    @property
    def name(self) -> str:
        """Name of the pipeline, with its prefix."""
        return self.settings.full_name

    @property
    def windows(self) -> WindowAssigner:
        """Windows of the load. If those of the pipeline overlap, consecutive ones of their length."""
        windows = self.settings.aggregator.windows
        return replace(windows, every_ms=windows.size_ms) if isinstance(windows, HoppingWindows) else windows


def end_offsets(settings: PipelineSettings) -> dict[str, dict[int, int]]:
    """Return the end offsets of the topics of an evaluation."""
    offset_reader = OffsetReader(settings.kafka)
    return {topic: offset_reader.end(settings.topic(topic)) for topic in TOPICS}


def run_of(settings: PipelineSettings, starts: Mapping[str, Mapping[int, int]] | None = None) -> PipelineRun:
    """Return the run of a pipeline: each topic from `starts`, or from its beginning, to its end.

    Raises CheckFailedError if no tuple has reached a worker, and BrokerError if retention has deleted all of them.
    """
    offset_reader = OffsetReader(settings.kafka)
    offsets = {topic: offset_reader.ranges(settings.topic(topic)) for topic in TOPICS}
    if starts is not None:
        offsets = {
            topic: {
                partition: (start, max(start, offsets[topic][partition][1]))
                for partition, start in starts[topic].items()
            }
            for topic in TOPICS
        }
    is_whole = starts is not None or not any(
        begin for topic in ("worker-input", "partials") for begin, _ in offsets[topic].values()
    )
    run = PipelineRun(settings, offsets, is_whole)
    if not any(first < end for first, end in offsets["worker-input"].values()):
        raise nothing_to_evaluate(run)
    return run


def nothing_to_evaluate(run: PipelineRun) -> CheckFailedError | BrokerError:
    """Return the error for a run without tuples, because it never ran or because they were deleted."""
    topic = run.settings.topic("worker-input")
    if run.is_whole:
        return CheckFailedError(
            f"topic {topic} has no tuples: run the pipeline first, then evaluate; `skewless stream` does not write "
            "this topic, `skewless top` shows its load"
        )
    return BrokerError(
        f"topic {topic} has no tuples any more, because retention has deleted them: evaluate a run within "
        "topics.internal_retention_s of its end"
    )
