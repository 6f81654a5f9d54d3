"""Table of the pipeline's topics and stages, in data order.

Topics, chart, dashboards and documents are derived from this table. To add a stage, add a row here and its folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Topic:
    """A Kafka topic of a pipeline. Its full name is `<pipeline>.<name>`."""

    name: str
    public: bool
    """Public topics are the API and contain JSON records. Internal topics contain columns of many rows per record."""
    partitions: Literal["source", "max_workers", "aggregator", "one"]
    """What determines the number of partitions: the source topic, a setting, or always one."""
    key: str
    """Content of the record key."""
    record: str
    """Name of the record type in `skewless.asyncapi.messages`."""
    cleanup: Literal["delete", "compact"] = "delete"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of the pipeline: each of its processes runs one Faust agent, in a container of its own."""

    name: str
    description: str
    """Task of the stage, as a finite verb and its object."""
    inputs: tuple[str, ...]
    """Topics that it consumes. `source` is the user's topic."""
    outputs: tuple[str, ...]
    """Topics that it writes inside its transactions. No other stage writes to the first one."""
    builder: str
    """`module:function` that builds the stage from its settings and a `PipelineContext`."""
    metrics: str
    """Module whose `METRICS` defines the metrics of the stage."""
    section: str
    """Name of the stage's section in the settings of the pipeline."""
    changelog: str | None = None
    """Compacted topic from which its state is restored."""
    singleton: bool = False
    """Whether a single process must read all partitions."""


TOPICS = (
    Topic("tuples", public=False, partitions="source", key="none", record="tuples"),
    Topic("late", public=True, partitions="source", key="the tuple's key", record="late"),
    Topic("worker-input", public=False, partitions="max_workers", key="none, or the tuple's key", record="tuples"),
    Topic("router-state", public=False, partitions="source", key="grouping", record="loads", cleanup="compact"),
    Topic("partials", public=False, partitions="aggregator", key="none", record="partials"),
    Topic(
        "aggregator-changelog",
        public=False,
        partitions="aggregator",
        key="window and chunk",
        record="chunk",
        cleanup="compact",
    ),
    Topic(
        "aggregates", public=True, partitions="aggregator", key="window and key", record="aggregate", cleanup="compact"
    ),
    Topic(
        "observer-changelog",
        public=False,
        partitions="aggregator",
        key="tick and chunk",
        record="chunk",
        cleanup="compact",
    ),
    Topic("distribution", public=True, partitions="one", key="tick", record="distribution"),
    Topic("dead-letters", public=True, partitions="source", key="of the invalid record", record="dead-letter"),
)

STAGES = (
    Stage(
        name="splitter",
        description="parses records into tuples",
        inputs=("source",),
        outputs=("tuples", "late", "dead-letters"),
        builder="skewless.stages.splitter.agent:build",
        metrics="skewless.stages.splitter.metrics",
        section="splitter",
    ),
    Stage(
        name="router",
        description="chooses a worker for every tuple",
        inputs=("tuples",),
        outputs=("worker-input", "router-state", "dead-letters"),
        builder="skewless.stages.router.agent:build",
        metrics="skewless.stages.router.metrics",
        section="router",
        changelog="router-state",
    ),
    Stage(
        name="worker",
        description="aggregates tuples into panes and emits the changes",
        inputs=("worker-input",),
        outputs=("partials", "dead-letters"),
        builder="skewless.stages.worker.agent:build",
        metrics="skewless.stages.worker.metrics",
        section="worker",
    ),
    Stage(
        name="aggregator",
        description="merges partials into windows",
        inputs=("partials",),
        outputs=("aggregates", "aggregator-changelog", "dead-letters"),
        builder="skewless.stages.aggregator.agent:build",
        metrics="skewless.stages.aggregator.metrics",
        section="aggregator",
        changelog="aggregator-changelog",
    ),
    Stage(
        name="observer",
        description="measures how even the load is",
        inputs=("partials",),
        outputs=("distribution", "observer-changelog", "dead-letters"),
        builder="skewless.stages.observer.agent:build",
        metrics="skewless.stages.observer.metrics",
        section="observer",
        changelog="observer-changelog",
        singleton=True,
    ),
)
"""The stages, in data order."""


def stage(name: str) -> Stage:
    """Return the stage with this name. Raises KeyError if there is none."""
    return {row.name: row for row in STAGES}[name]


def topic(name: str) -> Topic:
    """Return the topic with this name. Raises KeyError if there is none."""
    return {row.name: row for row in TOPICS}[name]


def upstream(name: str) -> set[str]:
    """Return the names of all stages upstream of this one, directly or through other stages."""
    inputs = set(stage(name).inputs)
    direct = {row.name for row in STAGES if inputs & set(row.outputs)}
    return direct.union(*(upstream(stage_name) for stage_name in direct))
