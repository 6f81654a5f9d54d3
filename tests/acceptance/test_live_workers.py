"""The number of workers and of worker processes changes while a pipeline runs; the results stay exact."""
# ruff: noqa: T201 - figures are shown with `-s`

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from helpers.kafka import Feed, Pipeline, Source, differences, read, truth, zipf_records
from helpers.waiting import until
from skewless.lab.local import child_process
from skewless.lab.local.supervisor import Supervisor
from skewless.stages.router.state import RouterState

pytestmark = pytest.mark.thorough

MOST = 600_000
"""Upper bound of the records. The feed ends when the test has seen the events that it waits for."""
SPAN_S = 20_000
RATE = 300
"""Records per second, in each of which 10 s of event time pass."""
TICK_S = 15
SEED = 11
LATENESS_S = 20
LIMIT_S = 240.0
"""Deadline of each wait, in s, for a machine that runs other tests at the same time."""
STOP_S = 120.0
RESTORED = re.compile(r"partition (\d+): restored the loads of 12 workers from topic router-state")
ROUTERS = ("router-0", "router-1")


def set_workers(tested: Pipeline, workers: int) -> int:
    """Write another number of workers (W) into the pipeline's file; returns the time in ms."""
    document = json.loads(tested.file.read_text())
    document["router"]["workers"] = workers
    tested.file.write_text(json.dumps(document))
    return now_ms()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def routed(tested: Pipeline) -> dict[int, list[int]]:
    """Timestamps in ms of the tuples in each worker partition."""
    times: dict[int, list[int]] = {}
    for record in tested.read("worker-input"):
        if record.value is not None:
            times.setdefault(record.partition, []).append(record.timestamp)
    return times


def used_since(tested: Pipeline, since: int) -> set[int]:
    """Return the workers that received tuples after this time."""
    return {worker for worker, times in routed(tested).items() if times[-1] >= since}


def saved_loads(tested: Pipeline) -> dict[int, list[tuple[int, dict[str, Any]]]]:
    """Timestamps and contents of the loads that were saved to each partition."""
    found: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for record in tested.read("router-state"):
        if record.value is not None:
            state = msgspec.msgpack.decode(record.value, type=RouterState).state
            found.setdefault(record.partition, []).append((record.timestamp, state))
    return found


def sent(state: dict[str, Any]) -> int:
    """Return the number of tuples that the saved loads contain."""
    return int(np.frombuffer(state["sent"], dtype=np.int64).sum())


def ticks(tested: Pipeline) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in tested.read("distribution")]


def has_tick(tested: Pipeline, workers: int) -> bool:
    return any(tick["workers"] == workers for tick in ticks(tested))


