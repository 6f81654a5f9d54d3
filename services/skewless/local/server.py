"""How one Kafka server is called: its properties, its ports, its command line."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from skewless.local import jars, java

PROPERTIES_FILE = "server.properties"
JVM = (
    *("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable"),
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
)

# One node: nothing is replicated. Small and quick where a cluster would be safe and large. Nothing is deleted by age,
# because a record's timestamp is its event time and may be years old. A short session, because a killed broker is
# let in again only when its session has ended. Positions of a pipeline that is stopped are kept: without them it
# could not go on.
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
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


class Ports(NamedTuple):
    """The loopback ports of one server: clients', the server's own, and the controller's."""

    client: int
    internal: int
    controller: int


def free_ports(client: int | None = None) -> Ports:
    """Choose loopback ports that are free now, all at once so that they differ; `client` fixes the clients'."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in Ports._fields]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        free = [each.getsockname()[1] for each in sockets]
    return Ports(client or free[0], free[1], free[2])


@contextlib.contextmanager
def former_self_silent(folder: Path) -> Iterator[None]:
    """Let nobody be refused at the port of the server's own listener when it last ran in `folder`, but answer nobody.

    Kafka 4.1 to 4.3 (KAFKA-20734): a server that comes back after a crash is first told that it leads, then that nobody
    does, then that it leads again. A transaction that was being committed is in between taken for one on deleted
    topics: it ends without its markers, and its group hangs for ever. That needs a connection to its former self that
    fails. Here none does, until the server answers under its new port.
    """
    file = folder / PROPERTIES_FILE
    written = file.read_text() if file.exists() else ""
    found = re.search(r"^listeners=.*INTERNAL://127\.0\.0\.1:(\d+)", written, re.MULTILINE)
    with contextlib.ExitStack() as stack:
        if found:
            with contextlib.suppress(OSError):  # somebody else has the port by now, and does not refuse either
                stack.enter_context(socket.create_server(("127.0.0.1", int(found[1]))))
        yield


def write_properties(folder: Path, ports: Ports, extra: Mapping[str, str]) -> Path:
    """Write server.properties into `folder`; `extra` wins over the defaults. Returns its path."""
    listeners = {name: f"{name.upper()}://127.0.0.1:{port}" for name, port in ports._asdict().items()}
    properties = PROPERTIES | {
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": f"{listeners['client']},{listeners['internal']}",
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "log.dirs": str(folder / "data"),
    }
    lines = [f"{name}={value}".replace("\\", "\\\\") for name, value in (properties | dict(extra)).items()]
    path = folder / PROPERTIES_FILE
    path.write_text("\n".join(lines) + "\n")
    return path


def command(*arguments: str, jvm: str) -> list[str]:
    """Return the command line that runs a main class of Kafka's with one more option for the JVM."""
    classes = ":".join(map(str, jars.ensure("kafka")))
    return [str(java.find().path), *JVM, jvm, "-cp", classes, *arguments]
