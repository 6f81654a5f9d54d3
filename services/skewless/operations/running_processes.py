"""Finds the processes of a pipeline that another command runs. A second one with the same name would replace them."""

from __future__ import annotations

import socket
from collections.abc import Collection

import psutil

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import FencedError
from skewless.kafka.admin.groups import GroupReader
from skewless.lab.local import published_processes
from skewless.operations.readiness import readiness

LISTED = 3
"""Processes that the error names at most."""


def check_not_running(settings: PipelineSettings, processes: Collection[str]) -> list[str]:
    """Raise FencedError if one of these processes, such as `router-0`, runs.

    A process runs if a command on this machine has published it and lives, or if the member of the consumer group with
    its group instance id answers at `metrics.port`. The broker alone does not know: it lists a killed member until its
    session has timed out, and a restart must not wait for that. Returns a line for each member on another machine of
    which nothing else is known.
    """
    reader = GroupReader(settings.kafka)
    hosts: dict[str, str] = {}
    for stage in dict.fromkeys(process.rpartition("-")[0] for process in processes):
        group = reader.describe(settings.group(stage))
        hosts |= {member.removeprefix(f"{settings.full_name}-"): host for member, host in group.members.items()}
    members_of_run = {process: hosts[process] for process in processes if process in hosts}
    answering = {process: f"at {hosts[process]}" for process in readiness(settings, members_of_run) if process in hosts}
    local = {process: f"pid {own.pid} on this machine" for process, own in published_processes.read(settings).items()}
    places = answering | local
    named = [
        f"{settings.full_name}-{process} of group {settings.group(process.rpartition('-')[0])} ({places[process]})"
        for process in processes
        if process in places
    ]
    if named:
        more = f" and {len(named) - LISTED} more" if len(named) > LISTED else ""
        raise FencedError(
            f"pipeline {settings.name} already runs: {', '.join(named[:LISTED])}{more}. This run would replace these "
            "processes, and they would end: stop them first, or add --take-over to replace them"
        )
    own = own_addresses()
    return [
        f"{settings.full_name}-{process} was last at {host}: if it still runs there, this run replaces it"
        for process, host in members_of_run.items()
        if host not in own
    ]


def own_addresses() -> frozenset[str]:
    """Return the addresses of this machine."""
    families = (socket.AF_INET, socket.AF_INET6)
    return frozenset(
        each.address for found in psutil.net_if_addrs().values() for each in found if each.family in families
    )
