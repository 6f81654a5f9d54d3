"""Generates `files/topology.yaml`: stages, topics, ACLs and defaults, from the topology and the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, SecretStr

from skewless import topology
from skewless.config import acls
from skewless.config.loader import PREFIX
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import desired_topics
from skewless.smoke_test import acls as smoke_test

SOURCE = "SOURCE"
"""Placeholder for the source topic."""
PIPELINE = "x"
"""Placeholder for the name of the pipeline."""
RETENTION = "retention.ms"
TEST = "test"
"""Role of `helm test`."""


def document() -> dict[str, Any]:
    """Return the data that the templates iterate over."""
    return {
        "defaults": _defaults(_example()),
        "stages": [_stage(stage) for stage in topology.STAGES],
        "topics": list(_topics(_example())),
        "acls": {role: list(map(_acl, bindings)) for role, bindings in _acls(_example()).items()},
    }


def _example() -> PipelineSettings:
    return PipelineSettings.model_validate({"name": PIPELINE, "source": {"topic": SOURCE}})


def _defaults(settings: PipelineSettings) -> dict[str, Any]:
    """Return the defaults of the settings that templates use when the values do not set them."""
    return {
        "guarantee": settings.transport.guarantee,
        "max_workers": settings.worker_input.max_workers,
        "aggregator_partitions": settings.topics.aggregator_partitions,
        "replication_factor": settings.topics.replication_factor,
        "internal_retention_s": settings.topics.internal_retention_s,
    }


def _stage(stage: topology.Stage) -> dict[str, Any]:
    """Return a stage: its input, the partitions that limit its processes, and the secrets that it needs."""
    partitions = "source" if stage.inputs[0] == "source" else topology.topic(stage.inputs[0]).partitions
    return {
        "name": stage.name,
        "does": stage.description,
        "source": stage.inputs[0],
        "partitions": "one" if stage.singleton else partitions,
        "credentials": [
            {"env": f"{PREFIX}{'__'.join(path).upper()}", "key": "-".join(path[1:]).replace("_", "-")}
            for path in credentials(stage.name)
        ],
    }


def credentials(stage: str) -> list[tuple[str, ...]]:
    """Return the paths of the secrets in the stage's section of the settings."""
    field = PipelineSettings.model_fields.get(stage)
    annotation = field.annotation if field else None
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return []
    return [(stage, *path) for path in secrets(annotation)]


def secrets(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all secrets in a section of the settings, including nested sections."""
    for name, field in model.model_fields.items():
        for field_type in (field.annotation, *get_args(field.annotation)):
            if field_type is SecretStr:
                yield (name,)
            elif isinstance(field_type, type) and issubclass(field_type, BaseModel):
                yield from ((name, *path) for path in secrets(field_type))


def _topics(settings: PipelineSettings) -> Iterator[dict[str, Any]]:
    """Yield the topics, without the retention of internal topics, which the template takes from the values."""
    for topic, spec in zip(topology.TOPICS, desired_topics(settings, source_partitions=1), strict=True):
        internal_retention = topic.cleanup == "delete" and not topic.public
        config = {name: value for name, value in spec.options.items() if not (internal_retention and name == RETENTION)}
        yield {
            "name": topic.name,
            "partitions": topic.partitions,
            "internalRetention": internal_retention,
            "config": config,
        }


def _acls(settings: PipelineSettings) -> dict[str, list[acls.AclBinding]]:
    """Return role -> ACLs, for the stages and the test."""
    by_role = acls.acls_for(settings)
    return {stage.name: by_role[stage.name] for stage in topology.STAGES} | {TEST: smoke_test.rights(settings)}


def _acl(binding: acls.AclBinding) -> dict[str, Any]:
    """Return an ACL in Strimzi's terms, with names relative to the name of the pipeline."""
    source = binding.name == SOURCE
    return {
        "type": "transactionalId" if binding.resource == "transactional id" else binding.resource,
        "source": source,
        "suffix": "" if source else binding.name.removeprefix(PIPELINE),
        "patternType": "prefix" if binding.prefixed else "literal",
        "operations": list(binding.operations),
    }
