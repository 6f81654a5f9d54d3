"""Measures from sums, and statistics of a run whose W changed, without Spark or a broker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skewless.config.pipeline_settings import DEFAULT_SPLITTER, PipelineSettings
from skewless.spark.comparison import Compared, comparisons, summary
from skewless.spark.completion import Completion, completion_of, tuple_latencies
from skewless.spark.distribution_sums import Sums
from skewless.spark.evaluation_json import measures_of_run
from skewless.spark.load_measures import reactions, running


def tick(start_s: int, hottest: str, imbalance: float) -> dict[str, Any]:
    times = {"tick_start": start_s * 1000, "tick_end": (start_s + 10) * 1000}
    return times | {"tuples": 100, "imbalance": imbalance, "top_keys": [{"key": hottest}]}


def test_reactions_hot_key_change_ends_with_the_first_balanced_tick() -> None:
    ticks = [tick(0, "a", 0.5), tick(10, "b", 0.2), tick(20, "b", 0.1), tick(30, "b", 0.0005), tick(40, "b", 0.3)]
    (change,) = reactions(ticks)
    assert change == {"tick_start": 10_000, "from": "a", "to": "b", "seconds": 20.0, "tuples": 200}


def test_reactions_hot_key_change_unbalanced_until_the_next_one_has_no_duration() -> None:
    found = reactions([tick(0, "a", 0), tick(10, "b", 0.2), tick(20, "c", 0)])
    assert [(each["to"], each["seconds"]) for each in found] == [("b", None), ("c", 0.0)]


def test_running_imbalance_workers_are_added_covers_all_ticks_so_far() -> None:
    assert running([np.array([4, 0]), np.array([0, 4]), np.array([0, 0, 4])]) == [0.5, 0.0, 0.0]


def sums() -> Sums:
    """Make a run of two ticks, with 1 worker in the first and 2 in the second."""
    loads = [
        row(at, workers, worker=worker, tuples=tuples, rows=tuples // 5, first_at=1000 + at, last_at=1500 + at)
        for at, workers, worker, tuples in ((0, 1, 0, 10), (10_000, 2, 0, 5), (10_000, 2, 1, 5))
    ]
    replicas = [row(0, 1, keys=2, pairs=2, max_workers=1), row(10_000, 2, keys=1, pairs=2, max_workers=2)]
    hottest = [
        row(0, 1, rank=1, key="a", tuples=6, held_by=1),
        row(10_000, 2, rank=1, key="a", tuples=10, held_by=2),
    ]
    totals = [{**each, "hottest": hot, "needed": 2} for each, hot in zip(replicas, (6, 10), strict=True)]
    return Sums(
        loads={"tick": loads, "window": loads},
        replicas={"tick": replicas, "window": replicas, "run": totals},
        hottest={"tick": hottest, "run": hottest},
        latencies=[
            {"run": "prod.p", "window": None, "results": 3, "quantiles": [1.0, 2.0, 3.0], "max_ms": 4},
            {"run": "prod.p", "window": 0, "results": 2, "quantiles": [1.0, 1.0, 1.0], "max_ms": 1},
        ],
        partials=[{"run": "prod.p", "window": 0, "rows": 4}, {"run": "other", "window": 0, "rows": 99}],
        state=[],
        completions=[],
    )


def row(at: int, workers: int, **entries: object) -> dict[str, Any]:
    return {"run": "prod.p", "grouping": "even", "workers": workers, "tick": at, "window": at, **entries}


def test_measures_of_run_number_of_workers_changed_has_one_part_for_each_number() -> None:
    document = {
        "name": "p",
        "topics": {"prefix": "prod."},
        "source": {"topic": "t"},
        "aggregator": {"window_s": 15},
        "observer": {"tick_s": 15},
    }
    first, second = measures_of_run(PipelineSettings.model_validate(document), {"tuples": {0: (0, 5)}}, (), sums())
    assert (first["workers"], first["tuples_by_worker"], first["replication_factor"]) == (1, [10], 1.0)
    assert (second["workers"], second["tuples_by_worker"], second["replication_factor"]) == (2, [5, 5], 2.0)
    assert (first["rows_by_worker"], second["rows_by_worker"], second["rows_per_tuple"]) == ([2], [1, 1], 0.2)
    assert (first["partials_per_window"], second["partials_per_window"]) == (4, 0)
    assert first["latency_ms"] == {"results": 3, "p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4}
    assert [each["window_start"] for each in first["latency_ms_by_window"]] == [0]
    assert second["latency_ms_by_window"] == []
    assert first["reference"]["DURATION"] == first["duration_ms"] == 500
    assert second["p1"] == pytest.approx(1.0)
    assert first["state_bytes"] is None
    assert first["completed"] is second["completed"] is None
    assert first["offsets"] == {"tuples": {"0": [0, 5]}}


def progress(*rows: tuple[int, int, int]) -> pa.Table:
    """Return the progress of worker 0; each row is a timestamp, tuples that arrived and tuples that were completed."""
    columns = zip(*((0, *row) for row in rows), strict=True)
    return pa.table(dict(zip(("worker", "at", "arrived", "completed"), map(list, columns), strict=True)))


QUEUE = progress((5000, 0, 1), (2000, 2, 0), (0, 3, 0), (3000, 0, 3))
"""3 tuples arrive at 0 s and are completed at 3 s; of the 2 that arrive at 2 s, one is completed at 5 s."""


def test_completion_of_a_queue_has_its_rate_and_what_waits() -> None:
    assert completion_of(QUEUE) == Completion(tuples=4, waiting=1, first_at=0, last_at=5000)
    assert completion_of(QUEUE).tuples_per_s == pytest.approx(0.8)


def test_tuple_latencies_of_a_queue_are_those_of_a_queue_in_order() -> None:
    found = {tuple(row.values()) for row in tuple_latencies(QUEUE, end=6000).to_pylist()}
    assert found == {(False, 3000, 3), (False, 3000, 1), (True, 4000, 1)}


def test_summary_of_runs_names_the_one_that_completed_most_by_how_much_and_why() -> None:
    key, even = Compared("key", 249.4, 11_000, 8.154), Compared("even", 782.2, 1_500, 1.011)
    assert summary([key, Compared("partial_key", 345, 10_000, 4.05), even]) == (
        "Of key, partial_key and even on the same input, even completed the most tuples: 782 per second, 3.1 times the "
        "249 of key and 2.3 times the 345 of partial_key, because its most loaded worker got 1.01 times the average "
        "load, and that of key 8.15 times."
    )


def test_summary_of_runs_that_differ_by_noise_names_no_winner() -> None:
    runs = [Compared("key", 1000, 0, 1.5), Compared("even", 1020, 0, 1.01)]
    assert summary(runs) == (
        "On the same input, key and even completed about the same number of tuples per second (1,000 to 1,020); the "
        "most loaded worker got 1.50 times the average load with key and 1.01 times the average load with even."
    )


def test_summary_of_runs_that_completed_nothing_names_no_winner() -> None:
    text = summary([Compared("key", 0.0, 100, 1.5), Compared("even", 0.0, 100, 1.01)])
    assert text.startswith("On the same input, key and even completed about the same number of tuples per second (0 to")


def test_comparisons_of_runs_with_another_input_are_separate() -> None:
    documents = [
        {"name": "by-key", "source": {"topic": "clicks"}},
        {
            "name": "evenly",
            "source": {"topic": "clicks"},
            "splitter": {**DEFAULT_SPLITTER, "local": {"mode": "buffer"}},
        },
        {"name": "by-user", "source": {"topic": "clicks"}, "splitter": {"key": {"field": "user"}}},
        {"name": "words", "source": {"topic": "lines"}},
        {"name": "later", "source": {"topic": "clicks"}},
    ]
    settings = [PipelineSettings.model_validate(document) for document in documents]
    runs = [compared_run(each, tick_start=60_000 * (each.name == "later")) for each in settings]
    found = comparisons(settings, runs)
    assert [each["runs"] for each in found] == [[0, 1], [2], [3], [4]]
    assert found[0]["names"] == ["by-key: even on 10 workers", "evenly: even on 10 workers"]
    assert "They did not run at the same time" not in found[0]["summary"]
    runs[1]["completed"] |= {"first_at": 2_000, "last_at": 3_000}
    assert comparisons(settings, runs)[0]["summary"].endswith(" They did not run at the same time.")


def compared_run(settings: PipelineSettings, tick_start: int) -> dict[str, Any]:
    completed = {"tuples_per_s": 5.0, "waiting": 0, "first_at": 0, "last_at": 1000}
    names = {"pipeline": settings.full_name, "source": str(settings.source), "grouping": "even", "workers": 10}
    return names | {"completed": completed, "max_over_avg": 1.0, "ticks": [{"tick_start": tick_start}]}
