"""Recorded runs: what pipelines have left in their topics, as DataFrames."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.public_records import TickDistribution
from skewless.settings import PipelineSettings

Offsets = Mapping[str, Mapping[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A pipeline whose topics hold a run."""

    settings: PipelineSettings
    read: Callable[[str], DataFrame]
    """Rows of Kafka's source (key, value, partition, offset, timestamp) of a topic of the topology, committed ones."""
    offsets: Offsets
    """What of each topic is read: by partition first offset, and the one behind the last."""

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.settings.name

    @property
    def bucket_ms(self) -> int:
        """Longest span of which both ticks and windows are made."""
        return gcd(self.settings.observer.tick_ms, self.settings.aggregator.window_ms)


def observed(runs: Sequence[Recorded]) -> list[list[TickDistribution]]:
    """Read what the observer of each run told, by tick; the last word on a tick counts."""
    frames = [records(run, number, "distribution", "run", "offset", "value") for number, run in enumerate(runs)]
    found: list[dict[int, TickDistribution]] = [{} for _ in runs]
    for row in sorted(union(frames).collect(), key=lambda row: row.offset):
        with contextlib.suppress(msgspec.DecodeError):  # not what the observer writes
            tick = msgspec.json.decode(row.value, type=TickDistribution)
            found[row.run][tick.tick_start] = tick
    return [[ticks[start] for start in sorted(ticks)] for ticks in found]


def records(run: Recorded, number: int, topic: str, *names: str) -> DataFrame:
    """Give columns of the records of a topic that hold something; `run` is the number of the run."""
    facts = {
        "run": F.lit(number),
        "key": F.col("key"),
        "value": F.col("value"),
        "worker": F.col("partition"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "at": F.unix_millis("timestamp"),
    }
    return run.read(topic).where("value is not null").select(*(facts[name].alias(name) for name in names))


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Put rows of several runs together."""
    return reduce(DataFrame.unionByName, frames)
