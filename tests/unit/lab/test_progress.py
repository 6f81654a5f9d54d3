"""Progress without a terminal, and the summary of a run."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from skewless.lab.datasets.produce_run import Summary
from skewless.lab.progress import line_report


def lines(total: int | None, *updates: tuple[float, int], unit: str = "records") -> list[str]:
    output = io.StringIO()
    report = line_report(Console(file=output), total, 100.0, unit)
    for now, done in updates:
        report(now, done)
    return output.getvalue().splitlines()


def test_line_report_many_updates_print_a_line_at_most_every_five_seconds() -> None:
    updates = [(100.0 + tenth / 10, tenth * 100) for tenth in range(121)]
    assert lines(20_000, *updates) == [
        "5,000 of 20,000 records, 1,000/s, 15 s left",
        "10,000 of 20,000 records, 1,000/s, 10 s left",
    ]


def test_line_report_without_total_or_rate_claims_no_remaining_time() -> None:
    assert lines(None, (105.0, 10)) == ["10 records, 2/s"]
    assert lines(100, (105.0, 0)) == ["0 of 100 records, 0/s"]


def test_a_line_of_progress_names_the_unit_of_the_run() -> None:
    assert lines(100, (105.0, 50), unit="kB") == ["50 of 100 kB, 10/s, 5 s left"]


def test_produce_summary_of_records_has_the_first_and_last_time() -> None:
    summary = Summary()
    summary.add([b"ab", b"c"], np.array([20, 10]))
    summary.add([b""], np.array([15]))
    assert (summary.first_ms, summary.last_ms, summary.size) == (10, 20, 3)


def test_produce_summary_without_records_has_no_times() -> None:
    assert Summary().to_json() == {
        "records": 0,
        "bytes": 0,
        "seconds": 0.0,
        "rate": 0,
        "first_ms": None,
        "last_ms": None,
        "interrupted": False,
    }
