"""Brokers for faults: each has one listener for the test, and one that processes reach through a proxy."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient, ClusterMetadata

from helpers.waiting import WAIT_S, until
from skewless.lab.local import formatted_storage_cache
from skewless.lab.local.broker import Broker
from skewless.lab.local.ports import find_free_ports

FULL_BYTES = 4096
"""Maximum size of a file in bytes while the disk is `full`."""
REPLICATED = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
IN_SYNC = ("min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")
"""Properties with the number of replicas, and with the number of those that must be in sync."""
CLUSTER_ID = "c2tld2xlc3MtY2hhb3Mtcg"


class Node:
    """A broker, which is also a controller. `proxy` is the port of its proxy, and `behind` the one that is proxied."""

    def __init__(self, folder: Path, number: int, proxy: int) -> None:
        self.number = number
        self._folder = folder
        self._proxy = proxy
        self.direct, self.behind, self.controller = find_free_ports(3)
        self.broker = Broker(folder)

    @property
    def bootstrap(self) -> str:
        """Address that bypasses the proxy."""
        return f"127.0.0.1:{self.direct}"

    def start(self, nodes: Sequence[Node]) -> None:
        """Start the broker of a cluster of these nodes, at first or after a stop."""
        (internal,) = find_free_ports(1)
        properties = self._listeners(internal) | _quorum(nodes)
        if len(nodes) > 1:
            self._format()
            properties |= {"node.id": str(self.number), **dict.fromkeys(REPLICATED, str(len(nodes)))}
            properties |= dict.fromkeys(IN_SYNC, str(len(nodes) - 1))
        self.broker = Broker(self._folder, port=self.direct, properties=properties)
        self.broker.start()

    def _format(self) -> None:
        """Format the folder as one of a cluster, unless it is."""
        data = self._folder / "data"
        if not data.exists():
            data.mkdir(parents=True)
            shutil.copy(formatted_storage_cache.template() / formatted_storage_cache.CHECKPOINT, data)
            (data / "meta.properties").write_text(f"version=1\nnode.id={self.number}\ncluster.id={CLUSTER_ID}\n")

    def _listeners(self, internal_port: int) -> dict[str, str]:
        direct, internal = f"CLIENT://{self.bootstrap}", f"INTERNAL://127.0.0.1:{internal_port}"
        return {
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("CLIENT", "PROXIED", "INTERNAL", "CONTROLLER")
            ),
            "listeners": f"{direct},PROXIED://127.0.0.1:{self.behind},{internal},"
            f"CONTROLLER://127.0.0.1:{self.controller}",
            "advertised.listeners": f"{direct},PROXIED://127.0.0.1:{self._proxy},{internal}",
        }


def _quorum(nodes: Sequence[Node]) -> dict[str, str]:
    return {"controller.quorum.voters": ",".join(f"{node.number}@127.0.0.1:{node.controller}" for node in nodes)}


class Server:
    """A broker for each proxy, with the addresses `bootstrap`. Several brokers replicate all topics.

    Processes that use a proxy receive only the addresses of proxies. Faults hit the node that is chosen.
    """

    def __init__(self, folder: Path, *proxies: int) -> None:
        folders = [folder] if len(proxies) == 1 else [folder / str(number) for number in range(len(proxies))]
        places = zip(folders, proxies, strict=True)
        self.nodes = [Node(place, number, proxy) for number, (place, proxy) in enumerate(places, 1)]
        self.node = self.nodes[0]
        # Its threads live as long as the brokers, which end with the thread that started them.
        self._starts = ThreadPoolExecutor(len(self.nodes))

    @property
    def bootstrap(self) -> str:
        """Addresses that bypass the proxies."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def broker(self) -> Broker:
        """The broker of the chosen node."""
        return self.node.broker

    def choose(self, rng: Random) -> None:
        """Choose the node that the next faults hit."""
        if len(self.nodes) > 1:
            self.node = rng.choice(self.nodes)

    def start_all(self) -> None:
        """Start all brokers at once: none answers before most of them run."""
        for started in [self._starts.submit(node.start, self.nodes) for node in self.nodes]:
            started.result()
        # librdkafka asks again for the controller after minutes only, if the first answer came before its election.
        until(lambda: len(self._metadata().brokers) == len(self.nodes) and self._metadata().controller_id >= 0)

    def start(self) -> None:
        """Start the broker of the chosen node after a stop."""
        self.node.start(self.nodes)

    def stop(self) -> None:
        """End all brokers. Only one alone is stopped cleanly: the last ones of several would wait for a majority."""
        for node in self.nodes:
            node.broker.kill() if len(self.nodes) > 1 else node.broker.stop()
        self._starts.shutdown()

    def is_in_sync(self) -> bool:
        """Return whether all replicas of all topics are in sync."""
        topics = self._metadata().topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(len(partition.isrs) == len(partition.replicas) for partition in partitions)

    def _metadata(self) -> ClusterMetadata:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2}).list_topics(timeout=WAIT_S)

    def signal(self, number: signal.Signals) -> None:
        """Send the broker a signal."""
        if self.broker.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.broker.pid, number)

    def fill_disk(self) -> None:
        """Make every write that enlarges a file fail, as on a full disk. A start of the broker ends this."""
        if self.broker.pid is not None:
            _, hard = resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE, (FULL_BYTES, hard))
