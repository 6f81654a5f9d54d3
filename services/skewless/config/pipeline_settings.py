"""Settings of a whole pipeline."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from skewless import topology
from skewless.aggregate_registry import results_of
from skewless.algorithms import grouping
from skewless.algorithms.aggregates import (
    PartialColumn,
    ResultCondition,
    ResultField,
    columns_of,
    wire_columns_of,
)
from skewless.algorithms.aggregates.having import is_comparable
from skewless.algorithms.grouping.key import KeyGrouping
from skewless.algorithms.join.window_join import Side
from skewless.algorithms.ranking import Ranking
from skewless.algorithms.record_size import RECORD_BYTES
from skewless.algorithms.value_type import ValueType
from skewless.algorithms.watermark import MAX_SOURCE_PARTITIONS
from skewless.errors import ConfigurationError, unknown
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.monitoring.settings import LogSettings, MetricsSettings, TracingSettings
from skewless.parsing.field_settings import Instant
from skewless.parsing.join_side_settings import JoinSideSettings
from skewless.parsing.validation import EventTimeRules
from skewless.schema_registry.result_schemas import result_schema
from skewless.schema_registry.settings import RegistrySettings
from skewless.settings_base import InvalidSettingsError, SettingsModel, TopicName
from skewless.sql.table import ResultTable, top_table
from skewless.stages.aggregator.settings import AggregatorSettings
from skewless.stages.enricher.settings import EnrichSettings
from skewless.stages.join.settings import SPAN_SETTINGS, JoinSettings
from skewless.stages.mirror.settings import MirrorSettings
from skewless.stages.observer.settings import ObserverSettings
from skewless.stages.router.settings import RouterSettings, WorkerInputSettings
from skewless.stages.splitter.settings import SplitterSettings
from skewless.stages.table_settings import SinkSettings
from skewless.stages.worker.settings import DEFAULT_PANE_MS, WorkerSettings
from skewless.times import SECONDS_BELOW
from skewless.wire.columns import WriteColumns, write_packed, write_table
from skewless.wire.rows import RowFormat
from skewless.wire.tuples import TupleFormat

SKIP_TO_KEY = re.compile(r"(?:([A-Za-z0-9._-]+)/)?(\d+)")


class TopicPattern(SettingsModel):
    """Settings that select source topics by their names."""

    match: str = Field(
        min_length=1,
        description="Regular expression of Python. It selects each topic whose whole name it matches, also those that "
        "are created later.",
    )

    @field_validator("match")
    @classmethod
    def _is_a_pattern(cls, match: str) -> str:
        try:
            re.compile(match)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return match

    @property
    def prefix(self) -> str:
        """Characters with which each matching name begins."""
        if "|" in self.match:
            return ""
        plain = re.match(r"\^?((?:[A-Za-z0-9_-]|\\\.)*)([*?{]?)", self.match)
        text = "" if plain is None else plain[1].replace("\\", "")
        return text[:-1] if plain is not None and plain[2] else text

    def matches(self, topic: str) -> bool:
        """Return whether the pattern matches the whole name of a topic."""
        return re.fullmatch(self.match, topic) is not None


def _kind_of_topics(topics: Any) -> str:
    return "pattern" if isinstance(topics, dict | TopicPattern) else "list"


AnyTopics = Annotated[
    Annotated[tuple[TopicName, ...], Field(min_length=1), Tag("list")] | Annotated[TopicPattern, Tag("pattern")],
    Discriminator(_kind_of_topics),
]


class SourceSettings(SettingsModel):
    """Settings of the source topics, which belong to the user. A pipeline without them only joins."""

    topics: AnyTopics | None = Field(
        None,
        description="Source topics, instead of `topic`: their names, for example [clicks, clicks-eu], or a pattern, "
        "for example {match: 'clicks-.*'}.",
    )
    topic: TopicName | None = Field(
        None,
        description="Source topic, required without `topics`. Partitions that it gets later are read, too.",
    )
    start: Literal["earliest", "latest"] | Annotated[Instant, Field(ge=0)] = Field(
        "earliest",
        description="First record to read when the pipeline starts for the first time: `earliest`, `latest`, or the "
        "first one with this Kafka timestamp or a later one, in ISO 8601 or ms. Later changes have no effect.",
    )
    skip_to: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        description="First offset to read per partition, for example {3: 1200}, or {clicks/3: 1200} with `topics`. "
        "Skips earlier records that cannot be "
        "fetched or were deleted. If the committed offset is higher, it only skips deleted records whose tuples were "
        "held in local windows.",
    )

    @field_validator("topic")
    @classmethod
    def _is_required(cls, topic: str | None, info: ValidationInfo) -> str | None:
        if topic is None and info.data.get("topics", ()) is None:
            raise ValueError("is required")
        return topic

    @field_validator("start", mode="before")
    @classmethod
    def _is_not_in_seconds(cls, start: Any) -> Any:
        number = int(start) if isinstance(start, str) and start.isdecimal() else start
        if isinstance(number, int | float) and 0 < number < SECONDS_BELOW:
            raise ValueError("is before 1973-03-03 in ms, so it is probably in s: multiply it by 1000, or use ISO 8601")
        return start

    @field_validator("skip_to", mode="before")
    @classmethod
    def _keys_as_text(cls, skip_to: Any) -> Any:
        if not isinstance(skip_to, dict):
            return skip_to
        return {str(key) if type(key) is int else key: offset for key, offset in skip_to.items()}

    @model_validator(mode="after")
    def _topics_fit(self) -> SourceSettings:
        problems = []
        if self.topic is not None and self.topics is not None:
            problems.append("topics: topic is set as well; remove one of them")
        if isinstance(self.topics, tuple):
            repeated = [i for i, topic in enumerate(self.topics) if topic in self.topics[:i]]
            problems += [f"topics.{i}: {self.topics[i]} is listed twice" for i in repeated]
        for key in self.skip_to:
            match = SKIP_TO_KEY.fullmatch(key)
            if match is None or (match[1] is None) != (self.topics is None):
                form = (
                    "the number of a partition" if self.topics is None else "topic and partition, for example clicks/3"
                )
                problems.append(f"skip_to.{key}: the name should be {form}")
            elif match[1] is not None and match[1] not in self.select((match[1],)):
                problems.append(f"skip_to.{key}: topics does not select {match[1]}; correct the name, or remove it")
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    def select(self, existing: Iterable[str]) -> tuple[str, ...]:
        """Return the source topics: those that are named, or those of the existing ones that match the pattern."""
        if isinstance(self.topics, TopicPattern):
            return tuple(sorted(filter(self.topics.matches, existing)))
        return self.topics or (self.topic or "",)

    def named(self) -> dict[str, str]:
        """Return the topics that are named, by the path of their setting."""
        if self.topic is not None:
            return {"source.topic": self.topic}
        return {f"source.topics.{i}": topic for i, topic in enumerate(self.select(()))}

    def prefix_of(self, topic: str) -> str:
        """Return what precedes the number of a partition in the names of source partitions."""
        return f"{topic}/" if self.topic is None else ""

    def skip_to_of(self, topic: str) -> dict[int, int]:
        """Return `skip_to` of one topic."""
        offsets = {}
        for key, offset in self.skip_to.items():
            name, _, partition = key.rpartition("/")
            if name in ("", topic):
                offsets[int(partition)] = offset
        return offsets

    def __str__(self) -> str:
        """Return the names of the topics, or their pattern."""
        return self.topics.match if isinstance(self.topics, TopicPattern) else ", ".join(self.select(()))


class EventTimeSettings(SettingsModel):
    """Settings of event time and watermarks."""

    late_rule: Literal["window_end", "event_time"] = Field(
        "window_end",
        description="What makes a tuple late: the watermark of its source partition has passed the end of the first of "
        "its windows to end (window_end), or its own event time (event_time, the rule before version 0.3).",
    )
    allowed_lateness_s: float = Field(
        10.0,
        ge=0,
        le=315_360_000_000,
        description="Seconds by which the watermark of a source partition is behind its newest record. Windows close "
        "that much later, so their tuples may arrive that much later. `emit: updates` is not delayed.",
    )
    idle_timeout_s: float | None = Field(
        30.0,
        ge=0.001,
        le=315_360_000_000,
        description="Seconds without records that have an event time, after which a source partition is idle: it does "
        "not hold windows open any more. null: never.",
    )
    max_ahead_s: float = Field(
        600.0,
        ge=0,
        le=315_360_000_000,
        description="Maximum seconds by which a record may be ahead of the wall clock. Records further ahead are "
        "written to dead-letters: such a record would make later records of its partition late, and would close "
        "windows while all other partitions are idle.",
    )
    max_watermark_drift_s: float | None = Field(
        None,
        gt=0,
        le=315_360_000_000,
        description="A source partition whose watermark is this far ahead of the slowest one of its splitter process "
        "is paused. It bounds nothing across processes. null: no bound.",
    )

    @property
    def lateness_ms(self) -> int:
        """Allowed lateness in milliseconds."""
        return round(self.allowed_lateness_s * 1000)

    @property
    def idle_timeout_ms(self) -> int | None:
        """Time without records after which a source partition is idle. None: never."""
        return None if self.idle_timeout_s is None else round(self.idle_timeout_s * 1000)

    @property
    def max_drift_ms(self) -> int | None:
        """Time by which a source partition may be ahead of the slowest one of its process. None: any."""
        return None if self.max_watermark_drift_s is None else round(self.max_watermark_drift_s * 1000)


class TopicSettings(SettingsModel):
    """Settings of the pipeline's own topics."""

    prefix: str = Field(
        "",
        max_length=80,
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$",
        description="What the names of the pipeline's topics, consumer groups and transactional ids begin with, before "
        "its name. For example prod.team. where ACLs allow names with a prefix. Another prefix is another pipeline.",
    )
    replication_factor: int | None = Field(
        None, ge=1, le=10, description="Replicas of each partition. Unset: the default of the brokers."
    )
    aggregator_partitions: int = Field(4, ge=1, le=1024, description="Partitions of partials and aggregates.")
    tuples_partitions: int | None = Field(
        None,
        ge=1,
        le=MAX_SOURCE_PARTITIONS,
        description="Partitions of tuples, which never change. Unset: as many as the largest source topic has when the "
        "topics are created.",
    )
    columns: Literal["packed", "arrow"] | None = Field(
        None,
        description="Encoding of the columns in internal topics. packed takes about half the bytes, arrow is what "
        "version 0.2 reads. Both are always read. Unset: packed, but arrow with event_time.late_rule: event_time, so "
        "that stages of 0.2 can be replaced one after the other.",
    )
    internal_retention_s: float = Field(
        86_400.0,
        ge=60,
        le=315_360_000_000,
        description="Retention of internal topics in seconds, when they "
        "are created. `skewless topics check` prints the command that changes it for those that exist.",
    )
    results_retention_s: float | None = Field(
        None,
        ge=60,
        le=315_360_000_000,
        description="Retention of aggregates and top in seconds of event time: results of windows that began earlier "
        "are deleted. Unset: the last result of each key and window is kept forever.",
    )
    options: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="Further Kafka options by topic name, for example {aggregates: {min.insync.replicas: '2'}}.",
    )

    @field_validator("options")
    @classmethod
    def _known_topics(cls, options: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        names = [row.name for row in topology.TOPICS]
        unknown_names = sorted(options.keys() - set(names))
        if unknown_names:
            raise ValueError(f"unknown topic {', '.join(unknown_names)}; the pipeline's topics are: {', '.join(names)}")
        return options


class StageReplicas(SettingsModel):
    """Number of processes that `skewless up` starts for each stage. 0: another command runs the stage."""

    def of(self, stage: str) -> int:
        """Return the number of processes of a stage."""
        replicas: int = getattr(self, stage)
        return replicas


def replica_settings(stages: Iterable[topology.Stage]) -> type[StageReplicas]:
    """Return the model with a setting for each stage."""
    fields: dict[str, Any] = {stage.name: (int, Field(1, ge=0, le=1 if stage.singleton else 256)) for stage in stages}
    return create_model("ReplicaSettings", __base__=StageReplicas, __doc__=StageReplicas.__doc__, **fields)


if TYPE_CHECKING:  # a type checker does not know the settings, which are the stages of the topology
    ReplicaSettings = StageReplicas
else:
    ReplicaSettings = replica_settings(topology.STAGES)


DEFAULT_SPLITTER = {"key": {"from": "record_key"}}
"""Section `splitter` of a pipeline that has none."""


MAX_FULL_NAME = 100
"""Maximum characters of prefix and name of a pipeline, so that databases can store it with the offsets."""


class PipelineSettings(SettingsModel):
    """Settings of a pipeline. Each attribute is a section or a setting of its YAML file."""

    name: str = Field(
        min_length=1,
        max_length=100,
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        description="Name of the pipeline. After `topics.prefix`, its topics, consumer groups and transactional ids "
        "begin with it.",
    )
    source: SourceSettings | None = Field(
        None, description="Topic to aggregate. null: nothing is aggregated, the pipeline only joins."
    )
    kafka: KafkaSettings = KafkaSettings.model_validate({})
    registry: RegistrySettings | None = Field(None, description="Registry with the schemas of records. null: none.")
    transport: TransportSettings = TransportSettings.model_validate({})
    topics: TopicSettings = TopicSettings.model_validate({})
    event_time: EventTimeSettings = EventTimeSettings.model_validate({})
    join: JoinSettings | None = Field(None, description="Joins two topics. null: nothing is joined.")
    enrich: EnrichSettings | None = Field(
        None, description="Adds fields of compacted topics to the records of a topic. null: no fields are added."
    )
    splitter: SplitterSettings = SplitterSettings.model_validate(DEFAULT_SPLITTER)
    router: RouterSettings = RouterSettings.model_validate({})
    worker_input: WorkerInputSettings = WorkerInputSettings.model_validate({})
    worker: WorkerSettings = WorkerSettings.model_validate({})
    aggregator: AggregatorSettings = AggregatorSettings.model_validate({})
    observer: ObserverSettings = ObserverSettings.model_validate({})
    sink: SinkSettings | None = Field(None, description="Table of results in a database. null: none.")
    mirror: MirrorSettings | None = Field(None, description="Copy of a topic in another Kafka cluster. null: none.")
    metrics: MetricsSettings = MetricsSettings.model_validate({})
    log: LogSettings = LogSettings.model_validate({})
    tracing: TracingSettings = TracingSettings.model_validate({})
    replicas: ReplicaSettings = ReplicaSettings.model_validate({})

    @model_validator(mode="before")
    @classmethod
    def _expand_local(cls, document: Any) -> Any:
        """Replace `router.grouping: local` by the settings for which it is short."""
        router = document.get("router") if isinstance(document, dict) else None
        if not isinstance(router, dict) or router.get("grouping") != grouping.LOCAL:
            return document
        splitter = document.get("splitter", DEFAULT_SPLITTER)
        expanded = {**document, "router": {**router, "grouping": KeyGrouping.name}}
        local = splitter.get("local", {}) if isinstance(splitter, dict) else None
        if not isinstance(local, dict):  # the validation of `splitter` reports it
            return expanded
        if local.get("mode") == "none":
            raise InvalidSettingsError(
                f"router.grouping: local aggregates in the splitter, but splitter.local.mode is none; remove the "
                f"mode, or use the grouping {KeyGrouping.name}"
            )
        return {**expanded, "splitter": {**splitter, "local": {"mode": "buffer", **local}}}

    @field_validator("router")
    @classmethod
    def _known_grouping(cls, router: RouterSettings) -> RouterSettings:
        if router.grouping not in grouping.GROUPINGS:
            raise ValueError(f"grouping: {unknown('grouping', router.grouping, grouping.GROUPING_NAMES)}")
        return router

    @model_validator(mode="after")
    def _sections_fit(self) -> PipelineSettings:
        excess = grouping.GROUPINGS[self.router.grouping].excess(self.router.workers, self.router)
        window_grid_ms, local = self.window_grid_ms, self.splitter.local
        grid_ms = math.gcd(window_grid_ms, self.observer.tick_ms)
        pane_ms = self._pane_ms(grid_ms)
        checks = [
            (excess is not None, f"router.workers: {excess}"),
            (
                self.router.workers > (self.worker_input.max_workers or self.router.workers),
                (
                    f"router.workers ({self.router.workers}) is more than "
                    f"worker_input.max_workers ({self.worker_input.max_workers})"
                ),
            ),
            (window_grid_ms % pane_ms != 0, self._pane_problem(window_grid_ms, grid_ms, pane_ms)),
            (
                pane_ms > self.aggregator.windows.max_pane_ms,
                (
                    f"worker.pane_s: a pane of {pane_ms / 1000:g} seconds is longer than aggregator.window.session."
                    "gap_s: use a shorter pane, or a shorter splitter.local.window_s if a local window is longer"
                ),
            ),
            (
                self.observer.tick_ms % pane_ms != 0,
                f"observer.tick_s ({self.observer.tick_s}) must be a multiple of worker.pane_s ({self.worker.pane_s})",
            ),
            (
                local.mode != "none" and self.worker_input.encoding == "record",
                (
                    f"splitter.local.mode: {local.mode} sends rows of several tuples, but with worker_input.encoding: "
                    "record other consumers read each tuple; use the encoding batch, or the mode none"
                ),
            ),
            (
                local.window_ms is not None and pane_ms % local.window_ms != 0,
                f"splitter.local.window_s: {local.window_s} does not divide "
                + (
                    f"{grid_ms / 1000:.15g} seconds: windows and ticks begin at multiples of them"
                    if self.worker.pane_s is None
                    else f"worker.pane_s ({self.worker.pane_s})"
                ),
            ),
        ]
        problems = [message for is_problem, message in checks if is_problem]
        if len(self.full_name) > MAX_FULL_NAME:
            problems.append(
                f"topics.prefix: has {len(self.full_name)} characters with the name of the pipeline, at most "
                f"{MAX_FULL_NAME} are possible; shorten one of them"
            )
        if self.source is None and self.join is None:
            problems.append("source: missing; name the topic to aggregate, or set join to join two topics")
        elif self.source is None and self.sink is not None:
            problems.append("sink: stores results of an aggregation, and without source there is none; remove sink")
        elif self.source is None and self.mirror is not None:
            problems.append("mirror: copies results of an aggregation, and without source there is none; remove mirror")
        try:
            results = results_of(self.aggregator.aggregates, self.values)
        except ConfigurationError as error:
            problems += [f"aggregator.aggregates.{problem}" for problem in error.problems]
        else:
            problems += [
                *self._having_problems(results),
                *self._top_problems(results),
                *self._key_part_problems(results),
                *self._table_problems(results),
                *self._result_name_problems(results),
            ]
        problems += [*self._topic_problems(), *self._schema_problems(), *self._time_limit_problems()]
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    def _pane_problem(self, window_grid_ms: int, grid_ms: int, pane_ms: int) -> str:
        """Return the message for a pane that does not divide `window_grid_ms`, with those that divide `grid_ms`."""
        setting = "window_s" if self.aggregator.window is None else "window"
        divisors = _divisors(grid_ms)
        shorter = max((divisor for divisor in divisors if divisor <= pane_ms), default=None)
        longer = min((divisor for divisor in divisors if divisor >= pane_ms), default=None)
        fitting = " or ".join(f"{divisor / 1000:g}" for divisor in (shorter, longer) if divisor is not None)
        return (
            f"worker.pane_s: {pane_ms / 1000:g} does not divide aggregator.{setting}, whose windows begin and end "
            f"at multiples of {window_grid_ms / 1000:.15g} seconds: use {fitting}"
        )

    def _having_problems(self, results: Sequence[ResultField]) -> Iterator[str]:
        """Yield a line for each condition whose result does not exist or is not a number."""
        by_name = {result.name: result for result in results}
        for name in self.aggregator.having:
            if name not in by_name:
                yield f"aggregator.having.{name}: {unknown('result', name, by_name)}"
            elif not is_comparable(by_name[name]):
                yield f"aggregator.having.{name}: is not a number"

    def _top_problems(self, results: Sequence[ResultField]) -> Iterator[str]:
        """Yield a line for each reason why the keys cannot be ranked."""
        top, by_name = self.aggregator.top, {result.name: result for result in results}
        if top is None:
            return
        if self.source is None:
            yield "aggregator.top: ranks keys of an aggregation, and without source there is none; remove it"
        if top.by not in by_name:
            yield f"aggregator.top.by: {unknown('result', top.by, by_name)}"
        elif not is_comparable(by_name[top.by]):
            yield f"aggregator.top.by: {top.by} is not a number"
        if top.n > (most := RECORD_BYTES // self.splitter.limits.key_bytes):
            yield (
                f"aggregator.top.n: must be at most {most}, because a record must hold n keys of the largest size "
                f"(splitter.limits.key_bytes: {self.splitter.limits.key_bytes})"
            )
        if self.aggregator.format != "json":
            yield f"aggregator.top: is possible with aggregator.format: json only, not with {self.aggregator.format}"
        for path, names in (("aggregator.aggregates", by_name), ("splitter.key.fields", self.splitter.key.parts)):
            if "rank" in map(str.lower, names):  # as in `_key_part_problems`
                yield f"{path}: rank is a field of topic top; choose another name, or remove aggregator.top"

    def _key_part_problems(self, results: Sequence[ResultField]) -> Iterator[str]:
        """Yield a line for each part of a composite key that has the name of a result, ignoring case as SQL does."""
        names = {result.name.lower() for result in results}
        for i, part in enumerate(self.splitter.key.parts):
            if part.lower() in names:
                yield f"splitter.key.fields.{i}.name: {part} is a result of aggregator.aggregates; set another name"

    def _result_name_problems(self, results: Sequence[ResultField]) -> Iterator[str]:
        """Yield a line for each result or part of a key whose name a schema of the results cannot have."""
        chosen = self.aggregator.format
        if chosen != "json":
            schema = result_schema(self.name, results, self.aggregator.numbers, self.splitter.key.parts)
            for problem in schema.name_problems(chosen):
                yield (
                    f"aggregator.format: {chosen} cannot have these results and parts of the key: {problem}; name one "
                    "otherwise"
                )

    def _table_problems(self, results: Sequence[ResultField]) -> Sequence[str]:
        """Return a line for each name of the table of results that is not valid in a database."""
        try:
            if self.sink is not None:
                self.sink.result_table(self.name, results, self.splitter.key.parts)
        except ConfigurationError as error:
            return error.problems
        if self.sink is not None and self.sink.mode == "merge" and self.aggregator.windows.columns:
            return ["sink.mode: merge cannot merge sessions (aggregator.window.session): use mode: replace"]
        if self.sink is not None and self.sink.top_table is not None and self.aggregator.top is None:
            return ["sink.top_table: stores the ranks of aggregator.top, which is not set; remove it, or set both"]
        if self.sink is not None and self.sink.mode == "merge" and self.aggregator.having:
            return ["sink.mode: merge cannot select results by aggregator.having: remove it, or use mode: replace"]
        return ()

    def _time_limit_problems(self) -> Iterator[str]:
        """Yield a line for each time limit of the table that is too long: a sink does not poll while it commits."""
        limits = self.sink.model_dump(include={"statement_timeout_s", "lock_timeout_s"}) if self.sink else {}
        for name, seconds in limits.items():
            if 2 * seconds > self.metrics.liveness_timeout_s:
                yield (
                    f"sink.{name}: must be at most half of metrics.liveness_timeout_s "
                    f"({self.metrics.liveness_timeout_s:g}), or /livez fails while a transaction is repeated"
                )

    @property
    def conditions(self) -> tuple[ResultCondition, ...]:
        """Conditions of `aggregator.having`."""
        by_name = {result.name: result for result in self.results}
        return tuple(
            ResultCondition(by_name[name], operator, bound)
            for name, settings in self.aggregator.having.items()
            for operator, bound in settings.bounds().items()
        )

    @property
    def ranking(self) -> Ranking:
        """Order of the keys of a window. Raises ConfigurationError if the pipeline does not rank them."""
        if (top := self.aggregator.top) is None:
            raise ConfigurationError(f"aggregator.top: missing; pipeline {self.name} ranks no keys")
        return Ranking(top.n, {result.name: result for result in self.results}[top.by], self.conditions)

    @property
    def values(self) -> tuple[ValueType, ...]:
        """Values of the tuples."""
        return self.splitter.value_types

    @property
    def results(self) -> tuple[ResultField, ...]:
        """Results per key and window."""
        return results_of(self.aggregator.aggregates, self.values)

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        """Columns of the partials in windows."""
        return (*columns_of(self.results), *self.aggregator.windows.columns)

    @property
    def wire_columns(self) -> tuple[PartialColumn, ...]:
        """Columns of partials in records."""
        return (*wire_columns_of(self.results), *self.aggregator.windows.columns)

    @property
    def has_several_sources(self) -> bool:
        """Whether there may be several source topics, so that names of source partitions contain their topic."""
        return self.source is not None and self.source.topics is not None

    @property
    def source_pattern(self) -> TopicPattern | None:
        """Pattern of the source topics, which may match more of them later. None for source topics with a name."""
        topics = self.source and self.source.topics
        return topics if isinstance(topics, TopicPattern) else None

    @property
    def sides(self) -> dict[str, JoinSideSettings]:
        """Sides of the join by their topic in the topology. Empty for a pipeline that joins nothing."""
        return {} if self.join is None else {"left": self.join.left, "right": self.join.right}

    @property
    def own_source(self) -> str | None:
        """Name in the topology of a source topic that the pipeline writes: `joined` or `enriched`; None for another."""
        written = {"joined": self.join, "enriched": self.enrich}
        names = {self.topic(name): name for name, section in written.items() if section is not None}
        return names.get(self.source.topic or "") if self.source else None

    @property
    def user_inputs(self) -> tuple[str, ...]:
        """Topics of `topology.USER_TOPICS` that the pipeline reads. Without `source` if it is the pipeline's own."""
        source = ["source"] if self.source and self.own_source is None else []
        return (*source, *(["events"] if self.enrich else []), *self.sides)

    @property
    def own_topics(self) -> list[str]:
        """Topics that the pipeline may have, in data order. Its settings decide which of them exist."""
        return [self.topic(row.name) for row in topology.TOPICS]

    @property
    def user_topics(self) -> dict[str, str]:
        """Topics of the user that the pipeline reads, by the path of their setting. Without those of a pattern."""
        topics = self.aggregated.named() if "source" in self.user_inputs else {}
        topics |= {"enrich.topic": self.enrich.topic} if self.enrich else {}
        return topics | {f"join.{name}.topic": side.topic for name, side in self.sides.items()}

    @property
    def table_topics(self) -> dict[str, str]:
        """Topics of the tables of the enrichment, by the path of their setting."""
        tables = self.enrich.tables if self.enrich else ()
        return {f"enrich.tables.{number}.topic": table.topic for number, table in enumerate(tables)}

    @property
    def table_settings(self) -> SinkSettings:
        """The section `sink`. Raises ConfigurationError if there is none."""
        if self.sink is None:
            raise ConfigurationError("sink: is required for a table of results; set sink.url")
        return self.sink

    def sink_table(self) -> ResultTable:
        """Return the table of results. Raises ConfigurationError without section `sink`, and for invalid names."""
        return self.table_settings.result_table(self.name, self.results, self.splitter.key.parts)

    def rank_tables(self) -> tuple[ResultTable, ...]:
        """Return the table of ranks, if there is one."""
        name = self.sink and self.sink.top_table
        return (top_table(name, self.results, self.splitter.key.parts),) if name else ()

    def _schema_problems(self) -> Iterator[str]:
        """Give the registry to the formats, and yield a line for each one whose schemas are missing."""
        yield from (f"splitter.{problem}" for problem in self.splitter.bind(self.registry))
        for name, side in self.sides.items():
            yield from (f"join.{name}.{problem}" for problem in side.parsing.bind(self.registry))
        if self.enrich is not None:
            yield from (f"enrich.{problem}" for problem in self.enrich.bind(self.registry))
        formats = {
            "aggregator.format": self.aggregator.format,
            "join.format": self.join.format if self.join else "json",
        }
        for path, result_format in formats.items():
            if result_format != "json" and self.registry is None:
                yield f"registry.url: missing; {path}: {result_format} needs a registry"

    def _topic_problems(self) -> Iterator[str]:
        """Yield a line for each setting that names a topic which the pipeline must not read."""
        own = self.own_topics
        if self.source_pattern:
            yield from self._pattern_problems(self.source_pattern, own)
        if self.own_source == "joined":
            if self.joined.format != "json":
                yield (
                    f"join.format: set json, because source.topic is {self.topic('joined')}, and with a schema the two "
                    "records of a pair are texts, whose fields are not read"
                )
            yield from self._lateness_of_pairs(self.joined)
        yield from self._cleanup_problems()
        if topology.REPARTITIONED.holds(self):
            yield from self._retention_of_records(self.joined)
            if self.transport.guarantee != "exactly_once":
                # A copy of a record has an offset of its own, so the join would find no partner for it.
                yield (
                    f"transport.guarantee: {self.transport.guarantee} is not possible with join.repartition: always, "
                    "because records that left and right write again after a crash would be unmatched. Set "
                    "exactly_once, or give both topics the same keys and partitions and set join.repartition: never"
                )
        if self.enrich is not None:
            yield from self._enrich_problems()
        for path, topic in (self.user_topics | self.table_topics).items():
            if topic in own:
                yield f"{path}: {topic} is one of the pipeline's own topics, name another one"

    def _enrich_problems(self) -> Iterator[str]:
        """Yield a line for each setting that does not fit an enrichment."""
        enriched = self.topic("enriched")
        if self.own_source != "enriched":
            yield f"source.topic: set {enriched}: the records of enrich.topic with their added fields"
        elif self.source and self.source.start != "earliest":
            yield f"source.start: not with enrich, because {enriched} begins with the pipeline; remove it"
        if self.join is not None:
            yield "join: not with enrich; join in a pipeline of its own, and set enrich.topic to its topic joined"
        if self.topics.tuples_partitions is not None:
            yield "topics.tuples_partitions: not with enrich: topics have the partitions of enrich.topic; remove it"

    def _pattern_problems(self, pattern: TopicPattern, own: Iterable[str]) -> Iterator[str]:
        internal = ("__consumer_offsets", "__transaction_state")
        kinds = (("one of the pipeline's own topics", sorted(own)), ("a topic of Kafka itself", internal))
        for kind, names in kinds:
            if matched := next(filter(pattern.matches, names), None):
                yield f"source.topics.match: matches {matched}, {kind}; use a pattern that does not"

    def _cleanup_problems(self) -> Iterator[str]:
        """Yield a line for each topic that stages read, and whose records the options would delete before."""
        for name, options in self.topics.options.items():
            topic = topology.topic(name)
            policy = options.get("cleanup.policy", topic.cleanup)
            if policy != topic.cleanup and (not topic.public or name == self.own_source):
                yield (
                    f"topics.options.{name}.cleanup.policy: is {policy}, but stages read this topic and need "
                    f"{topic.cleanup}; remove the option"
                )

    def _retention_of_records(self, join: JoinSettings) -> Iterator[str]:
        required_ms, reason = join.rules().retention_ms, "must keep records that wait for a partner"
        if self.topics.internal_retention_s < required_ms / 1000:
            yield (
                f"topics.internal_retention_s: is {self.topics.internal_retention_s:g}, set at least "
                f"{required_ms / 1000:g}: left-records and right-records {reason}"
            )
        for name in ("left-records", "right-records"):
            retention_ms = self.topics.options.get(name, {}).get("retention.ms", "")
            if retention_ms.isdecimal() and int(retention_ms) < required_ms:
                yield f"topics.options.{name}.retention.ms: is {retention_ms}, set at least {required_ms}: it {reason}"

    def _lateness_of_pairs(self, join: JoinSettings) -> Iterator[str]:
        if join.repartition == "always":
            yield (
                f"source.topic: {self.topic('joined')} is not possible with join.repartition: always, because nothing "
                "bounds the disorder of its pairs. Aggregate the topic in a pipeline of its own"
            )
            return
        field = self.splitter.time.field
        side = Side.RIGHT if str(field).startswith("right") else Side.LEFT
        required_ms = join.rules().pair_disorder_ms(side)
        if self.event_time.lateness_ms < required_ms:
            yield (
                f"event_time.allowed_lateness_s: is {self.event_time.allowed_lateness_s:g}, set at least "
                f"{required_ms / 1000:g}: by {field or 'left_time'}, pairs are out of order by up to "
                f"{SPAN_SETTINGS[side.opposite]}, or {SPAN_SETTINGS[side]} - join.apart_s, so some would be late"
            )

    @property
    def window_grid_ms(self) -> int:
        """Length in ms of which all windows between the earliest and the latest time begin and end at multiples."""
        return self.aggregator.windows.grid_ms(self.splitter.time.earliest, self.splitter.time.latest)

    @property
    def grid_ms(self) -> int:
        """Length in ms that a pane must divide: all windows and ticks begin and end at multiples of it."""
        return math.gcd(self.window_grid_ms, self.observer.tick_ms)

    @property
    def pane_ms(self) -> int:
        """Length of a pane in ms: `worker.pane_s`, or the largest one up to DEFAULT_PANE_MS that fits.

        It also consists of whole local windows. If they are longer than DEFAULT_PANE_MS, it is the shortest that fits.
        """
        return self._pane_ms(self.grid_ms)

    def _pane_ms(self, grid_ms: int) -> int:
        if self.worker.pane_s is not None:
            return round(self.worker.pane_s * 1000)
        local_ms = self.splitter.local.window_ms or 1
        fitting = [divisor for divisor in _divisors(grid_ms) if divisor % local_ms == 0]
        longest = min(DEFAULT_PANE_MS, self.aggregator.windows.max_pane_ms)
        short = [divisor for divisor in fitting if divisor <= longest]
        return max(short) if short else min(fitting, default=1)  # if none fits, the local window is refused

    def row_format(self, pane_ms: int | None = None) -> RowFormat:
        """Return the format of rows in which the splitter has aggregated tuples, by default for whole panes."""
        return RowFormat(
            self.wire_columns, pane_ms=pane_ms or self.pane_ms, grid_ms=self.grid_ms, write=self.write_columns
        )

    @property
    def tuple_format(self) -> TupleFormat:
        """Format of the tuples."""
        used = {column.value for column in self.wire_columns}
        unused = {value.name for value in self.values} - used
        return TupleFormat(self.values, self.splitter.key.parts, write=self.write_columns, unused=unused)

    @property
    def write_columns(self) -> WriteColumns:
        """Function that encodes the columns of internal records."""
        encoding = self.topics.columns or ("arrow" if self.event_time.late_rule == "event_time" else "packed")
        return write_packed if encoding == "packed" else write_table

    def topic(self, name: str) -> str:
        """Return the full name of a topic of the topology. Those of `topology.USER_TOPICS` are the user's.

        Raises ConfigurationError for `source` if the pipeline only joins, or reads several topics (`source.topics`).
        """
        if name == "source":
            if self.aggregated.topic is None:
                raise ConfigurationError(
                    "source.topics: name one topic with --topic, because the pipeline reads several"
                )
            return self.aggregated.topic
        if name == "events" and self.enrich is not None:
            return self.enrich.topic
        return self.sides[name].topic if name in self.sides else f"{self.full_name}.{name}"

    def full_names(self, name: str, existing: Iterable[str]) -> tuple[str, ...]:
        """Return the full names of a topic of the topology. There may be several of `source`, among existing ones."""
        return self.aggregated.select(existing) if name == "source" else (self.topic(name),)

    @property
    def full_name(self) -> str:
        """What the names of the pipeline's topics, groups and transactional ids begin with: prefix and name."""
        return f"{self.topics.prefix}{self.name}"

    @property
    def aggregated(self) -> SourceSettings:
        """Settings of the source topic. Raises ConfigurationError if the pipeline only joins."""
        if self.source is None:
            raise ConfigurationError(f"source: missing; pipeline {self.name} only joins, and has no results per key")
        return self.source

    @property
    def joined(self) -> JoinSettings:
        """Settings of the join. Raises ConfigurationError if the pipeline has none."""
        if self.join is None:
            raise ConfigurationError(f"join: missing; pipeline {self.name} joins nothing")
        return self.join

    def group(self, stage: str) -> str:
        """Return the consumer group of a stage."""
        return f"{self.full_name}-{stage}"

    def with_max_workers(self, max_workers: int | None) -> PipelineSettings:
        """Return the settings with another `worker_input.max_workers`."""
        worker_input = self.worker_input.model_copy(update={"max_workers": max_workers})
        return self.model_copy(update={"worker_input": worker_input})

    def with_json_results(self) -> PipelineSettings:
        """Return the settings of a pipeline whose results and pairs are JSON."""
        parts: dict[str, Any] = {"aggregator": self.aggregator.model_copy(update={"format": "json"})}
        if self.join is not None:
            parts["join"] = self.join.model_copy(update={"format": "json"})
        return self.model_copy(update=parts)

    def event_time_rules(self) -> EventTimeRules:
        """Return the bounds of event times in ms."""
        return EventTimeRules(
            lateness_ms=self.event_time.lateness_ms,
            max_ahead_ms=round(self.event_time.max_ahead_s * 1000),
            earliest=self.splitter.time.earliest,
            latest=self.splitter.time.latest,
            windows=self.aggregator.windows if self.event_time.late_rule == "window_end" else None,
        )


def default_event_time_rules() -> EventTimeRules:
    """Return the bounds of event times of a pipeline without any settings."""
    settings = PipelineSettings.model_validate({"name": "default", "source": {"topic": "source"}})
    return settings.event_time_rules()


def _divisors(number: int) -> list[int]:
    """Return all divisors of a number."""
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return [*small, *(number // divisor for divisor in small)]
