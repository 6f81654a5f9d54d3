"""Table of the pipeline's topics and stages, in data order.

Topics, chart, dashboards and documents are derived from this table. To add a stage, add a row here and its folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Partitions = Literal["source", "join", "max_workers", "aggregator", "one"]

USER_TOPICS: dict[str, Partitions] = {"source": "source", "events": "source", "left": "join", "right": "join"}
"""Topics of the user that stages read, and what their number of partitions is called."""


@dataclass(frozen=True)
class Condition:
    """Condition on the settings of a pipeline: a setting is set, or it has one of some values.

    The chart evaluates the same data, so a condition has no code of its own.
    """

    path: str
    """Path of a section or a setting, for example `sink.mode`. It is not set where it or a part of it is null."""
    values: tuple[str, ...] = ()
    """Values that satisfy the condition. Empty: any value except null."""

    def holds(self, settings: object) -> bool:
        """Return whether the settings satisfy the condition. Raises AttributeError if no setting has this path."""
        value = settings
        for name in self.path.split("."):
            if value is None:
                return False
            value = getattr(value, name)
        return value in self.values if self.values else value is not None

    def __str__(self) -> str:
        """Return the condition as a text for users."""
        if not self.values:
            return f"`{self.path}` is set"
        return f"`{self.path}` is {' or '.join(f'`{value}`' for value in self.values)}"


REPARTITIONED = Condition("join.repartition", ("always",))
"""Condition of the stages that write the records of the joined topics again."""
AGGREGATION = Condition("source")
"""Condition of the stages that compute results. Without them, a pipeline only joins."""
RANKED = Condition("aggregator.top")
"""Condition of the stage that ranks the keys of each window."""


@dataclass(frozen=True)
class Topic:
    """A Kafka topic of a pipeline. Its full name is `<pipeline>.<name>`.

    A pipeline has the topic if it has a stage that writes it, or if a command writes it.
    """

    name: str
    public: bool
    """Public topics are the API and contain JSON records. Internal topics contain columns of many rows per record.

    A stage must read every record of an internal topic, from offset 0 on. Users decide how long a public topic keeps
    its records, so a stage that reads one begins where its log begins. From its first commit on, it refuses to start if
    records were deleted before it has read them.
    """
    partitions: Partitions
    """What determines the number of partitions: the source topic, the topics that are joined, a setting, or always
    one."""
    key: str
    """Content of the record key."""
    record: str
    """Name of the record type. `skewless.asyncapi.messages` describes those of public topics."""
    cleanup: Literal["delete", "compact"] = "delete"
    command: str | None = None
    """Command that writes it, if no stage does."""
    needs: Condition | None = None
    """Condition without which its stage does not write it. None: its stage always does."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of the pipeline: each of its processes runs one Faust agent, in a container of its own."""

    name: str
    description: str
    """Task of the stage, as a finite verb and its object."""
    inputs: tuple[str, ...]
    """Topics that it consumes. Those of `USER_TOPICS` belong to the user."""
    alternative_inputs: tuple[Condition, tuple[str, ...]] | None = None
    """Topics that it consumes instead where a condition holds."""
    outputs: tuple[str, ...]
    """Topics that it writes inside its transactions. No other stage writes to the first one. Empty for a stage with an
    output of its own."""
    builder: str
    """`module:function` that builds the stage from its `StageStart`."""
    metrics: str
    """Module whose `METRICS` defines the metrics of the stage."""
    event_time: str | None
    """`module:function` that returns the event time of the partitions of an input by their checkpoints, for `skewless
    status`. None for a stage whose checkpoints are in a database, and for one that reads no event times."""
    section: str
    """Name of the stage's section in the settings of the pipeline."""
    changelog: str | None = None
    """Compacted topic from which its state is restored."""
    results_need_changelog: bool = False
    """Whether results would be wrong without this state. Without theirs, the router learns the hot keys again, and the
    observer lacks the ticks that are open."""
    singleton: bool = False
    """Whether a single process must read all partitions."""
    described_topics: tuple[str, ...] = ()
    """Topics besides inputs and outputs whose number of partitions it needs."""
    reads_end: bool = True
    """Whether it knows from the records of an internal topic that the topic has ended in a bounded run."""
    repartitions: bool = False
    """Whether a record and its output may have different partition numbers although the topics have as many."""
    needs: Condition | None = None
    """Condition without which a pipeline does not have this stage. None: every pipeline has it."""

    def is_needed(self, settings: object) -> bool:
        """Return whether a pipeline with these settings has this stage."""
        return self.needs is None or self.needs.holds(settings)

    def inputs_of(self, settings: object) -> tuple[str, ...]:
        """Return the topics that it consumes in a pipeline with these settings."""
        if self.alternative_inputs is not None and self.alternative_inputs[0].holds(settings):
            return self.alternative_inputs[1]
        return self.inputs

    def outputs_of(self, settings: object) -> tuple[str, ...]:
        """Return the topics that it writes in a pipeline with these settings."""
        needs = {name: topic(name).needs for name in self.outputs}
        return tuple(name for name, needed in needs.items() if needed is None or needed.holds(settings))

    @property
    def all_inputs(self) -> tuple[str, ...]:
        """Topics that it consumes in any pipeline."""
        return self.inputs if self.alternative_inputs is None else (*self.inputs, *self.alternative_inputs[1])

    @property
    def option(self) -> Condition | None:
        """Condition of a stage that few pipelines have. None for the stages that compute results."""
        return None if self.needs == AGGREGATION else self.needs

    @property
    def follows_source(self) -> bool:
        """Whether its input partitions are those of the source, which become idle independently."""
        return all(partitions_of(name) == "source" for name in self.all_inputs)

    @property
    def reads_results(self) -> bool:
        """Whether it reads results. Their timestamps in Kafka are event times, which do not show how long they wait."""
        return any(name not in USER_TOPICS and topic(name).public for name in self.all_inputs)

    @property
    def input(self) -> str:
        """The only input. Raises ValueError for a stage with several inputs."""
        (name,) = self.inputs
        return name


