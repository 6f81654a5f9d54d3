"""Topics of pipelines that have run, as DataFrames."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import reduce

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.spark import kafka_options
from skewless.spark.pipeline_run import PipelineRun
from skewless.wire.distribution import TickDistribution


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
    settings = run.settings
    ranges = {settings.topic(topic): run.offsets[topic]}
    read = kafka_options.read(SparkSession.active(), settings.kafka, ranges, headers=False)
    return read.where("value is not null").select(*(columns[name].alias(name) for name in names))


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of several runs as one DataFrame."""
    return reduce(DataFrame.unionByName, frames)
