"""Named points in a stage's calls of Kafka at which a test can inject a fault.

A token file `<prefix>.<point>` arms a point once: the first call that reaches the point removes the token and executes
it. The prefix is $SKEWLESS_TEST_FAULTS at the time of the call, because a host sets it after it has forked a process.

A token is JSON: `do` is kill, kill-java (of the Java whose task the process runs), stop or raise; `delay_s` waits
before; `topic` waits for a transaction that has written to this topic; `error` are the arguments of the `KafkaError`
that is raised; `then` is a token that is armed first, with its `file`.

Points, in the order of a transaction: init, produced (first record queued), before-offsets, before-commit (between
offsets and commit), written (as before-commit, with all records on the broker), in-commit (during the call, at the
latest when it returns), after-commit (before the caller gets the result), before-abort; in rebalances: before-revoke,
after-revoke, before-assign, after-assign.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any


class Points:
    """The points of this process."""

    def __init__(self, kafka: ModuleType) -> None:
        self._kafka = kafka

    def take(self, point: str, topics: Collection[str] = ()) -> dict[str, Any] | None:
        """Remove and return the point's token, if it exists and applies to a transaction with these topics."""
        file = Path(f"{os.environ['SKEWLESS_TEST_FAULTS']}.{point}")
        try:
            token: dict[str, Any] = json.loads(file.read_bytes())
            if token.get("topic") not in (None, *topics):
                return None
            file.unlink()
        except FileNotFoundError:
            return None
        return token

    def hit(self, token: dict[str, Any] | None) -> None:
        """Execute a token."""
        if token is None:
            return
        time.sleep(token.get("delay_s", 0.0))
        if then := token.get("then"):
            Path(then["file"]).write_text(json.dumps(then))
        match token["do"]:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill-java":
                os.kill(_java_above(os.getpid()), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                raise self._kafka.KafkaException(self._kafka.KafkaError(**token["error"]))

    def pass_by(self, point: str, topics: Collection[str] = ()) -> None:
        """Reach a point."""
        self.hit(self.take(point, topics))


def _java_above(pid: int) -> int:
    """Return the nearest process of Java from which a process descends."""
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def install(kafka: ModuleType) -> None:
    """Replace the producer and the consumer of the module `confluent_kafka` by ones with fault points."""
    points = Points(kafka)
    kafka.Producer = _producer(kafka.Producer, points)  # type: ignore[attr-defined]
    kafka.Consumer = _consumer(kafka.Consumer, points)  # type: ignore[attr-defined]


def _producer(base: Any, points: Points) -> type:
    class Producer(base):  # type: ignore[misc]
        """A producer with the fault points of a transaction."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._topics: set[str] = set()

        def init_transactions(self, *args: Any) -> None:
            points.pass_by("init")
            super().init_transactions(*args)

        def begin_transaction(self, *args: Any) -> None:
            self._topics.clear()
            super().begin_transaction(*args)

        def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
            super().produce(topic, *args, **kwargs)
            if topic not in self._topics:
                self._topics.add(topic)
                points.pass_by("produced", self._topics)

        def send_offsets_to_transaction(self, *args: Any) -> None:
            points.pass_by("before-offsets", self._topics)
            super().send_offsets_to_transaction(*args)

        def commit_transaction(self, *args: Any) -> None:
            points.pass_by("before-commit", self._topics)
            if token := points.take("written", self._topics):
                self.flush()
                points.hit(token)
            hitter = _hit_meanwhile(points, points.take("in-commit", self._topics))
            super().commit_transaction(*args)
            hitter()
            points.pass_by("after-commit", self._topics)

        def abort_transaction(self, *args: Any) -> None:
            points.pass_by("before-abort", self._topics)
            super().abort_transaction(*args)

    return Producer


def _hit_meanwhile(points: Points, token: dict[str, Any] | None) -> Callable[[], None]:
    """Execute the token in another thread; returns a function that waits for it."""
    if token is None:
        return lambda: None
    thread = threading.Thread(target=points.hit, args=(token,))
    thread.start()
    return thread.join


def _consumer(base: Any, points: Points) -> type:
    class Consumer(base):  # type: ignore[misc]
        """A consumer with the fault points of a rebalance."""

        def subscribe(self, topics: Any, **callbacks: Callable[..., None]) -> None:
            for name in ("on_assign", "on_revoke"):
                if name in callbacks:
                    callbacks[name] = _between(points, name.removeprefix("on_"), callbacks[name])
            super().subscribe(topics, **callbacks)

    return Consumer


def _between(points: Points, what: str, call: Callable[..., None]) -> Callable[..., None]:
    def passed(*args: Any) -> None:
        points.pass_by(f"before-{what}")
        call(*args)
        points.pass_by(f"after-{what}")

    return passed
