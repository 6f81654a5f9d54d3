"""Channels and operations: the topics with their options, and which stage reads and writes which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skewless import topology
from skewless.asyncapi.messages import messages_of
from skewless.settings import PipelineSettings
from skewless.transport import topics

BINDING = "0.5.0"
PARAMETERS = {
    "pipeline": {"description": "Name of the pipeline: `name` in its file.", "examples": ["words"]},
    "source": {"description": "Your own topic: `source.topic` in the pipeline's file.", "examples": ["events"]},
}
COUNTS = {"source": "as many as the source has"}
"""Where the number of partitions comes from, when it is not known."""


@dataclass(frozen=True)
class Names:
    """Names and numbers of one pipeline, or of any."""

    settings: PipelineSettings
    own: bool
    """Whether names are this pipeline's own, not `{pipeline}`."""
    source_partitions: int | None = None

    def of(self, topic: str) -> str:
        """Address of a topic."""
        if self.own:
            return self.settings.topic(topic)
        return "{source}" if topic == "source" else f"{{pipeline}}.{topic}"

    def parameters(self, topic: str) -> dict[str, Any]:
        """Describe what is in braces in the address of a topic."""
        name = "source" if topic == "source" else "pipeline"
        return {} if self.own else {"parameters": {name: PARAMETERS[name]}}

    def group(self, stage: str) -> str:
        """Consumer group of a stage."""
        return f"{self.settings.name if self.own else '{pipeline}'}-{stage}"


def channels(names: Names) -> Iterator[tuple[str, Any]]:
    """Describe every topic, in data order, the source first."""
    yield "source", _channel(names, "source", _source_binding(names))
    wanted = topics.desired_topics(names.settings, names.source_partitions or 1)
    for row, spec in zip(topology.TOPICS, wanted, strict=True):
        yield row.name, _channel(names, row.name, _binding(names, row, spec))


def _channel(names: Names, topic: str, binding: dict[str, Any]) -> dict[str, Any]:
    kinds = messages_of(topic)
    public = topic == "source" or topology.topic(topic).public
    return {
        "address": names.of(topic),
        "title": topic,
        "description": " ".join(" ".join(kind.meaning.split()) for kind in kinds),
        **names.parameters(topic),
        "messages": {kind.name: {"$ref": f"#/components/messages/{kind.name}"} for kind in kinds},
        "tags": [{"name": "public" if public else "internal"}],
        "bindings": {"kafka": {**binding, "bindingVersion": BINDING}},
    }


def _source_binding(names: Names) -> dict[str, Any]:
    return {} if names.source_partitions is None else {"partitions": names.source_partitions}


def _binding(names: Names, row: topology.Topic, spec: topics.TopicSpec) -> dict[str, Any]:
    known = row.partitions != "source" or names.source_partitions is not None
    return {
        **({"topic": spec.name} if names.own else {}),
        **({"partitions": spec.partitions} if known else {"x-partitions": COUNTS[row.partitions]}),
        "replicas": spec.replication_factor,
        "topicConfiguration": {name: _option(name, value) for name, value in spec.options.items()},
    }


def _option(name: str, value: str) -> Any:
    if name == "cleanup.policy":
        return value.split(",")
    return int(value) if value.lstrip("-").isdigit() else value


def operations(names: Names) -> Iterator[tuple[str, Any]]:
    """Tell what every stage reads, writes, and restores itself from."""
    for stage in topology.STAGES:
        yield f"{stage.name}-reads-{stage.source}", _receive(names, stage.name, stage.source, stage.does)
        if stage.changelog:
            restores = f"restores what it remembers from {stage.changelog}"
            yield (
                f"{stage.name}-restores-{stage.changelog}",
                _operation("receive", stage.name, stage.changelog, restores),
            )
        for sink in stage.sinks:
            written = f"writes {sink} in the transactions that commit what it has read"
            yield f"{stage.name}-writes-{sink}", _operation("send", stage.name, sink, written)


def _receive(names: Names, stage: str, topic: str, does: str) -> dict[str, Any]:
    group = (
        {"type": "string", "const": names.group(stage)} if names.own else {"type": "string", "pattern": f"-{stage}$"}
    )
    binding = {"kafka": {"groupId": group, "bindingVersion": BINDING}}
    return {**_operation("receive", stage, topic, does), "bindings": binding}


def _operation(action: str, stage: str, topic: str, does: str) -> dict[str, Any]:
    at = f"#/channels/{topic}"
    return {
        "action": action,
        "channel": {"$ref": at},
        "summary": f"The {stage} {does}.",
        "tags": [{"name": stage}],
        "messages": [{"$ref": f"{at}/messages/{kind.name}"} for kind in messages_of(topic)],
    }
