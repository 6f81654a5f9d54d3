"""THE table of the pipeline, in data order: which stage reads and writes which topics, and what they carry.

Topics, chart, dashboards and documents are derived from it; a stage is added by a row here and its folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Topic:
    """A Kafka topic of a pipeline; its full name is `<pipeline>.<name>`."""

    name: str
    public: bool
    """Public topics are the API: one JSON record per fact. Internal ones carry columns."""
    partitions: Literal["source", "max_workers", "aggregator", "one"]
    """Where the number of partitions comes from."""
    key: str
    """What the record key means."""
    record: str
    """Name of the record type in `skewless.records`."""
    cleanup: Literal["delete", "compact"] = "delete"


@dataclass(frozen=True)
class Stage:
    """One kind of process: a container with one Faust agent."""

    name: str
    source: str
    """Name of the topic that it consumes; `source` is the user's own."""
    sinks: tuple[str, ...]
    """Topics that it writes inside its transactions."""
    does: str
    changelog: str | None = field(default=None)
    """Compacted topic from which its state is restored."""
    single: bool = False
    """Whether one process must read all partitions."""


TOPICS = (
    Topic("tuples", public=False, partitions="source", key="none", record="tuples"),
    Topic("late", public=True, partitions="source", key="the tuple's key", record="late"),
    Topic("worker-input", public=False, partitions="max_workers", key="none, or the tuple's key", record="tuples"),
    Topic("control", public=False, partitions="source", key="grouping", record="loads", cleanup="compact"),
    Topic("partials", public=False, partitions="aggregator", key="none", record="partials"),
    Topic("windows", public=False, partitions="aggregator", key="window and chunk", record="chunk", cleanup="compact"),
    Topic(
        "aggregates", public=True, partitions="aggregator", key="window and key", record="aggregate", cleanup="compact"
    ),
    Topic("ticks", public=False, partitions="aggregator", key="tick and chunk", record="chunk", cleanup="compact"),
    Topic("distribution", public=True, partitions="one", key="tick", record="distribution"),
    Topic("dead-letters", public=True, partitions="source", key="of the bad record", record="dead-letter"),
)

STAGES = (
    Stage("splitter", "source", ("tuples", "late", "dead-letters"), "parses records into tuples"),
    Stage(
        "router",
        "tuples",
        ("worker-input", "control", "dead-letters"),
        "chooses a worker for every tuple",
        changelog="control",
    ),
    Stage("worker", "worker-input", ("partials", "dead-letters"), "aggregates panes, emits deltas"),
    Stage(
        "aggregator",
        "partials",
        ("aggregates", "windows", "dead-letters"),
        "merges deltas into windows",
        changelog="windows",
    ),
    Stage(
        "observer",
        "partials",
        ("distribution", "ticks", "dead-letters"),
        "tells how even the load is",
        changelog="ticks",
        single=True,
    ),
)


def stage(name: str) -> Stage:
    """Return the stage of this name; KeyError when there is none."""
    return {row.name: row for row in STAGES}[name]


def topic(name: str) -> Topic:
    """Return the topic of this name; KeyError when there is none."""
    return {row.name: row for row in TOPICS}[name]


def upstream(name: str) -> set[str]:
    """Name the stages whose records reach this one, however many topics away."""
    source = stage(name).source
    direct = {row.name for row in STAGES if source in row.sinks}
    return direct.union(*(upstream(row) for row in direct))
