"""No tuple is lost or counted twice when processes are killed at any time."""
# ruff: noqa: T201, S311 - figures are shown with `-s`; kills are seeded, not secret

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.kafka import (
    BASE,
    STAGES,
    WRITES,
    Feed,
    Pipeline,
    Sent,
    Source,
    differences,
    read,
    truth,
    zipf_records,
)
from helpers.waiting import until
from skewless.lab.local import child_process
from skewless.lab.local.child_process import ChildProcess
from skewless.lab.local.supervisor import Supervisor
from skewless.wire.rows import ROWS
from skewless.wire.tuples import TUPLES

RECORDS = int(os.environ.get("SKEWLESS_RECORDS", "60000"))
SEED = int(os.environ.get("SKEWLESS_SEED", "2"))
LATENESS_S = 20
STOP_S = 120.0
MOST = 400_000
"""Upper bound of the records of a feed. The feed ends when the test has seen the events that it waits for."""
SPAN_S = 6_000
RATE = 600
"""Records per second, in each of which 9 s of event time pass."""
POINTS = ("produced", "before-commit", "written", "after-commit")
"""Moments of a transaction at which a process is killed. After the commit, the process does not learn its result."""


def pipeline(  # noqa: PLR0913 - keyword-only
    broker: str,
    folder: Path,
    source: Source,
    *,
    commit_interval_s: float,
    replicas: int = 1,
    session_timeout_s: float = 3,
    **parts: Any,
) -> Pipeline:
    return Pipeline(
        broker,
        folder,
        source,
        **parts,
        event_time={"allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
        transport={
            "commit_interval_s": commit_interval_s,
            "max_poll_records": 2_000,
            "session_timeout_s": session_timeout_s,
        },
        replicas={stage: 1 if stage == "observer" else replicas for stage in STAGES},
    )


def endless(source: Source, seed: int) -> Feed[Sent]:
    """Feed a source until `finish`, so that every phase of a test has records, also on a busy machine."""
    return Feed(source, zipf_records(MOST, 4, seed, span_s=SPAN_S), rate=RATE)


def look_after(supervisor: Supervisor, end: float) -> None:
    """Restart processes that end, until this time or the end of the run."""
    until(lambda: time.monotonic() >= end or supervisor.done, each=lambda: supervisor.poll(time.monotonic()))


def failures(broker: str, tested: Pipeline) -> list[str]:
    """List the errors at the end: differences of the results, and transactions that stayed open."""
    expected = truth(read(broker, tested.source.topic), lateness_ms=LATENESS_S * 1000)
    still_open = [f"{topic}: a transaction is open" for topic in WRITES.values() if tested.is_open(topic)]
    return [*differences(tested, expected), *still_open]


def schemas(tested: Pipeline, topic: str) -> Counter[str]:
    """Count the committed records of an internal topic by their schema."""
    return Counter(record.headers.get("schema", b"").decode() for record in tested.read(topic))


@pytest.mark.timeout(900)
def test_pipeline_each_stage_killed_in_an_open_transaction_gives_exact_results(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 4)
    tested = pipeline(broker, tmp_path, source, commit_interval_s=1.0)
    rng = random.Random(SEED)
    victims = rng.sample(STAGES, len(STAGES))
    with endless(source, SEED) as feed, tested.running(armed=True) as supervisor:
        for victim in victims:
            tested.kill_in_transaction(supervisor, f"{victim}-0")
        feed.finish()
    tested.drain(limit_s=300)
    assert failures(broker, tested) == []
    aborted = {stage: tested.aborted(topic) for stage, topic in WRITES.items()}
    print(f"{feed.sent:,} records, killed {', '.join(victims)}; aborted records {aborted}")
    assert min(aborted.values()) > 0


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [{"mode": "buffer", "adaptive": False}, {"mode": "windows", "window_s": 5}], ids=str)
def test_pipeline_with_local_aggregation_killed_in_open_transactions_and_switched_off_gives_exact_results(
    broker: str, tmp_path: Path, mode: dict[str, Any]
) -> None:
    """The second run, without local aggregation, begins while rows of the first one are held or in flight."""
    source = Source(broker, 4)
    local = BASE["splitter"] | {"local": mode}
    tested = pipeline(broker, tmp_path, source, commit_interval_s=1.0, splitter=local)
    with endless(source, SEED + 4) as feed, tested.running(armed=True) as supervisor:
        for victim in ("worker", "splitter", "router"):
            tested.kill_in_transaction(supervisor, f"{victim}-0")
        until(
            lambda: schemas(tested, "worker-input")[ROWS] > 0,
            each=lambda: supervisor.poll(time.monotonic()),
        )
        feed.finish()
    assert schemas(tested, "worker-input")[TUPLES] == 0
    document = json.loads(tested.file.read_text())
    document["splitter"]["local"] = {"mode": "none"}
    tested.file.write_text(json.dumps(document))
    source.send(zipf_records(4_000, 4, SEED + 4, span_s=SPAN_S))
    tested.drain(limit_s=300)
    assert failures(broker, tested) == []
    reread = (tested.folder / "splitter-0.log").read_text().count("records again, which have")
    assert (reread > 0) == (mode["mode"] == "windows")
    assert min(tested.aborted(WRITES[stage]) for stage in ("splitter", "router", "worker")) > 0
    assert schemas(tested, "worker-input")[TUPLES] > 0


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_pipeline_replicas_killed_during_a_bounded_run_gives_exact_results(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 4)
    source.send(zipf_records(RECORDS, 4, SEED + 1))
    tested = pipeline(broker, tmp_path, source, commit_interval_s=0.1, replicas=2)
    rng = random.Random(SEED + 1)
    # A run without kills takes 1.5 s on an idle machine. Each kill makes it longer.
    times = sorted((rng.uniform(0.1, 4.0), name) for name in tested.processes() if rng.random() < 0.4)
    killed = []
    # A slow machine is still starting the processes then. So each is also killed in its first transaction.
    tokens = {name: tested.arm(name, rng.choice(POINTS), "kill") for name in tested.processes()}
    with tested.running(drain=True, armed=True) as supervisor:
        started = time.monotonic()
        for after_s, name in times:
            look_after(supervisor, started + after_s)
            if supervisor.processes[name].pid is not None:
                supervisor.kill(name)
                killed.append(f"{name} after {after_s:.1f} s")
        tested.finish(supervisor, limit_s=300)
    in_transactions = [name for name, token in tokens.items() if not token.exists()]
    print(f"{RECORDS:,} records, killed {', '.join(killed)}, and in transactions {', '.join(in_transactions)}")
    assert {name.partition("-")[0] for name in in_transactions} == set(STAGES)
    assert failures(broker, tested) == []


