"""What each process must be allowed on the brokers, and no more: derived from the topology. Pure.

Kafka lets whoever may Read or Write a resource Describe it too (Kafka's documentation, "Authorization and ACLs"), so
Describe stands alone only where nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from skewless import topology
from skewless.settings import PipelineSettings

Operation = Literal["Read", "Write", "Create", "Describe", "DescribeConfigs"]

TOPICS = "topics"
"""Role of who runs `skewless topics apply` and `skewless topics check`."""
READERS = "readers"
"""Role of who reads the public topics."""
ROLES = (*(stage.name for stage in topology.STAGES), TOPICS, READERS)

CHECKED = "its output; earlier results, before a first start"
"""Purpose of the right to read what a stage writes: without offsets, earlier results mean that offsets were lost."""
COUNTED = {"worker": "tuples"}
"""Topics beside its own that a stage asks for their number of partitions: a worker waits for each of its origins."""


@dataclass(frozen=True)
class Right:
    """One thing that a role may do; whatever no right names is denied."""

    resource: Literal["topic", "group", "transactional id"]
    name: str
    prefixed: bool
    """Whether `name` stands for everything that begins with it."""
    operations: tuple[Operation, ...]
    needed: str
    """What for."""


def rights(settings: PipelineSettings) -> dict[str, list[Right]]:
    """Give the rights of each role, in the order of `ROLES`."""
    stages = {stage.name: list(_of_stage(stage, settings)) for stage in topology.STAGES}
    return {**stages, TOPICS: list(_of_topics(settings)), READERS: list(_of_readers(settings))}


def by_principal(settings: PipelineSettings, principals: Mapping[str, str]) -> dict[str, list[Right]]:
    """Give the rights of each principal, by the principal of each role; what two roles share comes once."""
    found: dict[str, dict[tuple[str, str, bool], Right]] = {}
    for role, allowed in rights(settings).items():
        merged = found.setdefault(principals[role], {})
        for right in allowed:
            at = (right.resource, right.name, right.prefixed)
            merged[at] = _merge(merged[at], right) if at in merged else right
    return {principal: list(merged.values()) for principal, merged in found.items()}


def _merge(one: Right, other: Right) -> Right:
    both = {*one.operations, *other.operations}
    if both & {"Read", "Write"}:
        both.discard("Describe")
    operations = tuple(operation for operation in get_args(Operation) if operation in both)
    needed = "; ".join(dict.fromkeys((*one.needed.split("; "), *other.needed.split("; "))))
    return replace(one, operations=operations, needed=needed)


def _of_stage(stage: topology.Stage, settings: PipelineSettings) -> Iterator[Right]:
    yield _topic(settings.topic(stage.source), ("Read",), "its input")
    exactly_once = settings.transport.guarantee == "exactly_once"
    first, *_ = stage.sinks
    for sink in stage.sinks:
        if sink == first and exactly_once:
            yield _topic(settings.topic(sink), ("Read", "Write"), CHECKED)
        elif sink != stage.changelog:
            yield _topic(settings.topic(sink), ("Write",), "its output")
    if stage.changelog is not None:
        yield _topic(settings.topic(stage.changelog), ("Read", "Write"), "its state")
    if stage.name in COUNTED:
        yield _topic(settings.topic(COUNTED[stage.name]), ("Describe",), "number of partitions")
    identity = f"{settings.name}-{stage.name}"
    yield Right("group", identity, prefixed=False, operations=("Read",), needed="share of partitions, offsets")
    if exactly_once:
        yield Right(
            "transactional id",
            f"{identity}-",
            prefixed=True,
            operations=("Write",),
            needed="transactions, one id per process",
        )


def _of_topics(settings: PipelineSettings) -> Iterator[Right]:
    yield _topic(settings.source.topic, ("Describe",), "number of partitions")
    yield Right(
        "topic",
        f"{settings.name}.",
        prefixed=True,
        operations=("Create", "Describe", "DescribeConfigs"),
        needed="creating and verifying",
    )


def _of_readers(settings: PipelineSettings) -> Iterator[Right]:
    for topic in topology.TOPICS:
        if topic.public:
            yield _topic(settings.topic(topic.name), ("Read",), "results")
    yield Right("group", f"{settings.name}-readers", prefixed=True, operations=("Read",), needed="their own offsets")


def _topic(name: str, operations: Iterable[Operation], needed: str) -> Right:
    return Right("topic", name, prefixed=False, operations=tuple(operations), needed=needed)
