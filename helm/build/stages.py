"""What the chart knows about stages and topics: `files/topology.yaml`, made from the topology and the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, SecretStr

from skewless import acls, topology
from skewless.config import PREFIX
from skewless.flow_check import rights as flow_check
from skewless.settings import PipelineSettings
from skewless.transport.topics import desired_topics

SOURCE = "SOURCE"
"""Stands for the source topic."""
RETENTION = "retention.ms"
TEST = "test"
"""Role of `helm test`."""


def document() -> dict[str, Any]:
    """Make all that templates range over."""
    return {
        "defaults": _defaults(_example()),
        "stages": [_stage(stage) for stage in topology.STAGES],
        "topics": list(_topics(_example())),
        "rights": {role: list(map(_right, allowed)) for role, allowed in _rights(_example()).items()},
    }


def _example() -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "x", "source": {"topic": SOURCE}})


def _defaults(settings: PipelineSettings) -> dict[str, Any]:
    """Tell the settings that templates have to know also where the values do not say them."""
    return {
        "guarantee": settings.transport.guarantee,
        "max_workers": settings.worker_input.max_workers,
        "aggregator_partitions": settings.topics.aggregator_partitions,
        "replication_factor": settings.topics.replication_factor,
        "internal_retention_s": settings.topics.internal_retention_s,
    }


def _stage(stage: topology.Stage) -> dict[str, Any]:
    """Tell one stage: what it reads, how many processes can share that, and the secrets that it needs."""
    reads = "source" if stage.source == "source" else topology.topic(stage.source).partitions
    return {
        "name": stage.name,
        "does": stage.does,
        "source": stage.source,
        "partitions": "one" if stage.single else reads,
        "credentials": [
            {"env": f"{PREFIX}{'__'.join(path).upper()}", "key": "-".join(path[1:]).replace("_", "-")}
            for path in credentials(stage.name)
        ],
    }


def credentials(stage: str) -> list[tuple[str, ...]]:
    """Find the secrets among a stage's own settings, as paths."""
    field = PipelineSettings.model_fields.get(stage)
    kind = field.annotation if field else None
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return []
    return [(stage, *path) for path in secrets(kind)]


def secrets(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Find every secret of a group of settings, in the groups in it too."""
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if kind is SecretStr:
                yield (name,)
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from ((name, *path) for path in secrets(kind))


def _topics(settings: PipelineSettings) -> Iterator[dict[str, Any]]:
    """Tell each topic; retention is left to the template where it is a setting."""
    for topic, wanted in zip(topology.TOPICS, desired_topics(settings, source_partitions=1), strict=True):
        bounded = topic.cleanup == "delete" and not topic.public
        config = {name: value for name, value in wanted.options.items() if not (bounded and name == RETENTION)}
        yield {"name": topic.name, "partitions": topic.partitions, "internalRetention": bounded, "config": config}


def _rights(settings: PipelineSettings) -> dict[str, list[acls.Right]]:
    """Collect what stages and the test may do."""
    known = acls.rights(settings)
    return {stage.name: known[stage.name] for stage in topology.STAGES} | {TEST: flow_check.rights(settings)}


def _right(right: acls.Right) -> dict[str, Any]:
    """Tell a right as Strimzi says it, with names relative to the pipeline's."""
    source = right.name == SOURCE
    return {
        "type": "transactionalId" if right.resource == "transactional id" else right.resource,
        "source": source,
        "suffix": "" if source else right.name.removeprefix("x"),
        "patternType": "prefix" if right.prefixed else "literal",
        "operations": list(right.operations),
    }
