"""A stage's process with an unreachable broker, and a suspended process: both longer than the group session."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from helpers.kafka import START_MS, Pipeline, Source
from helpers.tiers import thorough_except
from helpers.waiting import until
from skewless.lab.local import child_process
from skewless.lab.local.broker import Broker

SESSION_S = 6.0
TRANSPORT = {"commit_interval_s": 0.2, "session_timeout_s": SESSION_S, "transaction_timeout_s": 8.0}
ABORTABLE = {"error": KafkaError.ILLEGAL_GENERATION, "reason": "by the test", "txn_requires_abort": True}
BEYOND_S = 3.0
"""Time in s by which an absence exceeds the session."""


class Splitter:
    """One process of the splitter, with fault points."""

    def __init__(self, pipeline: Pipeline, label: str, instance: int) -> None:
        self.log = pipeline.folder / f"{label}.log"
        self.child = pipeline.start("splitter", instance, log=self.log, armed=True)

    @property
    def lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def is_assigned(self) -> bool:
        return any("assigned" in line for line in self.lines)

    def wait_until_suspended(self) -> None:
        until(lambda: Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


@contextmanager
def running(pipeline: Pipeline, label: str, instance: int = 0) -> Iterator[Splitter]:
    splitter = Splitter(pipeline, label, instance)
    try:
        until(splitter.is_assigned)
        yield splitter
    finally:
        child_process.kill(splitter.child)


def feed(source: Source, first: int, count: int) -> None:
    entries = ({"key": f"k{at}", "value": 1, "time": START_MS + at} for at in range(first, first + count))
    source.send((at % source.partitions, json.dumps(entry).encode()) for at, entry in enumerate(entries))


def ended(child: child_process.ChildProcess) -> int:
    until(lambda: child.poll() is not None)
    code = child.returncode
    assert code is not None
    return code


@pytest.mark.parametrize(
    "point", thorough_except([None], [None, "produced", "before-commit", "before-abort", "before-revoke"])
)
def test_executor_suspended_and_replaced_process_ends_and_its_successor_continues(
    broker: str, tmp_path: Path, point: str | None
) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 2), transport=TRANSPORT)
    with ExitStack() as others, running(pipeline, "suspended") as suspended:
        feed(pipeline.source, 0, 100)
        until(lambda: pipeline.tuples("tuples") == 100)
        if point is None:
            suspended.child.send_signal(signal.SIGSTOP)
        else:
            if point == "before-abort":
                pipeline.arm("splitter-0", "before-commit", "raise", error=ABORTABLE)
            pipeline.arm("splitter-0", point, "stop")
            feed(pipeline.source, 100, 100)
            if point == "before-revoke":
                others.enter_context(running(pipeline, "other", 1))
        suspended.wait_until_suspended()
        since = time.monotonic()
        with running(pipeline, "successor") as successor:
            feed(pipeline.source, 200, 100)
            expected = 200 if point is None else 300
            until(lambda: pipeline.tuples("tuples") == expected)
            # The session of the suspended process is over in the broker's view and, once it continues, in its own.
            until(lambda: time.monotonic() > since + SESSION_S + BEYOND_S)
            suspended.child.send_signal(signal.SIGCONT)
            fed = 300

            def has_ended_meanwhile() -> bool:
                # The successor has an open transaction almost all the time, which the other process must not abort.
                nonlocal fed
                feed(pipeline.source, fed, 10)
                fed += 10
                return suspended.child.poll() is not None

            until(has_ended_meanwhile)
            assert suspended.child.returncode == 3, suspended.lines[-5:]
            until(lambda: pipeline.tuples("tuples") == expected + fed - 300)
            assert successor.child.poll() is None, successor.lines[-5:]
            assert not [line for line in successor.lines if "reset to the committed" in line]
    assert "another process" in suspended.lines[-1]


@dataclass(frozen=True)
class Outages:
    """What two processes did in two outages of the broker, which was killed, and then stopped."""

    suspended_code: int
    """Exit code of the process that was replaced, and resumed when the broker had been killed."""
    suspended: list[str]
    """Its log."""
    successor_codes: list[int | None]
    """Exit codes of its successor: None in each outage, and after the last one that of a clean end."""
    successor: list[str]
    counts: list[int]
    """Tuples before the outages, and after each."""


@pytest.fixture(scope="module")
def outages(tmp_path_factory: pytest.TempPathFactory) -> Outages:
    """Run both processes. A start of the broker costs more CPU time than they do."""
    folder = tmp_path_factory.mktemp("outages")
    server = Broker(folder / "broker").start()
    codes: list[int | None] = []
    counts: list[int] = []
    try:
        pipeline = Pipeline(server.bootstrap, folder, Source(server.bootstrap, 2), transport=TRANSPORT)

        def send() -> None:
            expected = 100 * (len(counts) + 1)
            feed(pipeline.source, expected - 100, 100)
            until(lambda: pipeline.tuples("tuples") >= expected)
            counts.append(pipeline.tuples("tuples"))

        with running(pipeline, "suspended") as suspended:
            send()
            suspended.child.send_signal(signal.SIGSTOP)
            suspended.wait_until_suspended()
            with running(pipeline, "successor") as successor:
                send()
                for end in ("kill", "stop"):
                    getattr(server, end)()
                    suspended.child.send_signal(signal.SIGCONT)
                    since = time.monotonic()
                    until(lambda: time.monotonic() > since + SESSION_S + BEYOND_S)  # noqa: B023 - ends before the next
                    codes.append(successor.child.poll())
                    server = Broker(folder / "broker", port=server.port).start()
                    suspended_code = ended(suspended.child)
                    send()
                    codes.append(successor.child.poll())
                successor.child.send_signal(signal.SIGTERM)
                codes.append(ended(successor.child))
        return Outages(suspended_code, suspended.lines, codes, successor.lines, counts)
    finally:
        server.stop()


@pytest.mark.thorough
def test_executor_replaced_process_that_resumes_in_a_broker_outage_ends_and_spares_its_successor(
    outages: Outages,
) -> None:
    assert outages.suspended_code == 3, outages.suspended[-5:]
    assert "another process" in outages.suspended[-1]
    assert outages.successor_codes[:2] == [None, None], outages.successor[-5:]
    assert outages.counts[:3] == [100, 200, 300]


@pytest.mark.thorough
def test_executor_broker_outage_longer_than_the_session_waits_and_continues(outages: Outages) -> None:
    assert outages.successor_codes == [None] * 4 + [0], outages.successor[-5:]
    assert outages.counts == [100, 200, 300, 400]
    assert sum("brokers answer again" in line for line in outages.successor) >= 2
    assert sum("warning" in line.lower() for line in outages.successor) <= 2 * 12