def metric(port: int, name: str) -> float | None:
    """Value of a metric of a process; None while the process does not serve it."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return None
    return next((float(line.split()[-1]) for line in text.splitlines() if line.split("{")[0] == name), None)


@contextlib.contextmanager
def more_workers(tested: Pipeline, instances: Sequence[int]) -> Iterator[None]:
    """Run more worker processes, and stop them cleanly at the end of the block."""
    with contextlib.ExitStack() as stack:
        children = []
        for number in instances:
            child = tested.start("worker", number)
            stack.callback(child_process.stop, child, grace_s=STOP_S)
            children.append(child)
        yield
        stack.close()
        assert [child.returncode for child in children] == [0] * len(children)


@dataclass
class Run:
    """The pipeline under test and its processes."""

    tested: Pipeline
    supervisor: Supervisor

    def wait(self, holds: Callable[[], bool]) -> None:
        until(holds, each=self._look, limit_s=LIMIT_S)

    def _look(self) -> None:
        self.supervisor.poll(time.monotonic())
        time.sleep(0.3)  # The conditions read topics, so they are not evaluated continuously.

    def shown(self, router: str, name: str) -> float | None:
        return metric(self.supervisor.processes[router].metrics_port, name)

    def follow(self, workers: int) -> int:
        """Set W and wait until both routers use it; returns a time in ms after which they choose among W workers."""
        requested = set_workers(self.tested, workers)
        self.wait(lambda: all(self.shown(router, "skewless_router_workers") == workers for router in ROUTERS))
        at = now_ms()
        print(f"W is {workers} in both routers after {at - requested} ms")
        return at


def grow(run: Run) -> None:
    """Increase W from 4 to 12. Each phase lasts until the observer has written one of its ticks."""
    tested = run.tested
    run.wait(lambda: tested.written("aggregates") > 0 and set(routed(tested)) == set(range(4)))
    run.wait(lambda: has_tick(tested, 4))
    grown = run.follow(12)
    run.wait(lambda: used_since(tested, grown) == set(range(12)))
    run.wait(lambda: has_tick(tested, 12))


def kill_a_router(run: Run) -> None:
    """Kill a router whose saved loads are of 12 workers. The next process of its name continues with these loads."""

    def all_saved() -> bool:
        latest = [states[-1][1] for states in saved_loads(run.tested).values()]
        return len(latest) >= len(ROUTERS) and all(state["workers"] == 12 for state in latest)

    run.wait(all_saved)
    killed = now_ms()
    run.supervisor.kill("router-0")
    log = run.tested.folder / "router-0.log"
    run.wait(lambda: RESTORED.search(log.read_text()) is not None)
    found = RESTORED.search(log.read_text())
    assert found
    instance = int(found[1])
    run.wait(lambda: (run.shown("router-0", "skewless_tuples_total") or 0) > 0)
    own = run.shown("router-0", "skewless_tuples_total")
    assert own is not None
    seen = now_ms()
    run.wait(lambda: saved_loads(run.tested)[instance][-1][0] > seen)
    loads = saved_loads(run.tested)[instance]
    before = [sent(state) for at, state in loads if at < killed][-1]
    after = sent(loads[-1][1])
    print(f"router-0 killed at {before} tuples, later at {after}, of its own {own:g}")
    assert before > 0
    assert after >= before + own


def shrink(run: Run) -> None:
    """Reduce W from 12 to 2."""
    tested = run.tested
    run.follow(2)
    # The router writes what it holds for the others with the commit that saves its first load with two workers.
    run.wait(lambda: all(states[-1][1]["workers"] == 2 for states in saved_loads(tested).values()))
    shrunk = now_ms()
    run.wait(lambda: {0, 1} <= used_since(tested, shrunk))
    run.wait(lambda: has_tick(tested, 2))
    assert used_since(tested, shrunk) == {0, 1}


@pytest.mark.timeout(900)
def test_pipeline_workers_and_processes_change_mid_run_gives_exact_results(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 4)
    tested = Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"allowed_lateness_s": LATENESS_S},
        worker_input={"max_workers": 16},
        router={"grouping": "partial_key", "workers": 4, "snapshot_interval_s": 1},
        observer={"tick_s": TICK_S},
        # A router that was killed rejoins within its session and gets the same partitions.
        transport={"session_timeout_s": 60},
        replicas={"router": 2},
    )
    with Feed(source, zipf_records(MOST, 4, SEED, span_s=SPAN_S), rate=RATE) as feed, tested.running() as supervisor:
        run = Run(tested, supervisor)
        run.wait(lambda: tested.shares("router") == len(ROUTERS))
        grow(run)
        with more_workers(tested, (1, 2)):
            run.wait(lambda: tested.shares("worker") == 3)
            kill_a_router(run)
        run.wait(lambda: tested.shares("worker") == 1)
        shrink(run)
        feed.finish()
    tested.drain(limit_s=LIMIT_S)
    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    # A tick is shorter than a window. Tuples whose tick has closed before their window are in the values of the run.
    assert differences(tested, expected, ticks=False) == []
    assert max(tick["run"]["tuples"] for tick in ticks(tested)) == expected.tuples
    written_ticks = ticks(tested)
    assert all(tick["workers"] == len(tick["tuples_by_worker"]) for tick in written_ticks)
    assert [workers for workers in (4, 12, 2) if workers in {tick["workers"] for tick in written_ticks}] == [4, 12, 2]
    assert written_ticks[-1]["workers"] == 2
