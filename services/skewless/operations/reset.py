"""Removes what a pipeline has written: its consumer groups, topics, and rows in a database.

The groups are deleted first, because Kafka deletes only groups without members: a stage that starts in the meantime
stops the reset before anything else is lost. If a reset is interrupted, the stages refuse to start, because the
evidence in the remaining topics contradicts the missing offsets, and a repeated reset continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import CheckFailedError, UnreachableError
from skewless.kafka.admin.client import Admin
from skewless.kafka.admin.groups import GroupReader
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.sql import clear
from skewless.sql.database import Database

DELETION_S = 60.0
"""Time within which brokers have to delete the topics after they have accepted the request."""
MARGIN_S = 5.0
"""Time that a broker may take to notice the end of a session."""
INTERVAL_S = 0.2


@dataclass(frozen=True)
class Leftovers:
    """What a pipeline has written that still exists."""

    topics: Mapping[str, int]
    """Full name of each topic -> its number of partitions."""
    groups: tuple[str, ...]
    tables: tuple[str, ...]
    """Tables in the database with rows of the pipeline."""
    has_replays: bool = False
    """Whether dead letters were replayed: the input may contain records twice."""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing exists."""
        return not (self.topics or self.groups or self.tables)


def wait_until_stopped(
    settings: PipelineSettings,
    report: Callable[[str], None],
    stages: Sequence[topology.Stage] = topology.STAGES,
    replaced: str | None = None,
) -> None:
    """Wait for the end of the sessions of stopped processes. Raises CheckFailedError if processes still run then.

    Raises UnreachableError, with the missing right, if the group of a stage that the pipeline has may not be described.
    A process that is stopped or killed may stay in its group until its session ends, as if it still ran. `report` is
    called with a line if the wait is necessary. `stages` are those that must not run. `replaced` is a process that may.
    """
    groups = GroupReader(settings.kafka)
    session_s = settings.transport.session_timeout_s
    deadline = time.monotonic() + session_s + MARGIN_S
    is_reported = False
    while running := [name for name in _members(settings, groups, stages) if name != replaced]:
        if time.monotonic() > deadline:
            raise CheckFailedError(f"pipeline {settings.name} runs: {', '.join(running)}; stop these processes first")
        if not is_reported:
            report(
                f"waiting up to {session_s + MARGIN_S:g} s, in case these processes were stopped and only their "
                f"sessions have not ended: {', '.join(running)}"
            )
            is_reported = True
        time.sleep(INTERVAL_S)
    _check_visible(settings, groups, stages)


def _check_visible(settings: PipelineSettings, groups: GroupReader, stages: Sequence[topology.Stage]) -> None:
    """Raise UnreachableError for a group that may not be described: otherwise it looks as if it did not exist."""
    offsets = OffsetReader(settings.kafka)
    for stage in topology.needed_stages(settings):
        group = settings.group(stage.name)
        if stage in stages and groups.describe(group).state == "Dead":
            offsets.check_group_visible(group)


def _members(settings: PipelineSettings, groups: GroupReader, stages: Sequence[topology.Stage]) -> list[str]:
    members = {member for stage in stages for member in groups.describe(settings.group(stage.name)).members}
    return sorted(member.removeprefix(f"{settings.full_name}-") for member in members)


def leftovers(settings: PipelineSettings, database: Database | None, report: Callable[[str], None]) -> Leftovers:
    """Return what the pipeline has written, after `wait_until_stopped`, which has `report`.

    `database` is a connection to the database of section `sink`; None if there is no such section. Topics and groups of
    stages that the present settings do not need, but earlier ones did, are included. Topics of the user are not.
    Raises BrokerError if a topic of the pipeline may not be described, and StoreError or UnreachableError if the
    database refuses or does not answer.
    """
    groups, admin = GroupReader(settings.kafka), Admin(settings.kafka)
    visible = admin.partition_counts()
    # Without the right to describe a topic, it looks as if it were gone.
    needed = (settings.topic(row.name) for row in topology.needed_topics(settings))
    admin.check_visible([name for name in needed if name not in visible])
    # After this check, because Kafka says at once that topics may not be described.
    wait_until_stopped(settings, report)
    partition_counts = admin.partition_counts()
    users = set(settings.user_topics.values())
    own = settings.own_topics
    stage_groups = [settings.group(stage.name) for stage in topology.STAGES]
    replays = settings.topic("replays")
    return Leftovers(
        has_replays=replays in partition_counts
        and any(begin < end for begin, end in OffsetReader(settings.kafka).ranges(replays).values()),
        topics={name: partition_counts[name] for name in own if name in partition_counts and name not in users},
        groups=tuple(name for name in stage_groups if groups.describe(name).state != "Dead"),
        tables=() if database is None else tuple(clear.tables(database, settings.full_name, settings.rank_tables())),
    )


def remove(
    settings: PipelineSettings, left: Leftovers, database: Database | None, report: Callable[[str], None]
) -> None:
    """Remove the leftovers, and call `report` with a line for each of them that is gone.

    Raises CheckFailedError if a process has joined a group in the meantime, and BrokerError, StoreError or
    UnreachableError if broker or database refuse or do not answer.
    """
    admin = Admin(settings.kafka)
    # Also groups that did not exist: a process may have created one in the meantime.
    needed = (settings.group(stage.name) for stage in topology.needed_stages(settings))
    for group in dict.fromkeys((*left.groups, *needed)):
        admin.delete_group(group)
        if group in left.groups:
            report(f"deleted group {group}")
    if database is not None:
        for table in left.tables:
            rows = clear.delete_rows(database, table, settings.full_name, settings.rank_tables())
            report(f"deleted {rows:,} rows of table {table}")
    for topic in left.topics:
        admin.delete(topic)
    _wait_until_deleted(admin, left.topics)
    for topic in left.topics:
        report(f"deleted topic {topic}")


def _wait_until_deleted(admin: Admin, topics: Mapping[str, int]) -> None:
    deadline = time.monotonic() + DELETION_S
    while existing := sorted(topics.keys() & admin.partition_counts().keys()):
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"topics {', '.join(existing)} still exist {DELETION_S:g} s after the brokers accepted to delete them: "
                "check that all brokers run, and repeat the command"
            )
        time.sleep(INTERVAL_S)