@contextlib.contextmanager
def second_processes(tested: Pipeline, stages: Sequence[str]) -> Iterator[list[ChildProcess]]:
    """Run one more process of some stages."""
    children: list[ChildProcess] = []
    try:
        children.extend(tested.start(stage, 1) for stage in stages)
        yield children
    finally:
        for child in children:
            child_process.stop(child, grace_s=STOP_S)


@pytest.mark.thorough
def test_pipeline_processes_join_and_leave_mid_run_gives_exact_results(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 4)
    tested = pipeline(broker, tmp_path, source, commit_interval_s=0.5, session_timeout_s=30)
    stages = [stage for stage in STAGES if stage != "observer"]
    with endless(source, SEED + 3) as feed, tested.running() as supervisor:

        def look() -> None:
            supervisor.poll(time.monotonic())

        until(lambda: tested.written("aggregates") > 0, each=look)
        with second_processes(tested, stages) as children:
            until(lambda: all(tested.shares(stage) == 2 for stage in stages), each=look)
            before = tested.written("aggregates")
            until(lambda: tested.written("aggregates") > before, each=look)
        assert [child.returncode for child in children] == [0] * len(stages)
        until(lambda: all(tested.shares(stage) == 1 for stage in stages), each=look)
        feed.finish()
    tested.drain(limit_s=300)
    assert failures(broker, tested) == []


@pytest.mark.thorough
def test_pipeline_clean_stop_mid_run_aborts_nothing_and_a_second_run_finishes(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 4)
    tested = pipeline(broker, tmp_path, source, commit_interval_s=1.0, session_timeout_s=30)
    with endless(source, SEED + 2) as feed, tested.running() as supervisor:
        until(lambda: tested.written("aggregates") > 0, each=lambda: supervisor.poll(time.monotonic()))
        children = [replica.child for replica in supervisor.processes.values() if replica.child]
        started = time.monotonic()
        supervisor.stop(grace_s=STOP_S)
        seconds = time.monotonic() - started
        feed.finish()
    print(f"stopped within {seconds:.1f} s")
    assert [child.returncode for child in children] == [0] * len(STAGES)
    assert [topic for topic in WRITES.values() if tested.aborted(topic)] == []
    tested.drain(limit_s=300)
    assert failures(broker, tested) == []
