"""Asks the processes of a pipeline whether they are ready, at their metrics ports, as far as these can be reached."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.lab.local import published_processes

CONNECT_S = 0.5
"""Timeout of the connection: a host that cannot be reached does not answer, and a kernel answers at once."""
ANSWER_S = 5.0
"""Timeout of the answer, as that of the server. A busy process answers later than its kernel."""
MAX_BYTES = 65_536
LOCAL = "127.0.0.1"


def readiness(settings: PipelineSettings, hosts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for each process that answers why it is not ready; nothing for one that is ready.

    `hosts` are the addresses of the members of the consumer groups by process, such as `router-0`. They are asked at
    `metrics.port`, processes of `skewless up` on this machine at their own ports.
    """
    port = settings.metrics.port
    addresses = {process: (host, port) for process, host in hosts.items() if port}
    found = published_processes.read(settings).items()
    addresses |= {process: (LOCAL, own.metrics_port) for process, own in found if own.metrics_port}
    if not addresses:
        return {}
    with ThreadPoolExecutor(len(addresses)) as pool:
        answers = pool.map(lambda process: _reasons(settings.full_name, process, *addresses[process]), addresses)
    return {process: answer for process, answer in zip(addresses, answers, strict=True) if answer is not None}


def _reasons(pipeline: str, process: str, host: str, port: int) -> tuple[str, ...] | None:
    """Return the reasons of one process; None if it does not answer, or if another process has the port."""
    try:
        with closing(http.client.HTTPConnection(host, port, timeout=CONNECT_S)) as connection:
            connection.connect()
            connection.sock.settimeout(ANSWER_S)
            connection.request("GET", "/readyz")
            answer = json.loads(connection.getresponse().read(MAX_BYTES))
        stage, _, instance = process.rpartition("-")
        if (answer["pipeline"], str(answer["instance"])) != (pipeline, instance):
            return None
        if answer["stage"] == topology.ALL_STAGES:
            answer = {**answer["stages"][stage], "stage": stage}
        return tuple(map(str, answer["reasons"])) if answer["stage"] == stage else None
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
