"""The page of costs has the runs of all dimensions, and computes what a higher rate needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.bench_growth import DIMENSIONS, Load, runs
from bench.growth_page import STAGES, render

START = {"splitter_cpu_s": 1.0, "router_cpu_s": 1.0, "worker_cpu_s": 1.0, "aggregator_cpu_s": 1.0}
START |= {"observer_cpu_s": 1.0, "broker_cpu_s": 0.0}


def line(measure: str, dimension: str, load: Load) -> dict[str, Any]:
    """Return a run in which each stage takes 0.7 us per record, besides its start."""
    spent = 0.0 if dimension == "start" else load.records * 0.7e-6
    found = {"measure": measure, "dimension": dimension, **asdict(load), "cores": 2}
    found |= {name: seconds + spent for name, seconds in START.items()}
    return found | {
        "peak_mb": dict.fromkeys(STAGES, 100),
        "bytes": 10 * load.records,
        "restore_s": 2.0,
        "state_bytes": 70.0 * load.keys,
        "rate": 5_000,
        "p50_s": 1.0,
        "p99_s": 2.0,
        "max_s": 3.0,
    }


def page() -> str:
    return render(line(*run) for run in runs(list(DIMENSIONS), ["drain", "latency", "restore"], large=False))


def test_growth_page_has_a_row_for_each_run() -> None:
    text = page()
    for numbers in DIMENSIONS.values():
        for number in numbers:
            assert f"\n| {number:,} | 0.70 | 0.70 | 0.70 | 0.70 | 0.70 | 3.50 | 0.70 | 10.0 | 500 MB |" in text
    assert "\n| 1,000,000 | 70,000,000 | 2.00 s |" in text


def test_growth_page_extrapolates_processes_transactions_markers_and_restores() -> None:
    # 0.7 us per record and 70 % of a core: a process for each million records. It commits twice per second. Markers: 10
    # of splitters, 10 x 10 of routers and of workers, 2 x 10 of aggregators, 50 in the offsets. The largest run
    # restores 1,000,000 keys in 2 s, and each of 10 aggregators has 1,000,000 keys.
    assert "\n| 10,000,000 | 10, 10, 10, 10, 10 | 10 | 100 | 560 | 2.0 s |\n" in page()
    assert "\n| 1,000,000 | 1, 1, 1, 1, 1 | 1 | 10 | 20 | 20.0 s |\n" in page()
