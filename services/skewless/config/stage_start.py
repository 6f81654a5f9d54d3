"""Start of a stage: its settings, inputs and numbers of partitions, resolved once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from skewless import topology
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.state_layout import schema_of_stage
from skewless.engine.start_checks import Input, PriorOutputInTopic, TopicKind
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.wire.offset_metadata import decode_offset_metadata
from skewless.wire.state_schema import StateSchema


@dataclass(frozen=True)
class StageStart:
    """A stage of a pipeline with all that its builder, its consumer group and `skewless status` read."""

    stage: topology.Stage
    settings: PipelineSettings
    partitions: Mapping[str, int]
    """Number of partitions by full name of topic. Without topics that are not visible."""
    drain: bool = False
    """Whether the stage ends at the end of its input."""
    report_wait: Callable[[str], None] | None = None
    """Receives the name of the server that the stage waits for while it is built."""

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.settings.group(self.stage.name)

    @property
    def reads_source(self) -> bool:
        """Whether the source topics are its input."""
        return "source" in self.stage.inputs_of(self.settings)

    def count_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic of the topology. Raises BrokerError if it does not exist."""
        name = self.settings.topic(topic)
        topic_plan.check_visible(self.settings, self.partitions, name)
        return self.partitions[name]

    def input_topics(self) -> Iterator[tuple[str, str]]:
        """Yield the full name of each input topic, and its name in the topology."""
        for name in self.stage.inputs_of(self.settings):
            yield from ((topic, name) for topic in self.settings.full_names(name, self.partitions))

    def inputs(self) -> tuple[Input, ...]:
        """Return the inputs of the consumer group."""
        return tuple(self._input(topic, name) for topic, name in self.input_topics())

    def former_inputs(self) -> tuple[Input, ...]:
        """Return the inputs that the stage has with other settings only."""
        names = set(self.stage.all_inputs) - set(self.stage.inputs_of(self.settings))
        return tuple(self._input(self.settings.topic(name), name) for name in sorted(names))

    def _input(self, topic: str, name: str) -> Input:
        schema = schema_of_stage(self.settings, self.stage.section)
        bounded = self.drain and name in self.settings.user_inputs
        if name != "source":
            partitions = self.partitions.get(topic)
            return Input(self.group, topic, _kind(name), schema, partitions=partitions, bounded=bounded)
        source = self.settings.aggregated
        return Input(
            self.group,
            topic,
            _kind(name),
            schema,
            skip_to=source.skip_to_of(topic),
            skip_to_prefix=source.prefix_of(topic),
            bounded=bounded,
        )

    def changelog_of_results(self) -> str | None:
        """Return the topic of the state without which results would be wrong; None for a stage without such a state."""
        name = self.stage.changelog
        return self.settings.topic(name) if name is not None and self.stage.results_need_changelog else None

    def prior_output(self) -> PriorOutputInTopic | None:
        """Return where results of an earlier start are: in the first output topic. None for a stage without topics."""
        if not self.stage.outputs:
            return None
        output = topology.topic(self.stage.outputs[0])  # no other stage writes to it
        kinds = {topology.partitions_of(name) for name in self.stage.inputs_of(self.settings)}
        return PriorOutputInTopic(
            self.settings.kafka,
            self.settings.topic(output.name),
            aligned=kinds == {output.partitions} and not self.stage.repartitions,
            merged=self.reads_source
            and (self.settings.has_several_sources or self.settings.topics.tuples_partitions is not None),
            public=output.public,
            exactly_once=self.settings.transport.guarantee == "exactly_once",
        )


def resolve(stage: topology.Stage, settings: PipelineSettings, *, drain: bool) -> StageStart:
    """Return the start of a stage. Raises the errors of `topic_plan.check_stage`.

    `worker_input.max_workers` gets a value if it is unset. It does not change between two runs.
    """
    start = StageStart(stage, settings, Admin(settings.kafka).partition_counts(), drain)
    settings = topic_plan.with_max_workers(settings, start.partitions, lambda: _committed_max_workers(start))
    topic_plan.check_stage(settings, stage, start.partitions)
    return StageStart(stage, settings, start.partitions, drain)


def _committed_max_workers(start: StageStart) -> int | None:
    """Return the number with which the stage has run before; None if it has not."""
    offset_reader = OffsetReader(start.settings.kafka)
    for topic, _ in start.input_topics():
        for offset in offset_reader.committed(start.group, topic).values():
            schema = decode_offset_metadata(offset.metadata).state_schema
            if isinstance(schema, StateSchema):
                return schema.max_workers
    return None


def _kind(topic: str) -> TopicKind:
    """Return who writes a topic that a stage reads."""
    if topic in topology.USER_TOPICS:
        return "user"
    return "public" if topology.topic(topic).public else "internal"
