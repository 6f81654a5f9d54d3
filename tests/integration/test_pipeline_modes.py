"""Settings that must not change the results, and settings that change only the time of the results."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import skewless
from helpers.kafka import START_MS, Pipeline, Source, differences, read, truth, zipf_records
from helpers.tiers import thorough_except
from helpers.waiting import until
from skewless.wire.columns import read_table

RECORDS = 8_000
LATENESS_S = 20
WINDOW_MS = 60_000


@pytest.fixture(autouse=True)
def _children_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(skewless.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH")))))


@pytest.fixture(scope="module")
def source(broker: str) -> Source:
    made = Source(broker, 2)
    made.send(zipf_records(RECORDS, 2, seed=7, keys=500))
    return made


MODES: dict[str, dict[str, Mapping[str, Any]]] = {
    "final, shuffle": {"aggregator": {"emit": "final"}, "router": {"grouping": "shuffle", "workers": 8}},
    "at_least_once, key": {
        "transport": {"guarantee": "at_least_once", "commit_interval_s": 0.3},
        "router": {"grouping": "key", "workers": 8},
    },
    "record, 3 workers": {
        "worker_input": {"encoding": "record", "max_workers": 8},
        "router": {"grouping": "partial_key", "workers": 3},
    },
    "local": {"router": {"grouping": "local", "workers": 8}},
    "local, rows sent one by one": {
        "splitter": {"local": {"mode": "buffer", "buffer_rows": 1}},
        "transport": {"commit_interval_s": 0.01},
    },
    "local windows, rows sent one by one": {
        "splitter": {"local": {"mode": "windows", "window_s": 5, "buffer_rows": 1}},
        "transport": {"commit_interval_s": 0.01},
    },
    "local windows, final": {
        "splitter": {"local": {"mode": "windows", "window_s": 15}},
        "aggregator": {"emit": "final"},
    },
    "small batches": {"transport": {"max_poll_records": 100, "max_in_flight_batches": 1, "commit_interval_s": 0.1}},
}
"""The other values of these settings, `updates`, `exactly_once` and `batch`, are covered by the acceptance tests."""


@pytest.mark.parametrize("mode", thorough_except(["local windows, final"], MODES))
def test_pipeline_in_any_mode_gives_the_reference_count(broker: str, tmp_path: Path, source: Source, mode: str) -> None:
    pipeline = Pipeline(broker, tmp_path, source, event_time={"allowed_lateness_s": LATENESS_S}, **MODES[mode])
    pipeline.drain()
    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    assert len(expected.late) > 0
    assert differences(pipeline, expected) == []
    if "final" in mode:
        assert pipeline.count("aggregates") == len(expected.counts)


def entry(key: str, time_s: float) -> bytes:
    return json.dumps({"key": key, "value": 1, "time": START_MS + round(time_s * 1000)}).encode()


def closed(pipeline: Pipeline) -> dict[tuple[float, str], list[tuple[int, int]]]:
    """Return (window in s after the start, key) -> (count, revision) of each of its records, in order."""
    found = defaultdict(list)
    for record in pipeline.read("aggregates"):
        result = json.loads(record.value or b"")
        found[(result["window_start"] - START_MS) / 1000, result["key"]].append((result["count"], result["revision"]))
    return dict(found)


@pytest.mark.thorough
def test_pipeline_partition_idle_then_active_corrects_closed_windows(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    pipeline = Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"idle_timeout_s": 1.5},
        aggregator={"emit": "final", "window_s": 15},
        observer={"tick_s": 15},
        transport={"commit_interval_s": 0.1},
    )
    clock = iter(range(0, 10_000, 2))

    with pipeline.running() as supervisor:

        def step() -> None:
            """Advance event time by two seconds in partition 0, in a tenth of a second, so that it is never idle.

            The other partition gets an invalid record, which does not hold windows open.
            """
            supervisor.poll(time.monotonic())
            source.send([(0, entry("steady", next(clock))), (1, b'{"key": "sleepy"}')])
            time.sleep(0.1)

        source.send([(1, entry("sleepy", 5))])
        until(lambda: (15.0, "steady") in closed(pipeline), each=step)
        before = closed(pipeline)
        assert before[0.0, "sleepy"] == [(1, 0)]
        assert before[0.0, "steady"] == [(8, 0)]
        source.send([(1, entry("sleepy", at)) for at in (6, 20, 29)])
        until(lambda: len(closed(pipeline).get((0.0, "sleepy"), ())) > 1, each=step)
        # Both records may arrive in one commit of the splitter, or in two.
        until(lambda: closed(pipeline).get((15.0, "sleepy"), [(0, 0)])[-1][0] == 2, each=step)
        after = closed(pipeline)
    assert after[0.0, "sleepy"] == [(1, 0), (2, 1)]
    assert after[15.0, "sleepy"][-1][0] == 2
    assert after[0.0, "steady"] == [(8, 0)]
    pipeline.drain()
    valid = [record for record in read(broker, source.topic) if b"time" in (record.value or b"")]
    expected = truth(valid, window_ms=15_000)
    results, failures = pipeline.results()
    assert {at: result["count"] for at, result in results.items()} == dict(expected.counts)
    assert failures == []


def deltas(pipeline: Pipeline) -> Iterator[tuple[int, int, int]]:
    """Return (worker, wall-clock ms, tuples) of every delta."""
    for record in pipeline.read("partials"):
        if record.value:
            table = read_table(record.value)
            for worker, tuples in zip(table["worker"].to_pylist(), table["count"].to_pylist(), strict=True):
                yield worker, record.timestamp, tuples


@pytest.mark.thorough
def test_worker_simulated_cost_is_paid_by_all_workers_in_parallel(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    source.send(zipf_records(4_000, 1, seed=9, keys=100))
    pipeline = Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"allowed_lateness_s": 100},
        router={"grouping": "shuffle", "workers": 8},
        worker={"cost": {"cycle": 1, "process_duration_ms": 30}},
        # After a transaction abort, repeated tuples have no simulated cost. A slow broker must not cause an abort.
        transport={
            "max_poll_records": 80,
            "commit_interval_s": 0.1,
            "session_timeout_s": 60,
            "transaction_timeout_s": 120,
        },
    )
    pipeline.drain()
    assert differences(pipeline, truth(read(broker, source.topic), lateness_ms=100_000)) == []
    by_worker: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for worker, at, tuples in deltas(pipeline):
        by_worker[worker][at] += tuples
    assert sorted(by_worker) == list(range(8))
    # Each worker has 15 s of work. In turn they would take 120 s. A busy machine commits all of it at once.
    sent = min(record.timestamp for record in pipeline.read("worker-input") if record.value)
    took_ms = [max(times) - sent for times in by_worker.values()]
    assert min(took_ms) > 14_700
    assert max(took_ms) < 110_000
