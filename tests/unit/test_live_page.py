"""The page of the live experiment has a row per run, with the published figure where there is one."""

from __future__ import annotations

from typing import Any

from bench import live_page


def run(grouping: str, workers: int) -> dict[str, Any]:
    """Return a run with figures that differ from the published ones."""
    return {
        "grouping": grouping,
        "workers": workers,
        "tuples_per_s": 255.26,
        "sustained_per_s": 122.45,
        "queue_tuples": 223_376,
        "replication_factor": 1.304,
        "max_over_avg": 4.083,
        "latency_rate": 97.96,
        "p50_s": 0.5,
        "p95_s": 1.25,
        "p99_s": 2.0,
    }


def test_live_page_has_the_published_figure_next_to_the_measured_ones() -> None:
    rows = live_page.render([run("partial_key", 20), run("even", 20)]).splitlines()
    assert "| 20 | `partial_key` | 246 | 122 | 255 | 223,376 |" in rows
    assert "| 20 | `partial_key` | 1.63 | 1.30 | 4.08 |" in rows
    assert "| 20 | `partial_key` | 98 | 0.50 | 1.25 | 2.00 |" in rows
    assert "| 20 | `even` | - | 122 | 255 | 223,376 |" in rows


def test_live_page_of_another_number_of_workers_has_no_published_figure() -> None:
    assert "| 7 | `key` | - | 122 | 255 | 223,376 |" in live_page.render([run("key", 7)]).splitlines()