TOPICS = (
    Topic("left-records", public=False, partitions="join", key="id", record="timed-record"),
    Topic("right-records", public=False, partitions="join", key="id", record="timed-record"),
    Topic("joined", public=True, partitions="join", key="id", record="joined"),
    Topic("unmatched-left", public=True, partitions="join", key="id", record="unmatched"),
    Topic("unmatched-right", public=True, partitions="join", key="id", record="unmatched"),
    Topic("join-late", public=True, partitions="join", key="id", record="join-late"),
    Topic(
        "join-changelog", public=False, partitions="join", key="side and block", record="held-block", cleanup="compact"
    ),
    Topic("enriched", public=True, partitions="source", key="of the record", record="enriched"),
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
    Topic("top-candidates", public=False, partitions="one", key="none", record="partials", needs=RANKED),
    Topic(
        "ranker-changelog", public=False, partitions="one", key="window and chunk", record="chunk", cleanup="compact"
    ),
    Topic("top", public=True, partitions="one", key="window and rank", record="top", cleanup="compact"),
    Topic(
        "observer-changelog",
        public=False,
        partitions="aggregator",
        key="tick and chunk",
        record="chunk",
        cleanup="compact",
    ),
    Topic("distribution", public=True, partitions="one", key="tick", record="distribution"),
    Topic("hot-keys", public=True, partitions="one", key="the hot key", record="hot-key"),
    Topic("dead-letters", public=True, partitions="source", key="of the invalid record", record="dead-letter"),
    Topic(
        "replays",
        public=False,
        partitions="one",
        key="target and position of the record",
        record="replay",
        cleanup="compact",
        command="dead-letters replay",
    ),
)

