"""Properties, ports and command line of one Kafka server process."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from skewless.errors import BrokerError, ConfigurationError, UnreachableError
from skewless.lab.local import jars, java
from skewless.lab.local.ports import find_free_ports

PROPERTIES_FILE = "server.properties"
READY_TIMEOUT_S = 180.0
MIN_FREE_BYTES = 2**16
FULL_DISK_S = 10.0
"""Time for which a broker may start on a disk with less than `MIN_FREE_BYTES`. If it must write, it waits without end,
and cannot write its log either."""
JVM: tuple[str, ...] = ("-Xms128m", "-Xmx512m", *java.QUICK_START, "-Xlog:disable")
LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"

# One node, so nothing is replicated. Sizes and intervals are small, for a fast start and little memory.
# - log.retention.ms: records are never deleted by age, because their timestamps are event times and may be years old.
# - broker.session.timeout.ms: short, because a killed broker can register again only after its session has expired.
# - metadata.max.idle.interval.ms: the controller writes no empty records, twice a second. No other broker reads them.
# - offsets.retention.minutes: committed offsets never expire, because a stopped pipeline needs them to continue.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.retention.minutes": str(2**31 - 1),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "metadata.max.idle.interval.ms": "0",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "5000",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


class Ports(NamedTuple):
    """Loopback ports of one server: the listeners for clients, for the broker itself, and of the controller."""

    client: int
    internal: int
    controller: int


def free_ports(client: int | None = None) -> Ports:
    """Choose different loopback ports that are free now. `client` sets the port for clients."""
    free, internal, controller = find_free_ports(3)
    return Ports(client or free, internal, controller)


@contextlib.contextmanager
def hold_previous_port(folder: Path) -> Iterator[None]:
    """Hold the INTERNAL port of the last run in `folder` open. Accepts connections and never answers them.

    Works around KAFKA-20734 (Kafka 4.3). A server that restarts after a crash sees itself as the leader, then
    sees no leader, then sees itself again. Meanwhile it treats a transaction that is being committed as one on deleted
    topics: the transaction ends without its markers, and its group hangs. The bug needs a refused connection to the
    port of the last run. While the port is held, no connection is refused until the server answers at its new port.
    """
    file = folder / PROPERTIES_FILE
    properties = file.read_text() if file.exists() else ""
    previous = re.search(r"^listeners=.*INTERNAL://127\.0\.0\.1:(\d+)", properties, re.MULTILINE)
    with contextlib.ExitStack() as stack:
        if previous:
            # OSError: another process listens on the port, so connections to it are not refused either.
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", int(previous[1]))))
        yield


def write_properties(folder: Path, ports: Ports, extra: Mapping[str, str]) -> Path:
    """Write server.properties into `folder` and return its path. `extra` overrides the defaults.

    Raises ConfigurationError if Kafka cannot keep its data in this folder.
    """
    if "," in str(folder):
        raise ConfigurationError(
            f"{folder}: Kafka accepts no folder with a comma in its path: name another one, with --data for the data "
            "of `skewless broker`, SKEWLESS_CACHE for downloads, or TMPDIR for temporary files"
        )
    listeners = {name: f"{name.upper()}://127.0.0.1:{port}" for name, port in ports._asdict().items()}
    properties = PROPERTIES | {
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": f"{listeners['client']},{listeners['internal']}",
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "log.dirs": str(folder / "data"),
    }
    # Java reads the file as ISO 8859-1. Its escapes are those of JSON.
    lines = [f"{name}={json.dumps(value)[1:-1]}\n" for name, value in (properties | dict(extra)).items()]
    path = folder / PROPERTIES_FILE
    path.write_text("".join(lines))
    return path


def command(*arguments: str, jvm: str) -> list[str]:
    """Return the command line of one of Kafka's main classes with its arguments. `jvm` is an additional JVM option."""
    classpath = ":".join(map(str, jars.kafka()))
    return [str(java.find().path), *JVM, LOGGING, jvm, "-cp", classpath, *arguments]


class PortInUseError(UnreachableError):
    """Another process uses one of the ports."""


def wait_until_started(child: subprocess.Popen[bytes], log: Path, options: Mapping[str, str]) -> None:
    """Wait until a server answers a client with these options of librdkafka.

    Raises UnreachableError, with the end of its log, if it ends, does not answer within READY_TIMEOUT_S, or has no
    space in the folder of its log.
    """
    # Imported here, because `skewless.kafka` loads slowly and most commands need no embedded broker.
    from skewless.kafka.reachability import wait_until_reachable

    try:
        full_at = time.monotonic() + FULL_DISK_S
        wait_until_reachable(
            options,
            READY_TIMEOUT_S,
            give_up=lambda: child.poll() is not None or (time.monotonic() > full_at and _is_full(log.parent)),
        )
    except (UnreachableError, BrokerError) as error:
        if _is_full(log.parent):
            raise UnreachableError(
                f"the embedded broker did not start: the disk of {log.parent} is full; make room, or put the broker's "
                "data on another disk"
            ) from None
        text = log.read_text(errors="replace").strip()
        error_class = PortInUseError if "Address already in use" in text else UnreachableError
        state = f"ended with exit code {child.returncode}" if child.poll() is not None else str(error)
        raise error_class(
            f"the embedded broker did not start: {state}; its log {log} ends with\n{text[-1500:]}"
        ) from None


def _is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < MIN_FREE_BYTES
