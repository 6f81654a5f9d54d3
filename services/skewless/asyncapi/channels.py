"""Generates the channels (topics with their options) and operations (reads and writes of the stages)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from skewless import topology
from skewless.asyncapi.messages import Message, messages_of
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import topic_spec
from skewless.kafka.admin.topics import TopicSpec
from skewless.wire.tuples import TUPLE, TUPLE_V2, TUPLES, TUPLES_V2, TupleFormat

BINDING = "0.5.0"
PARAMETERS = {
    "pipeline": {"description": "Name of the pipeline: `topics.prefix` and `name` in its file.", "examples": ["words"]},
    "source": {
        "description": "Your own topic: `source.topic` in the pipeline's file, or one of `source.topics`.",
        "examples": ["events"],
    },
    "left": {"description": "Your own topic: `join.left.topic` in the pipeline's file.", "examples": ["impressions"]},
    "right": {"description": "Your own topic: `join.right.topic` in the pipeline's file.", "examples": ["clicks"]},
}
UNKNOWN_PARTITION_COUNTS = {
    "source": "as many as the source has when the topic is created",
    "join": "as many as the joined topics have",
}
"""Description of a number of partitions that is unknown."""


@dataclass(frozen=True)
class Names:
    """Names and numbers of one pipeline, or placeholders for any pipeline."""

    settings: PipelineSettings
    is_concrete: bool
    """Whether the names are those of this pipeline instead of `{pipeline}`."""
    source_partitions: int | None = None

    def topics(self) -> Sequence[topology.Topic]:
        """Return the topics of the pipeline, or all topics for any pipeline."""
        return topology.needed_topics(self.settings) if self.is_concrete else topology.TOPICS

    def stages(self) -> Sequence[topology.Stage]:
        """Return the stages of the pipeline, or all stages for any pipeline."""
        return topology.needed_stages(self.settings) if self.is_concrete else topology.STAGES

    def inputs(self) -> Sequence[str]:
        """Return the topics of the user that stages read. `source` may be a topic of the pipeline."""
        read = {name for stage in self.stages() for name in self.inputs_of(stage)}
        own = {row.name for row in self.topics()}
        return [name for name in topology.USER_TOPICS if name in read and self.channel(name) not in own]

    def inputs_of(self, stage: topology.Stage) -> tuple[str, ...]:
        """Return the topics that a stage reads, or all that it reads in any pipeline."""
        return stage.inputs_of(self.settings) if self.is_concrete else stage.all_inputs

    def messages_of(self, topic: str) -> Sequence[Message]:
        """Return the messages of a topic. The tuples of a given pipeline have one version."""
        if not self.is_concrete:
            return messages_of(topic)
        tuples = TupleFormat(self.settings.values)
        others = {TUPLE, TUPLE_V2, TUPLES, TUPLES_V2} - {tuples.columns_name, tuples.record_name}
        return [message for message in messages_of(topic) if message.schema_header not in others]

    def channel(self, topic: str) -> str:
        """Return the name of the channel of a topic. If the source is a topic of the pipeline, it is that one."""
        if not self.is_concrete or self._is_several(topic):
            return topic
        own = {self.settings.topic(row.name): row.name for row in topology.TOPICS}
        return own.get(self.settings.topic(topic), topic)

    def _is_several(self, topic: str) -> bool:
        """Return whether the topic of the topology may stand for several topics of this pipeline."""
        return self.is_concrete and topic == "source" and self.settings.aggregated.topic is None

    def address(self, topic: str) -> str:
        """Return the address of a topic."""
        if self.is_concrete and not self._is_several(topic):
            return self.settings.topic(topic)
        return f"{{{topic}}}" if topic in topology.USER_TOPICS else f"{{pipeline}}.{topic}"

    def parameters(self, topic: str) -> dict[str, Any]:
        """Describe the parameter in the address of a topic, if it has one."""
        name = topic if topic in topology.USER_TOPICS else "pipeline"
        if self._is_several(topic):
            source = self.settings.aggregated
            names = {} if self.settings.has_source_pattern else {"enum": list(source.select(()))}
            return {"parameters": {name: {"description": f"Your own topics: {source}.", **names}}}
        return {} if self.is_concrete else {"parameters": {name: PARAMETERS[name]}}

    def group(self, stage: str) -> str:
        """Return the consumer group of a stage."""
        return self.settings.group(stage) if self.is_concrete else f"{{pipeline}}-{stage}"


def channels(names: Names) -> Iterator[tuple[str, Any]]:
    """Yield the name and description of every topic, in data order, those of the user first."""
    for name in names.inputs():
        yield name, _channel(names, name, _source_binding(names) if name == "source" else {})
    for row in names.topics():
        spec = topic_spec(row, names.settings, names.source_partitions or 1)
        yield row.name, _channel(names, row.name, _binding(names, row, spec))


def _channel(names: Names, topic: str, binding: dict[str, Any]) -> dict[str, Any]:
    messages = names.messages_of(topic)
    public = topic in topology.USER_TOPICS or topology.topic(topic).public
    return {
        "address": names.address(topic),
        "title": topic,
        "description": " ".join(" ".join(message.summary.split()) for message in messages),
        **names.parameters(topic),
        "messages": {message.name: {"$ref": f"#/components/messages/{message.name}"} for message in messages},
        "tags": [{"name": "public" if public else "internal"}],
        "bindings": {"kafka": {**binding, "bindingVersion": BINDING}},
    }


def _source_binding(names: Names) -> dict[str, Any]:
    return {} if names.source_partitions is None else {"partitions": names.source_partitions}


def _binding(names: Names, row: topology.Topic, spec: TopicSpec) -> dict[str, Any]:
    has_known_count = row.partitions not in UNKNOWN_PARTITION_COUNTS or (
        row.partitions == "source" and names.source_partitions is not None
    )
    partitions: dict[str, Any] = (
        {"partitions": spec.partitions}
        if has_known_count
        else {"x-partitions": UNKNOWN_PARTITION_COUNTS[row.partitions]}
    )
    return {
        **({"topic": spec.name} if names.is_concrete else {}),
        **partitions,
        **({} if spec.replication_factor is None else {"replicas": spec.replication_factor}),
        "topicConfiguration": {name: _option(name, value) for name, value in spec.options.items()},
    }


def _option(name: str, value: str) -> Any:
    if name == "cleanup.policy":
        return value.split(",")
    return int(value) if value.lstrip("-").isdigit() else value


def operations(names: Names) -> Iterator[tuple[str, Any]]:
    """Yield the name and description of every read, write and state restoration of the stages, and of the commands."""
    for stage in names.stages():
        for name in names.inputs_of(stage):
            yield f"{stage.name}-reads-{name}", _receive(names, stage.name, name, stage.description)
        if stage.changelog:
            restores = f"restores its state from {stage.changelog}"
            yield (
                f"{stage.name}-restores-{stage.changelog}",
                _operation(names, "receive", stage.name, stage.changelog, restores),
            )
        for output in stage.outputs:
            writes = f"writes {output} in the transactions that commit its input offsets"
            yield f"{stage.name}-writes-{output}", _operation(names, "send", stage.name, output, writes)
    for row in names.topics():
        if row.command is not None:
            command = row.command.replace(" ", "-")
            yield (
                f"{command}-writes-{row.name}",
                _operation(names, "send", f"command {row.command}", row.name, "writes it"),
            )


def _receive(names: Names, stage: str, topic: str, predicate: str) -> dict[str, Any]:
    group = (
        {"type": "string", "const": names.group(stage)}
        if names.is_concrete
        else {"type": "string", "pattern": f"-{stage}$"}
    )
    binding = {"kafka": {"groupId": group, "bindingVersion": BINDING}}
    return {**_operation(names, "receive", stage, names.channel(topic), predicate), "bindings": binding}


def _operation(names: Names, action: str, stage: str, topic: str, predicate: str) -> dict[str, Any]:
    channel = f"#/channels/{topic}"
    return {
        "action": action,
        "channel": {"$ref": channel},
        "summary": f"The {stage} {predicate}.",
        "tags": [{"name": stage}],
        "messages": [{"$ref": f"{channel}/messages/{message.name}"} for message in names.messages_of(topic)],
    }
