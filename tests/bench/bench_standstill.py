"""Time for which results stand still when a process is killed or stopped. One line of JSON per event.

Two processes per stage, as `skewless up` runs them, and commits every 0.1 s. Each partition of the source has keys of
its own, and each key has several records per second. So every way from a source partition over a worker to an
aggregator is one of some key, and the longest time between two updates of a key is the longest time without results.

    PYTHONPATH=tests python tests/bench/bench_standstill.py [--events back,gone] [--stages router] [--default-broker]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from helpers.kafka import Feed, Pipeline, Sent, Source
from helpers.waiting import until
from skewless.lab.local import child_process
from skewless.lab.local.broker import Broker
from skewless.lab.local.supervisor import Replica, Supervisor

PARTITIONS = 4
KEYS = 24
"""Number of keys of each source partition."""
RATE = 2000
SETTLE_S = 2.0
"""Time in s for which all keys must have results before the next event, and after it."""
TICK_S = 0.1
"""Interval in s at which `skewless up` looks after its processes."""
STAGES = ("splitter", "router", "worker", "aggregator")
DEFAULT_BROKER = {
    "group.min.session.timeout.ms": "6000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
}
"""Defaults of Kafka, instead of the shorter ones of the embedded broker."""


def records() -> Iterator[Sent]:
    """Make records without end, one after another for each key."""
    for key in itertools.cycle(range(KEYS)):
        now = round(time.time() * 1000)
        yield from ((p, b'{"key":"p%d-%02d","value":1,"time":%d}' % (p, key, now)) for p in range(PARTITIONS))


class Updates(threading.Thread):
    """Reads the committed results, and notes when each key has one."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="updates", daemon=True)
        options = {"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0, "fetch.wait.max.ms": 10}
        self._consumer = Consumer({**options, "isolation.level": "read_committed", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        self._times: defaultdict[bytes, list[float]] = defaultdict(list)

    def run(self) -> None:
        """Read until the process ends."""
        while True:
            messages = self._consumer.consume(10_000, 0.005)
            now = time.monotonic()
            for message in messages:
                if message.error() is None:
                    self._times[message.key() or b""].append(now)

    def all_since(self, since: float) -> bool:
        """Return whether all keys have results after this time."""
        return len(self._times) == PARTITIONS * KEYS and all(times[-1] > since for times in self._times.values())

    def longest_since(self, begin: float) -> list[float]:
        """Return the longest time without a result of each key, sorted."""
        return sorted(
            max(after - before for before, after in itertools.pairwise(times) if after > begin)
            for times in self._times.values()
        )


class Bench:
    """A running pipeline and its results."""

    def __init__(self, supervisor: Supervisor, updates: Updates) -> None:
        self.supervisor = supervisor
        self.updates = updates

    def settle(self) -> None:
        """Wait until all keys have had results for some time."""
        since = time.monotonic() + SETTLE_S
        poll = self.supervisor.poll
        until(lambda: self.updates.all_since(since), each=lambda: poll(time.monotonic()), every_s=TICK_S)

    def measure(self, event: str, replica: Replica, act: Callable[[], object]) -> None:
        """Print how long the results stand still after an action."""
        self.settle()
        begin, load = time.monotonic(), round(os.getloadavg()[0], 1)
        act()
        self.settle()
        seconds = self.updates.longest_since(begin)
        line = {"event": event, "process": replica.name, "max_s": seconds[-1], "median_s": seconds[len(seconds) // 2]}
        rounded = {name: round(value, 2) if isinstance(value, float) else value for name, value in line.items()}
        print(json.dumps({"bench": "standstill"} | rounded | {"load": load}), flush=True)

    def back(self, replica: Replica) -> None:
        """Kill a process; the supervisor starts it again."""
        self.measure("killed and back", replica, lambda: self.supervisor.kill(replica.name))

    def gone(self, replica: Replica) -> None:
        """Kill a process for good, and start it again after the measurement."""

        def kill() -> None:
            assert replica.child is not None
            child_process.kill(replica.child)
            replica.child = replica.start_at = None

        self.measure("killed for good", replica, kill)
        self.measure("joins", replica, lambda: setattr(replica, "start_at", 0.0))

    def stopped(self, replica: Replica) -> None:
        """Stop a process cleanly, and start it again after the measurement."""

        def stop() -> None:
            assert replica.child is not None
            replica.child.send_signal(signal.SIGTERM)
            replica.child.wait(30)
            replica.child = replica.start_at = None

        self.measure("SIGTERM", replica, stop)
        self.measure("joins", replica, lambda: setattr(replica, "start_at", 0.0))


EVENTS: dict[str, Callable[[Bench, Replica], None]] = {"back": Bench.back, "gone": Bench.gone, "stopped": Bench.stopped}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--events", default=",".join(EVENTS))
    options.add_argument("--stages", default=",".join(STAGES))
    options.add_argument("--times", type=int, default=1)
    options.add_argument("--transport", type=json.loads, default={}, help="settings of the transport, as JSON")
    options.add_argument("--default-broker", action="store_true", help="with the timeouts of a broker's defaults")
    chosen = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="skewless-standstill-"))
    with contextlib.ExitStack() as stack:
        properties = DEFAULT_BROKER if chosen.default_broker else {}
        broker = stack.enter_context(Broker(folder / "broker", properties=properties))
        source = Source(broker.bootstrap, PARTITIONS)
        parts: dict[str, dict[str, Any]] = {
            "topics": {"aggregator_partitions": PARTITIONS},
            "worker_input": {"max_workers": PARTITIONS},
            "router": {"workers": PARTITIONS, "grouping": "key"},
            "aggregator": {"window_s": 86_400},
            "replicas": dict.fromkeys(STAGES, 2),
            "transport": {"commit_interval_s": 0.1, **chosen.transport},
        }
        pipeline = Pipeline(broker.bootstrap, folder, source, **parts)
        feed = Feed(source, records(), RATE)
        feed.daemon = True
        feed.start()
        updates = Updates(broker.bootstrap, pipeline.settings.topic("aggregates"))
        updates.start()
        supervisor = stack.enter_context(pipeline.running())
        bench = Bench(supervisor, updates)
        for _, stage, event in itertools.product(
            range(chosen.times), chosen.stages.split(","), chosen.events.split(",")
        ):
            EVENTS[event](bench, supervisor.processes[f"{stage}-0"])


if __name__ == "__main__":
    main()
