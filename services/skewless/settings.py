"""The whole configuration of a pipeline: defaults, then the file, then the environment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from skewless import topology
from skewless.aggregator.settings import AggregatorSettings
from skewless.algorithms import grouping
from skewless.errors import unknown
from skewless.model import Model
from skewless.observer.settings import ObserverSettings
from skewless.router.settings import RouterSettings, WorkerInputSettings
from skewless.splitter.settings import SplitterSettings
from skewless.transport.settings import KafkaSettings, TransportSettings
from skewless.worker.settings import WorkerSettings


class SourceSettings(Model):
    """The user's own topic."""

    topic: str = Field(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$", description="Topic to read.")
    skip_to: dict[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        description="First offset to read by partition, such as {3: 1200}: leaves out earlier records that cannot be "
        "read or were deleted. Has no effect where the committed offset is higher.",
    )

    @field_validator("topic")
    @classmethod
    def _is_a_topic(cls, topic: str) -> str:
        if topic in {".", ".."}:
            raise ValueError("Kafka refuses . and .. as names of topics")
        return topic


class EventTimeSettings(Model):
    """How event time goes on."""

    allowed_lateness_s: float = Field(
        0.0,
        ge=0,
        le=315_360_000_000,
        description="A record is late when it is older than its partition's newest by more than this.",
    )
    idle_timeout_s: float | None = Field(
        30.0,
        gt=0,
        le=315_360_000_000,
        description="After this long without records a source partition stops holding windows open; null: never.",
    )
    max_future_s: float = Field(
        600.0,
        ge=0,
        le=315_360_000_000,
        description="Records further ahead of the clock go to dead-letters: one makes later ones of its partition late "
        "and closes windows where all other partitions are idle.",
    )

    @property
    def lateness_ms(self) -> int:
        """Allowed lateness in milliseconds."""
        return round(self.allowed_lateness_s * 1000)


class TopicSettings(Model):
    """How the pipeline's own topics are made."""

    replication_factor: int = Field(1, ge=1, le=10, description="Copies of each partition; 3 in production.")
    aggregator_partitions: int = Field(4, ge=1, le=1024, description="Partitions of partials and aggregates.")
    internal_retention_s: float = Field(
        86_400.0, ge=60, le=315_360_000_000, description="How long internal topics keep records."
    )
    options: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="Further Kafka options by topic name, such as {aggregates: {min.insync.replicas: '2'}}.",
    )

    @field_validator("options")
    @classmethod
    def _known_topics(cls, options: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        known = [row.name for row in topology.TOPICS]
        others = sorted(options.keys() - set(known))
        if others:
            raise ValueError(f"unknown topic {', '.join(others)}; the pipeline's topics are: {', '.join(known)}")
        return options


class MetricsSettings(Model):
    """Where a process can be watched: /metrics, /livez, /readyz and /version, all on one port."""

    port: int = Field(0, ge=0, le=65_535, description="Port to watch it on; 0 for none. Each process needs its own.")
    address: str = Field(
        "0.0.0.0",  # noqa: S104 - pods are scraped from outside
        min_length=1,
        description="Address to listen on, IPv4 or IPv6.",
    )
    stuck_after_s: float = Field(
        180.0, ge=10, le=86_400, description="/livez says no when event loop or consumer have not moved for so long."
    )


class LogSettings(Model):
    """What a process logs, to stderr."""

    format: Literal["auto", "text", "json"] = Field(
        "auto", description="json: one object per line; text: one readable line; auto: text on a terminal, else json."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is logged; libraries speak from warning on, at debug all speak."
    )


class TracingSettings(Model):
    """Spans of batches and commits by OpenTelemetry; needs the extra `otel`."""

    enabled: bool = Field(False, description="Whether batches are traced and W3C trace context is carried on.")
    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^\s@]+$",
        description="Where OTLP over HTTP is taken, as http://collector:4318/v1/traces; null: as OTEL_* say.",
    )
    sample_ratio: float = Field(
        0.01, ge=0, le=1, description="Share of batches that begin a trace where no record of theirs is in one."
    )


class ReplicaSettings(Model):
    """How many processes of each stage `skewless up` starts."""

    splitter: int = Field(1, ge=0, le=256)
    router: int = Field(1, ge=0, le=256)
    worker: int = Field(1, ge=0, le=256)
    aggregator: int = Field(1, ge=0, le=256)
    observer: int = Field(1, ge=0, le=1)


class PipelineSettings(Model):
    """One pipeline; every name below is a path in its YAML file."""

    name: str = Field(
        min_length=1,
        max_length=100,
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        description="Name of the pipeline: the prefix of its topics, consumer groups and transactional ids.",
    )
    source: SourceSettings
    kafka: KafkaSettings = KafkaSettings.model_validate({})
    transport: TransportSettings = TransportSettings.model_validate({})
    topics: TopicSettings = TopicSettings.model_validate({})
    event_time: EventTimeSettings = EventTimeSettings.model_validate({})
    splitter: SplitterSettings = SplitterSettings.model_validate({"format": "text"})
    router: RouterSettings = RouterSettings.model_validate({})
    worker_input: WorkerInputSettings = WorkerInputSettings.model_validate({})
    worker: WorkerSettings = WorkerSettings.model_validate({})
    aggregator: AggregatorSettings = AggregatorSettings.model_validate({})
    observer: ObserverSettings = ObserverSettings.model_validate({})
    metrics: MetricsSettings = MetricsSettings.model_validate({})
    log: LogSettings = LogSettings.model_validate({})
    tracing: TracingSettings = TracingSettings.model_validate({})
    replicas: ReplicaSettings = ReplicaSettings.model_validate({})

    @field_validator("router")
    @classmethod
    def _known_grouping(cls, router: RouterSettings) -> RouterSettings:
        if router.grouping not in grouping.GROUPINGS:
            raise ValueError(f"grouping: {unknown('grouping', router.grouping, grouping.GROUPINGS)}")
        return router

    @model_validator(mode="after")
    def _parts_fit(self) -> PipelineSettings:
        too_many = grouping.GROUPINGS[self.router.grouping].excess(self.router.workers, self.router)
        problems = [
            (too_many is not None, f"router.workers: {too_many}"),
            (
                self.router.workers > self.worker_input.max_workers,
                (
                    f"router.workers ({self.router.workers}) is more than "
                    f"worker_input.max_workers ({self.worker_input.max_workers})"
                ),
            ),
            (
                self.aggregator.window_ms % self.worker.pane_ms != 0,
                (
                    f"aggregator.window_s ({self.aggregator.window_s}) is no multiple of "
                    f"worker.pane_s ({self.worker.pane_s})"
                ),
            ),
            (
                self.observer.tick_ms % self.worker.pane_ms != 0,
                f"observer.tick_s ({self.observer.tick_s}) is no multiple of worker.pane_s ({self.worker.pane_s})",
            ),
            (
                self.source.topic in {self.topic(row.name) for row in topology.TOPICS},
                f"source.topic ({self.source.topic}) is a topic that the pipeline itself writes",
            ),
        ]
        found = [message for wrong, message in problems if wrong]
        if found:
            raise ValueError("; ".join(found))
        return self

    def topic(self, name: str) -> str:
        """Full name of a topic of the topology; `source` is the user's own."""
        return self.source.topic if name == "source" else f"{self.name}.{name}"
