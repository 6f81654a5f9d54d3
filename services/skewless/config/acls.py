"""Derives the minimal ACLs of each process from the topology. Pure.

In Kafka, Read and Write on a resource include Describe (Kafka's documentation, "Authorization and ACLs"). Describe is
therefore listed only if neither of them is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings

Operation = Literal["Read", "Write", "Create", "Describe", "DescribeConfigs"]

TOPICS = "topics"
"""Role for `skewless topics apply` and `skewless topics check`."""
STATUS = "status"
"""Role for `skewless status` and `skewless topics check`. It may only read."""
READERS = "readers"
"""Role for consumers of the public topics."""
DEAD_LETTERS = "dead-letters"
"""Role for `skewless dead-letters`, with replays to the topics that the pipeline reads."""
ROLES = (*(stage.name for stage in topology.STAGES), TOPICS, STATUS, READERS, DEAD_LETTERS)

CHECKED = ("its output", "check for earlier results")
"""Purposes of an output topic: earlier results without committed offsets mean that the offsets were lost."""


@dataclass(frozen=True)
class AclBinding:
    """Operations that a role may perform on one resource. Everything else is denied."""

    resource: Literal["topic", "group", "transactional id"]
    name: str
    operations: tuple[Operation, ...]
    needed: tuple[str, ...]
    """Purposes, for the user."""
    prefixed: bool = field(default=False, kw_only=True)
    """Whether `name` is a prefix."""


def acls_for(settings: PipelineSettings) -> dict[str, list[AclBinding]]:
    """Return the ACLs of each role, in the order of `ROLES`, without the stages that the pipeline does not have."""
    stages = {stage.name: list(acls_of_stage(stage, settings)) for stage in topology.needed_stages(settings)}
    return {
        **stages,
        TOPICS: list(_acls_of_topics(settings)),
        STATUS: list(_acls_of_status(settings)),
        READERS: list(_acls_of_readers(settings)),
        DEAD_LETTERS: list(_acls_of_dead_letters(settings)),
    }


def acls_by_principal(settings: PipelineSettings, principals: Mapping[str, str]) -> dict[str, list[AclBinding]]:
    """Return the ACLs of each principal. `principals` maps roles to principals. Shared bindings are merged."""
    by_principal: dict[str, dict[tuple[str, str, bool], AclBinding]] = {}
    for role, bindings in acls_for(settings).items():
        merged = by_principal.setdefault(principals[role], {})
        for binding in bindings:
            resource = (binding.resource, binding.name, binding.prefixed)
            merged[resource] = _merge(merged[resource], binding) if resource in merged else binding
    return {principal: list(merged.values()) for principal, merged in by_principal.items()}


def _merge(first: AclBinding, second: AclBinding) -> AclBinding:
    """Return a binding with the operations and purposes of two bindings of the same resource."""
    allowed = {*first.operations, *second.operations}
    if allowed & {"Read", "Write"}:
        allowed.discard("Describe")
    operations = tuple(operation for operation in get_args(Operation) if operation in allowed)
    return replace(first, operations=operations, needed=tuple(dict.fromkeys((*first.needed, *second.needed))))


def acls_of_stage(stage: topology.Stage, settings: PipelineSettings) -> Iterator[AclBinding]:
    """Yield the ACLs of a stage."""
    yield from _acls_of_inputs(stage, settings)
    exactly_once = settings.transport.guarantee == "exactly_once"
    for output in stage.outputs_of(settings):
        if output == stage.outputs[0] and exactly_once:
            yield _topic(settings.topic(output), ("Read", "Write"), *CHECKED)
        elif output != stage.changelog:
            yield _topic(settings.topic(output), ("Write",), "its output")
    if stage.changelog is not None:
        yield _topic(settings.topic(stage.changelog), ("Read", "Write"), "its state")
    for name in (name for name in stage.described_topics if name not in stage.inputs_of(settings)):
        yield _topic(settings.topic(name), ("Describe",), "number of partitions")
    yield from _groups_of(stage, settings)
    if exactly_once and stage.outputs:
        ids = f"{settings.group(stage.name)}-"
        yield AclBinding("transactional id", ids, ("Write",), ("transactions, one id per process",), prefixed=True)


def _acls_of_inputs(stage: topology.Stage, settings: PipelineSettings) -> Iterator[AclBinding]:
    for source in stage.inputs_of(settings):
        if source == "source":
            yield from source_topics(settings, ("Read",), "its input")
        elif topology.USER_TOPICS.get(source) == "join" and stage.changelog is not None:
            yield _topic(settings.topic(source), ("Read", "DescribeConfigs"), "its input", "retention")
        else:
            yield _topic(settings.topic(source), ("Read",), "its input")
        if source == "events":
            for topic in settings.table_topics.values():
                yield _topic(topic, ("Read", "DescribeConfigs"), "its rows", "retention")


def _groups_of(stage: topology.Stage, settings: PipelineSettings) -> Iterator[AclBinding]:
    yield AclBinding("group", settings.group(stage.name), ("Read",), ("assignment of partitions, offsets",))
    of_user = topology.USER_TOPICS.keys() >= set(stage.inputs)
    if of_user and stage.inputs_of(settings) != stage.inputs:  # other stages write the records of these topics again
        for writer in sorted(topology.upstream(stage.name)):
            yield AclBinding("group", settings.group(writer), ("Describe",), ("its progress",))


def _acls_of_topics(settings: PipelineSettings) -> Iterator[AclBinding]:
    yield from _acls_of_user_topics(settings, "Describe", "number of partitions")
    operations: tuple[Operation, ...] = ("Create", "Describe", "DescribeConfigs")
    yield AclBinding("topic", f"{settings.full_name}.", operations, ("create and verify topics",), prefixed=True)


def _acls_of_status(settings: PipelineSettings) -> Iterator[AclBinding]:
    yield from _acls_of_user_topics(settings, "Read", "lag")
    name = settings.full_name
    yield AclBinding("topic", f"{name}.", ("Read", "DescribeConfigs"), ("lag", "options"), prefixed=True)
    yield AclBinding("group", f"{name}-", ("Describe",), ("processes, offsets",), prefixed=True)


def _acls_of_user_topics(settings: PipelineSettings, operation: Operation, needed: str) -> Iterator[AclBinding]:
    """Yield the ACLs of the topics of the user that the pipeline reads, for a role that also checks their retention."""
    for name in settings.user_inputs:
        if name == "source":
            yield from source_topics(settings, (operation,), needed)
        elif topology.USER_TOPICS[name] != "join" or topology.REPARTITIONED.holds(settings):
            yield _topic(settings.topic(name), (operation,), needed)
        else:
            yield _topic(settings.topic(name), (operation, "DescribeConfigs"), needed, "retention")
    for topic in settings.table_topics.values():
        yield _topic(topic, ("Describe", "DescribeConfigs"), "retention")


def _acls_of_readers(settings: PipelineSettings) -> Iterator[AclBinding]:
    for topic in topology.needed_topics(settings):
        if topic.public:
            yield _topic(settings.topic(topic.name), ("Read",), "results")
    yield AclBinding("group", settings.group(READERS), ("Read",), ("their own offsets",), prefixed=True)


def _acls_of_dead_letters(settings: PipelineSettings) -> Iterator[AclBinding]:
    yield _topic(settings.topic("dead-letters"), ("Read",), "dead letters")
    if settings.source_pattern:
        yield from source_topics(settings, ("Read", "Write"), "invalid records", "their replay")
    for name in settings.user_topics.values():
        yield _topic(name, ("Read", "Write"), "invalid records", "their replay")
    for topic in topology.TOPICS:
        if topic.command is not None:
            yield _topic(settings.topic(topic.name), ("Read", "Write"), "no record is replayed twice")
    replays = f"{settings.group(DEAD_LETTERS)}-replay"
    yield AclBinding("transactional id", replays, ("Write",), ("transactions of replays",))


def source_topics(settings: PipelineSettings, operations: Iterable[Operation], *needed: str) -> Iterator[AclBinding]:
    """Yield the ACLs of the source topics. Those of a pattern share one, for the characters with which it begins."""
    if settings.source_pattern:
        prefix = settings.source_pattern.prefix
        name, prefixed = (prefix, True) if prefix else ("*", False)
        yield AclBinding("topic", name, tuple(operations), needed, prefixed=prefixed)
        return
    for topic in settings.aggregated.select(()):
        yield _topic(topic, operations, *needed)


def _topic(name: str, operations: Iterable[Operation], *needed: str) -> AclBinding:
    return AclBinding("topic", name, tuple(operations), needed)