STAGES = (
    Stage(
        name="left",
        description="writes the left records of a join again, partitioned by id",
        inputs=("left",),
        outputs=("left-records", "join-late", "dead-letters"),
        builder="skewless.stages.repartition.builder:build",
        metrics="skewless.stages.repartition.metrics",
        event_time="skewless.stages.event_time:of_repartition",
        section="join",
        repartitions=True,
        needs=REPARTITIONED,
    ),
    Stage(
        name="right",
        description="writes the right records of a join again, partitioned by id",
        inputs=("right",),
        outputs=("right-records", "join-late", "dead-letters"),
        builder="skewless.stages.repartition.builder:build",
        metrics="skewless.stages.repartition.metrics",
        event_time="skewless.stages.event_time:of_repartition",
        section="join",
        repartitions=True,
        needs=REPARTITIONED,
    ),
    Stage(
        name="join",
        description="joins the records of two topics by id",
        inputs=("left", "right"),
        alternative_inputs=(REPARTITIONED, ("left-records", "right-records")),
        outputs=("joined", "unmatched-left", "unmatched-right", "join-late", "join-changelog", "dead-letters"),
        builder="skewless.stages.join.builder:build",
        metrics="skewless.stages.join.metrics",
        event_time="skewless.stages.event_time:of_join",
        section="join",
        changelog="join-changelog",
        results_need_changelog=True,
        described_topics=("left", "right"),  # if they are repartitioned, it tracks the watermarks of their partitions
        needs=Condition("join"),
    ),
    Stage(
        name="enricher",
        description="adds fields of compacted topics to records",
        inputs=("events",),
        outputs=("enriched", "dead-letters"),
        builder="skewless.stages.enricher.builder:build",
        metrics="skewless.stages.enricher.metrics",
        event_time=None,
        section="enrich",
        needs=Condition("enrich"),
    ),
    Stage(
        name="splitter",
        description="parses records into tuples",
        inputs=("source",),
        outputs=("tuples", "late", "dead-letters"),
        builder="skewless.stages.splitter.builder:build",
        metrics="skewless.stages.splitter.metrics",
        event_time="skewless.stages.event_time:of_splitter",
        section="splitter",
        needs=AGGREGATION,
    ),
    Stage(
        name="router",
        description="chooses a worker for every tuple",
        inputs=("tuples",),
        outputs=("worker-input", "router-state", "dead-letters"),
        builder="skewless.stages.router.builder:build",
        metrics="skewless.stages.router.metrics",
        event_time="skewless.stages.event_time:of_router",
        section="router",
        changelog="router-state",
        needs=AGGREGATION,
    ),
    Stage(
        name="worker",
        description="aggregates tuples into panes and emits the changes",
        inputs=("worker-input",),
        outputs=("partials", "dead-letters"),
        builder="skewless.stages.worker.builder:build",
        metrics="skewless.stages.worker.metrics",
        event_time="skewless.stages.event_time:of_worker",
        section="worker",
        described_topics=("tuples",),  # it tracks the watermarks of all source partitions
        needs=AGGREGATION,
    ),
    Stage(
        name="aggregator",
        description="merges partials into windows",
        inputs=("partials",),
        outputs=("aggregates", "aggregator-changelog", "top-candidates", "dead-letters"),
        builder="skewless.stages.aggregator.builder:build",
        metrics="skewless.stages.aggregator.metrics",
        event_time="skewless.stages.event_time:of_windows",
        section="aggregator",
        changelog="aggregator-changelog",
        results_need_changelog=True,
        needs=AGGREGATION,
    ),
    Stage(
        name="ranker",
        description="ranks the keys of each window",
        inputs=("top-candidates",),
        outputs=("top", "ranker-changelog", "dead-letters"),
        builder="skewless.stages.aggregator.builder:build_ranker",
        metrics="skewless.stages.state_metrics",
        event_time="skewless.stages.event_time:of_windows",
        section="aggregator",
        changelog="ranker-changelog",
        results_need_changelog=True,
        singleton=True,
        needs=RANKED,
    ),
    Stage(
        name="observer",
        description="measures how even the load is",
        inputs=("partials",),
        outputs=("distribution", "hot-keys", "observer-changelog", "dead-letters"),
        builder="skewless.stages.observer.builder:build",
        metrics="skewless.stages.observer.metrics",
        event_time="skewless.stages.event_time:of_windows",
        section="observer",
        changelog="observer-changelog",
        singleton=True,
        needs=AGGREGATION,
    ),
    Stage(
        name="sink",
        description="stores results in a table of a database",
        inputs=("aggregates",),
        outputs=(),
        builder="skewless.stages.sink.builder:build",
        metrics="skewless.stages.table_metrics",
        event_time=None,
        section="sink",
        needs=Condition("sink.mode", ("replace",)),
    ),
    Stage(
        name="ranksink",
        description="stores the ranks in a table of a database",
        inputs=("top",),
        outputs=(),
        builder="skewless.stages.sink.builder:build_ranks",
        metrics="skewless.stages.table_metrics",
        event_time=None,
        section="sink",
        needs=Condition("sink.top_table"),
    ),
    Stage(
        name="flusher",
        description="adds partials to a table of a database",
        inputs=("partials",),
        outputs=(),
        builder="skewless.stages.flusher.builder:build",
        metrics="skewless.stages.table_metrics",
        event_time=None,
        section="sink",
        needs=Condition("sink.mode", ("merge",)),
    ),
    Stage(
        name="mirror",
        description="copies results or partial results to another Kafka cluster",
        inputs=("aggregates",),
        alternative_inputs=(Condition("mirror.topic", ("partials",)), ("partials",)),
        outputs=(),
        builder="skewless.stages.mirror.builder:build",
        metrics="skewless.stages.mirror.metrics",
        event_time=None,
        section="mirror",
        singleton=True,  # two processes with the same partition could both write to the other cluster
        reads_end=False,
        needs=Condition("mirror"),
    ),
)
"""The stages, in data order."""


