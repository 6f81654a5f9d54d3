"""The mirror's builder."""

from __future__ import annotations

from dataclasses import replace

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.config.topic_plan import topic_spec
from skewless.errors import ConfigurationError
from skewless.kafka.admin.client import Admin
from skewless.kafka.admin.topics import differences
from skewless.kafka.other_cluster import errors_of_other_cluster
from skewless.kafka.producer.mirror import MirrorProducer
from skewless.stages.built_stage import BuiltStage
from skewless.stages.mirror.prior_copy import PriorCopy
from skewless.stages.mirror.settings import MirrorSettings
from skewless.stages.mirror.step import MirrorStep

REQUEST_S = 5.0
"""Time limit of a request to the other cluster. The attempt to connect is repeated."""
RENEW_S = 3600.0
"""Time after which offsets are committed again. By default, brokers remove an offset of a group without members seven
days after its last commit, and a transactional id seven days after its last transaction."""


def build(start: StageStart) -> BuiltStage:
    """Build the mirror from its settings."""
    pipeline = start.settings
    mirror = pipeline.mirror
    if mirror is None:
        raise ConfigurationError("mirror: is required for a copy in another cluster; set mirror.kafka")
    transport = pipeline.transport.model_copy(update={"compression": mirror.compression})
    group, copy = offsets_group(start, mirror), f"{mirror.prefix}{pipeline.topic(mirror.topic)}"

    def output(_member: str) -> MirrorProducer:
        return MirrorProducer(
            mirror.kafka,
            transport,
            topic=lambda name: f"{mirror.prefix}{pipeline.topic(name)}",
            copy_of=lambda topic: f"{mirror.prefix}{topic}",
            group=group,
            prepare=lambda: prepare(pipeline, mirror),
        )

    return BuiltStage(
        MirrorStep(mirror.topic),
        output=output,
        prior_output=PriorCopy(mirror.kafka, copy, group),
        renew_offsets_s=RENEW_S,
    )


def offsets_group(start: StageStart, mirror: MirrorSettings) -> str:
    """Return the group of the other cluster that has the offsets, and no members.

    A pipeline with the names of the copies may run in the other cluster, and have a mirror too. That mirror's group has
    the name without the suffix.
    """
    return f"{mirror.prefix}{start.group}-offsets"


def prepare(pipeline: PipelineSettings, mirror: MirrorSettings) -> None:
    """Create the copy unless it exists. Raises ConfigurationError if it cannot be the copy of the topic."""
    copy, pattern = f"{mirror.prefix}{pipeline.topic(mirror.topic)}", pipeline.source_pattern
    is_read = copy in pipeline.user_topics.values() or (pattern is not None and pattern.matches(copy))
    cluster_id = Admin(pipeline.kafka).cluster_id() if is_read or not mirror.prefix else None
    with errors_of_other_cluster():
        _prepare(pipeline, mirror, cluster_id)


def _prepare(pipeline: PipelineSettings, mirror: MirrorSettings, cluster_id: str | None) -> None:
    kafka = mirror.kafka.model_copy(update={"connect_timeout_s": min(REQUEST_S, mirror.kafka.connect_timeout_s)})
    admin, name = Admin(kafka), pipeline.topic(mirror.topic)
    if cluster_id is not None and admin.cluster_id() == cluster_id:
        if mirror.prefix:
            raise ConfigurationError(
                f"mirror.prefix: {mirror.prefix}{name} is one of the topics that the pipeline reads, so it would count "
                "its own results; use another prefix, or a pattern in source.topics.match that does not match it"
            )
        raise ConfigurationError(
            f"mirror.kafka.bootstrap_servers: {kafka.bootstrap_servers} is the cluster of the pipeline, where {name} "
            "would be its own copy; name another cluster, or set mirror.prefix"
        )
    spec = topic_spec(topology.topic(mirror.topic), pipeline, source_partitions=1)  # neither has those of the source
    copy = replace(spec, name=f"{mirror.prefix}{name}", replication_factor=None)
    existing = admin.describe([copy.name]).get(copy.name)
    if existing is None and mirror.create:
        admin.create(copy.name, copy.partitions, None, copy.options, copy.optional)
        admin.wait_for_leaders({copy.name: copy.partitions})
    elif existing is None:
        raise ConfigurationError(
            f"mirror.create: topic {copy.name} does not exist at {kafka.bootstrap_servers}; create it with "
            f"{copy.partitions} partitions, or set mirror.create: true"
        )
    elif found := list(differences(copy, existing)):
        raise ConfigurationError(*found)
