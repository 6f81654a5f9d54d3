"""Output of the demo during a run, and its comparison of results."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from prometheus_client.samples import Sample
from rich.console import Console

from skewless.lab.demo import prometheus_scraper
from skewless.lab.demo.console import LINE_INTERVAL_S, DemoConsole, LiveProgress, RunProgress
from skewless.lab.demo.demo_cards import live_cards, result_cards, run_card
from skewless.lab.demo.demo_pipeline import STALL_TIMEOUT_S, _StallDetector
from skewless.lab.demo.demo_plan import make_plan
from skewless.lab.demo.demo_report import RunResult, comparison
from skewless.lab.demo.demo_run import Demo
from skewless.lab.demo.live_comparison import LiveResult
from skewless.lab.demo.prometheus_scraper import Snapshot, aggregate
from skewless.wire.distribution import RunDistribution

if TYPE_CHECKING:
    from skewless.lab.local.supervisor import Replica

RUN = RunDistribution(
    tuples=10,
    duration_ms=2000,
    tuples_per_s=5.0,
    tuples_by_worker=[9, 1],
    load_stddev_percent=40.0,
    imbalance=0.4,
    max_over_avg=1.8,
    replication_factor=1.25,
)
HALF = Snapshot(tuples=50, load=(40, 20), lag=7, watermark_ms=2000, memory_bytes=3_000_000)


def screen(*, terminal: bool) -> tuple[DemoConsole, io.StringIO]:
    output = io.StringIO()
    return DemoConsole(Console(file=output, force_terminal=terminal, width=100)), output


def run() -> RunProgress:
    return RunProgress("key (1 of 3)", 100, [1000, 2000, 3000], started=0.0)


def outcome(*failures: str) -> RunResult:
    return RunResult("key", counted=10, wrong=failures, seconds=3.0, counting_s=2.0, memory_bytes=1, distribution=RUN)


def test_command_longer_than_the_terminal_stays_on_one_line() -> None:
    console, output = screen(terminal=True)
    command = f'sqlite3 counts.db "SELECT {", ".join(f"column_{number}" for number in range(20))} FROM words"'
    console.print_command(command)
    assert f"$ {command}" in output.getvalue()


def test_snapshot_of_several_processes_aggregates_their_samples() -> None:
    samples = [
        Sample("skewless_tuples_total", {"stage": "aggregator"}, 30),
        Sample("skewless_tuples_total", {"stage": "aggregator"}, 12),
        Sample("skewless_tuples_total", {"stage": "router"}, 99),
        Sample("skewless_router_rows_total", {"worker": "10"}, 3),
        Sample("skewless_router_rows_total", {"worker": "2"}, 1),
        Sample("skewless_router_rows_total", {"worker": "2"}, 1),
        Sample("skewless_consumer_lag_records", {"stage": "splitter", "partition": "0"}, 5),
        Sample("skewless_consumer_lag_records", {"stage": "worker", "partition": "0"}, 500),
        Sample("skewless_watermark_timestamp_seconds", {"stage": "aggregator", "partition": "0"}, 3),
        Sample("skewless_watermark_timestamp_seconds", {"stage": "aggregator", "partition": "1"}, 2),
        Sample("process_resident_memory_bytes", {}, 1000),
    ]
    assert aggregate(samples) == Snapshot(
        tuples=42, load=(2, 3), lag=5, waiting=505, watermark_ms=2000, memory_bytes=1000
    )


def test_stall_detector_sink_that_still_stores_is_progress() -> None:
    detector = _StallDetector(Path())
    for now, records in ((0.0, 9), (2 * STALL_TIMEOUT_S, 8)):
        sample = Sample("skewless_consumer_lag_records", {"stage": "sink", "partition": "0"}, records)
        detector.check_progress(now, aggregate([sample]))


class Process:
    """Replaces a replica of the supervisor."""

    name = "aggregator-0"
    metrics_port = 1
    pid: int | None = 1


def test_prometheus_scraper_restarted_process_keeps_the_tuples_counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Sample] = []
    monkeypatch.setattr(prometheus_scraper, "_scrape", lambda _port: list(shown))
    process = Process()
    scraper = prometheus_scraper.Scraper([cast("Replica", process)])
    found = []
    for pid, tuples in ((1, 30), (1, 40), (None, 0), (2, None), (2, 0), (2, 5), (3, 1)):
        process.pid = pid
        shown[:] = [] if tuples is None else [Sample("skewless_tuples_total", {"stage": "aggregator"}, tuples)]
        found.append(scraper.snapshot().tuples)
    assert found == [30, 40, 40, 40, 40, 45, 46]


def test_prometheus_scraper_ended_process_has_neither_lag_nor_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [
        Sample("skewless_tuples_total", {"stage": "aggregator"}, 30),
        Sample("skewless_consumer_lag_records", {"stage": "splitter", "partition": "0"}, 5),
        Sample("process_resident_memory_bytes", {}, 1000),
    ]
    monkeypatch.setattr(prometheus_scraper, "_scrape", lambda _port: samples)
    process = Process()
    scraper = prometheus_scraper.Scraper([cast("Replica", process)])
    assert scraper.snapshot() == Snapshot(tuples=30, lag=5, waiting=5, memory_bytes=1000)
    process.pid = None
    assert scraper.snapshot() == Snapshot(tuples=30)


def test_demo_console_closed_windows_stay_closed() -> None:
    shown = run()
    for watermark in (2000, None, 1000):
        shown.update(1.0, Snapshot(tuples=50, load=(50,), watermark_ms=watermark))
        assert shown.closed == 2


def test_run_result_rate_covers_the_time_in_which_tuples_were_counted() -> None:
    assert outcome().rate == 5.0
    assert "10 tuples counted, 5 tuples/s" in str(outcome())
    assert outcome().to_json()["tuples_per_s"] == 5.0


def test_demo_console_without_a_terminal_prints_plain_lines_at_intervals() -> None:
    shown, output = screen(terminal=False)
    with shown.live(run()) as show:
        show(1.0, Snapshot())
        show(LINE_INTERVAL_S, HALF)
        show(LINE_INTERVAL_S + 1, HALF)
    assert output.getvalue() == (
        "  key (1 of 3)    5 s  counting  50% of 100 tuples  12/s  lag 7 records  2 of 3 windows closed  "
        "most loaded worker 66.7%\n"
    )


def test_demo_console_on_a_terminal_shows_a_bar_for_each_worker() -> None:
    shown, output = screen(terminal=True)
    with shown.live(run()) as show:
        show(1.0, HALF)
    text = output.getvalue()
    assert all(part in text for part in ("50%", "2 of 3 windows closed", "worker  0", "66.7%", "worker  1", "33.3%"))


@pytest.mark.parametrize(
    ("snapshot", "state"),
    [
        (Snapshot(), "starting the processes"),
        (HALF, "counting"),
        (Snapshot(tuples=100, load=(100,)), "closing the last windows"),
    ],
)
def test_demo_console_run_in_each_phase_shows_its_state(snapshot: Snapshot, state: str) -> None:
    shown = run()
    shown.update(1.0, snapshot)
    assert shown.state == state


def test_run_result_without_differences_is_exact() -> None:
    assert outcome().exact
    assert "exact: 10 tuples counted" in str(outcome())
    assert not outcome("window 0").exact
    assert str(outcome("window 0")) == "NOT EXACT: window 0"


LIVE = [
    LiveResult("key", tuples=1_800, tuples_per_s=121.4, waiting=13_200, max_over_avg=8.21, replication_factor=1.0),
    LiveResult("even", tuples=14_990, tuples_per_s=972.6, waiting=10, max_over_avg=1.01, replication_factor=1.33),
]


@pytest.mark.parametrize("failures", [(), ("window 0, key 'a': 1 instead of 2",)])
def test_demo_report_says_that_counts_are_correct_only_if_they_are(failures: tuple[str, ...], tmp_path: Path) -> None:
    shown, output = screen(terminal=False)
    demo = Demo(make_plan((), ("key",), 4), shown, tmp_path)
    demo.live_results, demo.result = LIVE, outcome(*failures)
    demo.report()
    assert ("Every key of every window has the count" in output.getvalue()) == (not failures)


def test_demo_console_comparison_has_a_column_per_grouping_and_the_rate_first() -> None:
    shown, output = screen(terminal=False)
    shown.print_table(comparison(LIVE))
    rows = [line.replace("\u2502", "").split() for line in output.getvalue().splitlines() if "\u2502" in line]
    assert rows[0] == ["tuples/s", "121", "973"]
    assert [row[-2:] for row in rows[1:]] == [["13,200", "10"], ["8.21", "1.01"], ["1.00", "1.33"]]


def test_demo_console_live_stream_on_a_terminal_shows_rate_and_queue_of_each_grouping() -> None:
    shown, output = screen(terminal=True)
    with shown.live_comparison(LiveProgress(1000, 15, ("key", "even"))) as show:
        show(10, {"key": Snapshot(1_200), "even": Snapshot(9_800)})
    text = output.getvalue()
    assert all(part in text for part in ("10 of 15 s", "120 tuples/s", "8,800 wait", "980 tuples/s", "200 wait"))


def test_demo_console_live_stream_without_a_terminal_prints_plain_lines_at_intervals() -> None:
    shown, output = screen(terminal=False)
    with shown.live_comparison(LiveProgress(1000, 15, ("key", "even"))) as show:
        for second in (1, 5, 6):
            show(second, {"key": Snapshot(120 * second), "even": Snapshot(980 * second)})
    assert output.getvalue() == "  5 of 15 s: key 120, even 980 tuples/s\n"


def test_demo_page_has_a_card_per_grouping_with_its_loads_from_start_to_result() -> None:
    live = LiveProgress(1000, 15, ("key", "even"))
    assert [(card.name, card.state) for card in live_cards(live)] == [("key", "starting"), ("even", "starting")]
    live.elapsed_s = 10
    live.snapshots = {"key": Snapshot(1_200, (9_000, 1_000)), "even": Snapshot(9_800, (5_100, 4_900))}
    key, even = live_cards(live)
    assert dict(key.figures) == {
        "tuples/s": "120",
        "tuples/s that arrive": "1,000",
        "tuples that wait": "8,800",
        "most loaded worker / average": "1.80",
        "of the stream": "10 of 15 s",
    }
    assert [(bar.relative, bar.level) for bar in (*key.bars, *even.bars)] == [
        *((1.8, "overloaded"), (0.2, "even"), (1.02, "even"), (0.98, "even")),
    ]
    finished = result_cards(LIVE, live.snapshots)
    assert [(card.name, card.state, dict(card.figures)["tuples/s"]) for card in finished] == [
        ("key", "finished", "121"),
        ("even", "finished", "973"),
    ]
    assert [list(card.bars) for card in finished] == [list(key.bars), list(even.bars)]


def test_demo_page_shows_the_run_of_the_data_set() -> None:
    progress = run()
    progress.update(1.0, HALF)
    shown = run_card("words", progress, 2.0)
    assert shown.name == "words: key (1 of 3)"
    figures = dict(shown.figures)
    assert (figures["of 100 tuples"], figures["lag in records"], figures["windows closed"]) == ("50%", "7", "2 of 3")
    assert [bar.rows for bar in shown.bars] == [40, 20]