def stage(name: str) -> Stage:
    """Return the stage with this name. Raises KeyError if there is none."""
    return {row.name: row for row in STAGES}[name]


def topic(name: str) -> Topic:
    """Return the topic with this name. Raises KeyError if there is none."""
    return {row.name: row for row in TOPICS}[name]


def writer(name: str) -> Stage:
    """Return the only stage that writes a topic. Raises ValueError for a topic that has several, or none."""
    (row,) = (row for row in STAGES if name in row.outputs)
    return row


ALL_STAGES = "all"
"""Name of the process that runs all stages of a pipeline. No stage has this name."""
QUERY = "stream"
"""Name of the driver of `skewless stream`, which is a member of the group of SOURCE_STAGE while its query runs."""
QUERIED_STAGES = tuple(row for row in STAGES if row.outputs)
"""Stages that do not run while `skewless stream` runs the pipeline. The others only read results."""
SOURCE_STAGE = writer("tuples").name
"""Stage that reads the source topics."""
ROUTING_STAGE = writer("worker-input").name
"""Stage that knows the end of the source in a bounded run."""
RESULTS_STAGE = writer("aggregates").name
"""Stage that closes windows and writes results."""
RANKING_STAGE = writer("top").name
JOIN_STAGE = writer("joined").name


def table_stage(settings: object, *, ranked: bool = False) -> Stage:
    """Return the stage that writes the table of results, or of ranks, of a pipeline that has one."""
    path = "sink.top_table" if ranked else "sink.mode"
    (row,) = (row for row in needed_stages(settings) if row.needs and row.needs.path == path)
    return row


def needed_stages(settings: object) -> tuple[Stage, ...]:
    """Return the stages of a pipeline with these settings, in data order."""
    return tuple(row for row in STAGES if row.is_needed(settings))


def needed_topics(settings: object) -> tuple[Topic, ...]:
    """Return the topics that the stages of a pipeline with these settings and the commands write, in data order."""
    written = {name for row in needed_stages(settings) for name in row.outputs_of(settings)}
    return tuple(row for row in TOPICS if row.name in written or row.command is not None)


def topic_needs(name: str) -> tuple[Condition, ...]:
    """Return the conditions of which one must hold for a pipeline to have this topic; none if every pipeline has it."""
    needs = [topic(name).needs or row.needs for row in STAGES if name in row.outputs]
    return () if None in needs else tuple(dict.fromkeys(filter(None, needs)))


def partitions_of(name: str) -> Partitions:
    """Return what determines the number of partitions of a topic of the pipeline or of the user."""
    return USER_TOPICS[name] if name in USER_TOPICS else topic(name).partitions


def upstream(name: str) -> set[str]:
    """Return the names of all stages upstream of this one, directly or through other stages."""
    inputs = set(stage(name).all_inputs)
    direct = {row.name for row in STAGES if inputs & set(row.outputs)}
    return direct.union(*(upstream(stage_name) for stage_name in direct))
