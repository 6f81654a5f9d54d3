"""Topics of pipelines that have run, as DataFrames."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.algorithms.windowing.assigner import HoppingWindows, WindowAssigner
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BrokerError, CheckFailedError
from skewless.spark.kafka_options import TopicRanges
from skewless.wire.distribution import TickDistribution


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A pipeline that has run, and the parts of its topics to read."""

    settings: PipelineSettings
    read: Callable[[str], DataFrame]
    """Returns the committed records of a topic of the topology, as rows of Spark's Kafka source (key, value, partition,
    offset, timestamp)."""
    offsets: TopicRanges
    """By topic and partition: first offset (inclusive) and end offset (exclusive)."""
    is_whole: bool = True
    """False if retention has deleted the first part of the run. Then what its workers completed is not known."""

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.settings.name

    @property
    def windows(self) -> WindowAssigner:
        """Windows of the load. If those of the pipeline overlap, consecutive ones of their length."""
        windows = self.settings.aggregator.windows
        return replace(windows, every_ms=windows.size_ms) if isinstance(windows, HoppingWindows) else windows


def nothing_to_evaluate(settings: PipelineSettings, *, is_whole: bool) -> CheckFailedError | BrokerError:
    """Return the error for a pipeline without tuples, because it never ran or because they were deleted."""
    topic = settings.topic("worker-input")
    if is_whole:
        return CheckFailedError(
            f"topic {topic} has no tuples: run the pipeline first, then evaluate; `skewless stream` does not write "
            "this topic, `skewless top` shows its load"
        )
    return BrokerError(
        f"topic {topic} has no tuples any more, because retention has deleted them: evaluate a run within "
        "topics.internal_retention_s of its end"
    )


def read_distributions(runs: Sequence[PipelineRun]) -> list[list[TickDistribution]]:
    """Return the observer's records of each run, ordered by tick. The last record of a tick counts."""
    frames = [records(run, index, "distribution", "run", "offset", "value") for index, run in enumerate(runs)]
    ticks_by_run: list[dict[int, TickDistribution]] = [{} for _ in runs]
    for row in sorted(union(frames).collect(), key=lambda row: row.offset):
        with contextlib.suppress(msgspec.DecodeError):  # not a record of the observer
            tick = msgspec.json.decode(row.value, type=TickDistribution)
            ticks_by_run[row.run][tick.tick_start] = tick
    return [[ticks[start] for start in sorted(ticks)] for ticks in ticks_by_run]


def records(run: PipelineRun, run_index: int, topic: str, *names: str) -> DataFrame:
    """Return the named columns of the records of a topic, without tombstones. `run` is the index of the run."""
    columns = {
        "run": F.lit(run_index),
        "key": F.col("key"),
        "value": F.col("value"),
        "worker": F.col("partition"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp_ms": F.unix_millis("timestamp"),
    }
    return run.read(topic).where("value is not null").select(*(columns[name].alias(name) for name in names))


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of several runs as one DataFrame."""
    return reduce(DataFrame.unionByName, frames)
