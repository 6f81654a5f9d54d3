"""W changes and worker processes come and go while everything runs; the answer does not know of it."""
# ruff: noqa: T201 - figures are shown with `-s`

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from skewless.local import process
from skewless.router.loads import Loads
from support_kafka import Feed, Pipeline, Source, differences, read, truth, until, zipf_records

RECORDS = 120_000
SEED = 11
LATENESS_S = 20
REACTION_MS = 5_000
RESTORED = re.compile(r"partition (\d+): goes on with the loads in topic control, of 12 workers")


def set_workers(tested: Pipeline, workers: int) -> int:
    """Write another W into the pipeline's file, and tell when, in ms."""
    document = json.loads(tested.file.read_text())
    document["router"]["workers"] = workers
    tested.file.write_text(json.dumps(document))
    return time.time_ns() // 1_000_000


def routed(tested: Pipeline) -> dict[int, list[int]]:
    """When each worker partition was sent tuples, in ms."""
    times: dict[int, list[int]] = {}
    for record in tested.read("worker-input"):
        if record.value is not None:
            times.setdefault(record.partition, []).append(record.timestamp)
    return times


def used_since(tested: Pipeline, since: int) -> set[int]:
    """Workers that were sent tuples after this time."""
    return {worker for worker, times in routed(tested).items() if times[-1] >= since}


def loads(tested: Pipeline, partition: int) -> list[tuple[int, int]]:
    """When loads were saved to a partition, and how many tuples they are the sum of."""
    found = []
    for record in tested.read("control"):
        if record.partition == partition and record.value is not None:
            state = msgspec.msgpack.decode(record.value, type=Loads).state
            found.append((record.timestamp, int(np.frombuffer(state["sent"], dtype=np.int64).sum())))
    return found


def metric(port: int, name: str) -> float:
    """Value of a metric of a process."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.split("{")[0] == name)


@contextlib.contextmanager
def more_workers(tested: Pipeline, instances: Sequence[int]) -> Iterator[None]:
    """Run more worker processes; they end in good order."""
    command = [sys.executable, "-m", "skewless", "run", "worker", "--file", str(tested.file), "--instance"]
    with contextlib.ExitStack() as stack:
        children = []
        for number in instances:
            child = process.start([*command, str(number)], log=tested.folder / f"worker-{number}.log")
            stack.callback(process.stop, child)
            children.append(child)
        yield
        stack.close()
        assert [child.returncode for child in children] == [0] * len(children)


def test_w_and_the_worker_processes_change_in_mid_run_and_results_do_not(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 4)
    tested = Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"allowed_lateness_s": LATENESS_S},
        worker_input={"max_workers": 16},
        router={"grouping": "partial_key", "workers": 4, "snapshot_interval_s": 1},
        transport={"session_timeout_s": 3},
        replicas={"router": 2},
    )
    with Feed(source, zipf_records(RECORDS, 4, SEED), rate=2_000) as feed, tested.running() as supervisor:

        def look() -> None:
            supervisor.poll(time.monotonic())
            time.sleep(0.3)  # what is waited for is read from topics: not all the time

        def wait(holds: Callable[[], bool]) -> None:
            until(holds, each=look)

        wait(lambda: tested.written("aggregates") > 0 and set(routed(tested)) == set(range(4)))
        grown = set_workers(tested, 12)
        wait(lambda: set(routed(tested)) == set(range(12)))
        router = supervisor.processes["router-0"]
        assert metric(router.metrics_port, "skewless_router_workers") == 12
        took = max(times[0] for worker, times in routed(tested).items() if worker >= 4) - grown
        print(f"W 4 -> 12: all new workers have tuples after {took} ms")
        assert took <= REACTION_MS

        with more_workers(tested, (1, 2)):
            wait(lambda: tested.shares("worker") == 3)
            wait(lambda: bool(loads(tested, 0)) and loads(tested, 0)[-1][0] > grown + REACTION_MS)
            killed = time.time_ns() // 1_000_000
            supervisor.kill("router-0")
            log = tested.folder / "router-0.log"
            wait(lambda: RESTORED.search(log.read_text()) is not None)
            found = RESTORED.search(log.read_text())
            assert found
            mine = int(found[1])
            wait(lambda: loads(tested, mine)[-1][0] > killed)
            before = [tuples for at, tuples in loads(tested, mine) if at < killed][-1]
            at, after = loads(tested, mine)[-1]
            own = metric(router.metrics_port, "skewless_tuples_total")
            print(f"router-0 killed at {before} tuples, {at - killed} ms later at {after}, of its own now {own:g}")
            assert 0 < before < after
            assert after > own

        wait(lambda: tested.shares("worker") == 1)
        shrunk = set_workers(tested, 2)
        wait(lambda: bool(used_since(tested, shrunk + REACTION_MS)))
        assert feed.sent < RECORDS
        assert used_since(tested, shrunk + REACTION_MS) == {0, 1}
        last = max(times[-1] for worker, times in routed(tested).items() if worker >= 2)
        print(f"W 12 -> 2: the last tuples for another worker came after {last - shrunk} ms")
    tested.drain()
    assert differences(tested, truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)) == []
    ticks = [json.loads(record.value or b"") for record in tested.read("distribution")]
    assert all(tick["workers"] == len(tick["tuples_by_worker"]) for tick in ticks)
    assert [workers for workers in (4, 12, 2) if workers in {tick["workers"] for tick in ticks}] == [4, 12, 2]
    assert ticks[-1]["workers"] == 2
