"""The simulation: the routers' streams, the merge of their results, and the measures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from skewless.algorithms import keyed_table
from skewless.algorithms.grouping import GROUPINGS, GroupingOptions, KeyBatch, create
from skewless.errors import ConfigurationError
from skewless.lab.simulation.simulation import Simulation, SimulationConfig

OPTIONS = GroupingOptions.model_validate({"clock": "event"})
KEYS = [f"k{number * number % 17}" for number in range(400)]


def run(simulation: Simulation, rows: int) -> Iterator[list[NDArray[np.int32]]]:
    """Add so many keys at a time."""
    for first in range(0, len(KEYS), rows):
        keys = KEYS[first : first + rows]
        yield simulation.add(pa.array(keys), np.arange(first, first + len(keys)) * 1000)


def measured(simulation: Simulation, rows: int | None = None) -> list[dict[str, Any]]:
    list(run(simulation, rows or simulation.rows))
    return simulation.facts()


def chosen_by(name: str, routers: int, workers: int = 7) -> NDArray[np.int32]:
    """Choose with a grouping per router, each of which gets its part of the whole stream at once."""
    chosen = np.empty(len(KEYS), dtype=np.int32)
    for router in range(routers):
        keys = KEYS[router::routers]
        distinct = list(dict.fromkeys(keys))
        codes = np.array([distinct.index(key) for key in keys], dtype=np.int32)
        times = np.arange(len(KEYS))[router::routers] * 1000
        chosen[router::routers] = create(name, workers, OPTIONS).assign(KeyBatch(distinct, codes, times), 0)
    return chosen


@pytest.mark.parametrize("name", ["shuffle", "key", "partial_key"])
@pytest.mark.parametrize("routers", [1, 3])
def test_simulation_several_routers_get_tuples_round_robin_and_are_merged_in_order(name: str, routers: int) -> None:
    found = [chosen[0] for chosen in run(Simulation([(name, 7)], SimulationConfig(OPTIONS, routers)), 60)]
    assert np.concatenate(found).tolist() == chosen_by(name, routers).tolist()


def test_simulation_every_grouping_is_run_and_measured_with_each_number_of_workers() -> None:
    runs = [(name, workers) for name in GROUPINGS for workers in (1, 7)]
    results = measured(Simulation(runs, SimulationConfig(OPTIONS, window_ms=60_000)), 100)
    assert [(line["grouping"], line["workers"]) for line in results] == runs
    for line in results:
        assert (line["tuples"], line["keys"]) == (400, len(set(KEYS)))
        assert sum(line["tuples_by_worker"]) == 400
        assert len(line["tuples_by_worker"]) == line["workers"]
        assert line["windows"] == 7
        assert 1 <= line["replication_factor"] <= line["replication_max"] <= line["workers"]
        assert line["state_bytes"] > 0
        assert line["router_ns_per_tuple"] > 0


@pytest.mark.parametrize(("window_ms", "pane_ms"), [(60_000, 15_000), (20_000, 10_000), (15_013, 1), (7, 7)])
def test_simulation_pane_is_the_longest_that_divides_a_window(window_ms: int, pane_ms: int) -> None:
    assert SimulationConfig(OPTIONS, window_ms=window_ms).pane_ms == pane_ms


def test_simulation_too_many_keys_end_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_table, "TEXT_BYTES", 20)
    with pytest.raises(ConfigurationError, match="too many distinct keys: give a part of it"):
        measured(Simulation([("key", 3)], SimulationConfig(OPTIONS)))


def test_simulation_local_rows_of_a_far_future_keep_their_keys() -> None:
    simulation = Simulation([("key", 7), ("local", 7)], SimulationConfig(OPTIONS, window_ms=1))
    by_key, local = simulation.add(pa.array(KEYS), 2**62 + np.arange(len(KEYS)))
    assert by_key.tolist() == local.tolist()


def test_simulation_empty_stream_is_measured() -> None:
    (results,) = Simulation([("key", 3)], SimulationConfig(OPTIONS)).facts()
    assert (results["tuples"], results["router_ns_per_tuple"], results["replication_bound"]) == (0, 0.0, 0.0)


@pytest.mark.parametrize("routers", [1, 3])
def test_simulation_local_grouping_routes_a_row_per_pane_and_key(routers: int) -> None:
    """Every 20 tuples of a router are a flush, and a pane has 5 tuples of the stream."""
    config = SimulationConfig(OPTIONS, routers, local_tuples=20, longest_pane_ms=5_000)
    simulation = Simulation([("key", 7), ("local", 7)], config)
    results = measured(simulation)
    rows = {(index // (20 * routers), index % routers, index // 5, key) for index, key in enumerate(KEYS)}
    assert len(rows) < 400
    for result in results:
        assert (result["tuples"], result["rows"]) == (400, len(rows))
        assert sum(result["rows_by_worker"]) == len(rows)
        assert result["replication_factor"] == 1


def test_simulation_only_the_grouping_local_aggregates_without_the_setting() -> None:
    simulation = Simulation([("key", 3), ("local", 3)], SimulationConfig(OPTIONS))
    found = list(run(simulation, simulation.rows))
    by_key, local = simulation.facts()
    assert (by_key["rows"], by_key["rows_by_worker"]) == (400, by_key["tuples_by_worker"])
    assert "tuples_by_worker" not in local
    assert local["rows"] == len({(index * 1000 // 15_000, key) for index, key in enumerate(KEYS)})
    assert by_key["keys"] == local["keys"]
    assert [chosen[0].tolist() for chosen in found] == [chosen[1].tolist() for chosen in found]


@pytest.mark.parametrize(("partitions", "routers"), [(1, 1), (4, 1), (4, 3)])
def test_simulation_windows_are_those_of_event_time_for_blocks_of_partitions(partitions: int, routers: int) -> None:
    """A block of a partition has many windows, and those of the next partition are the same."""
    random = np.random.default_rng(3)
    numbers, times = random.integers(0, 50, 8000), np.arange(8000) * 30
    numbers[(times // 6000 == 20) & (np.arange(8000) % 2 == 1)] = 50
    names = pa.array([f"k{number}" for number in range(51)])
    config = SimulationConfig(OPTIONS, routers, window_ms=6000, longest_pane_ms=2000)
    simulation = Simulation([("key", 2), ("local", 2)], config)
    chosen = np.empty(8000, dtype=np.int32)
    for first in range(0, 8000, 4000):
        for partition in range(partitions):
            rows = slice(first + partition, first + 4000, partitions)
            chosen[rows] = simulation.add(names.take(pa.array(numbers[rows])), times[rows], router=partition)[0]
    windows = times // 6000
    loads = np.array([np.bincount(chosen[windows == window], minlength=2) for window in range(40)])
    pairs = len(set(zip(windows.tolist(), numbers.tolist(), strict=True)))
    by_key, local = simulation.facts()
    for measures in (by_key, local):
        assert (measures["windows"], measures["aggregation_cost"]) == (40, pairs / 40)
        assert (measures["window_replication"], measures["window_replication_max"]) == (1.0, 1.0)
    assert by_key["window_max_over_avg"] == pytest.approx(loads.max(axis=1).sum() / 4000)
    assert by_key["worst_window_max_over_avg"] == pytest.approx(loads.max() / 100)


def test_simulation_local_rows_of_several_routers_count_in_their_windows() -> None:
    """Each router flushes its rows of all windows at once."""
    keys, times = pa.array(["a", "b"] * 30), np.arange(60) * 1000
    simulation = Simulation([("local", 2)], SimulationConfig(OPTIONS, 2, window_ms=10_000, longest_pane_ms=5_000))
    simulation.add(keys, times)
    (local,) = simulation.facts()
    assert (local["windows"], local["aggregation_cost"]) == (6, 2.0)
