"""The screen of `skewless top`, driven by keys at several sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static, TabbedContent

from skewless.algorithms.watermark import WatermarkState
from skewless.cli.commands.top import _print_lines
from skewless.cli.top_view import NUMBERS_WIDTH, TopApp, key_rows, summary, worker_rows
from skewless.errors import UnreachableError
from skewless.kafka.admin.groups import GroupDescription
from skewless.operations.status import PipelineStatus, StageStatus
from skewless.wire.distribution import RunDistribution, TickDistribution, TopKey

NOW = 1_767_225_700_000
ROWS = [100, 400, 250, 250]
STAGES = ("splitter", "router", "worker", "aggregator", "observer")


def load(rows: list[int]) -> TickDistribution:
    total = sum(rows)
    run = RunDistribution(total, 60_000, total / 60, rows, 1.0, 0.1, 1.6, 1.02)
    keys = [TopKey("books", 300, 2), TopKey("\x1b[31mapples", 200, 1)]
    most = max(rows) * len(rows) / total
    start = NOW - 70_000
    return TickDistribution(
        start, start + 60_000, "key", len(rows), total, rows, 5, 1.0, 0.1, most, 1.02, keys, run, total, rows
    )


def report(tick: TickDistribution | None, problems: Iterable[str] = (), warnings: Sequence[str] = ()) -> PipelineStatus:
    stages = [
        StageStatus(
            name,
            GroupDescription("Stable", {f"clicks-{name}-0": "10.0.0.1"}),
            {f"clicks.{name}": {0: 12 if name == "worker" else 0}},
            oldest_unprocessed_ms=NOW - 400 if name == "worker" else None,
            partitions=[WatermarkState(NOW - 5_000)],
        )
        for name in STAGES
    ]
    recent = {"late": 3, "dead-letters": 0}
    return PipelineStatus(
        "clicks", NOW, stages, NOW, 2, recent, 300.0, tick, problems=tuple(problems), warnings=warnings
    )


def drive(app: TopApp, steps: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> int | None:
    async def run() -> int | None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await steps(pilot)
        return app.return_code

    return asyncio.run(run())


def cells(app: TopApp, view: str) -> list[list[str]]:
    table = app.query_one(f"#{view}-table", DataTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


def text(app: TopApp, name: str) -> str:
    return str(app.query_one(f"#{name}", Static).content)


def never() -> PipelineStatus:
    raise AssertionError("the state was read before the interval was over")


def test_top_view_sorts_workers_by_load_then_by_number() -> None:
    async def steps(pilot: Pilot[None]) -> None:
        assert [row[:4] for row in cells(app, "workers")] == [
            ["1", "400", "40.0%", "1.60"],
            ["2", "250", "25.0%", "1.00"],
            ["3", "250", "25.0%", "1.00"],
            ["0", "100", "10.0%", "0.40"],
        ]
        await pilot.press("s")
        assert [row[0] for row in cells(app, "workers")] == ["0", "1", "2", "3"]

    app = TopApp(report(load(ROWS)), never, 3600)
    drive(app, steps)


def test_top_view_keys_switch_views_and_control_characters_are_replaced() -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("k")
        assert app.query_one(TabbedContent).active == "keys"
        assert cells(app, "keys") == [
            ["books", "300", "30.0%", "1.20", "2"],
            ["?[31mapples", "200", "20.0%", "0.80", "1"],
        ]
        await pilot.press("s")
        assert [row[0] for row in cells(app, "keys")] == ["?[31mapples", "books"]
        await pilot.press("t")
        assert app.query_one(TabbedContent).active == "stages"
        assert [row[0] for row in cells(app, "stages")] == list(STAGES)
        assert cells(app, "stages")[2][1:3] == ["12", "0.4 s"]

    app = TopApp(report(load(ROWS)), never, 3600)
    drive(app, steps)


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 10)])
def test_top_view_fits_the_screen_before_and_after_a_resize(size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        for width, height in (size, (120, 30)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            table = app.query_one("#workers-table", DataTable)
            assert len(cells(app, "workers")[0][4]) == max(8, width - NUMBERS_WIDTH)
            assert not table.show_horizontal_scrollbar or width < 60
            assert app.query_one("#notes").region.bottom <= height

    app = TopApp(report(load([100] * 99 + [300])), never, 3600)
    drive(app, steps, size)


def test_top_view_refresh_shows_the_new_state_and_the_error_of_a_failed_read() -> None:
    answers: list[PipelineStatus | UnreachableError] = [
        report(load([1, 1, 1, 1]), ["router: no process runs"], ["20 % of the tuples are late"]),
        UnreachableError("no answer from Kafka"),
    ]

    def read() -> PipelineStatus:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def refresh(pilot: Pilot[None]) -> None:
        await pilot.press("r")
        while app.workers:
            await pilot.pause()
        await pilot.pause()

    async def steps(pilot: Pilot[None]) -> None:
        await refresh(pilot)
        assert [row[3] for row in cells(app, "workers")] == ["1.00"] * 4
        assert "problem: router: no process runs" in text(app, "notes")
        assert "warning: 20 % of the tuples are late" in text(app, "notes")
        await refresh(pilot)
        assert "error: no answer from Kafka" in text(app, "notes")
        assert [row[3] for row in cells(app, "workers")] == ["1.00"] * 4

    app = TopApp(report(load(ROWS)), read, 3600)
    drive(app, steps)


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
def test_top_view_quits_with_an_exit_code(key: str, code: int) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press(key)

    assert drive(TopApp(report(None), never, 3600), steps) == code


def test_top_view_without_a_tick_says_so() -> None:
    async def steps(pilot: Pilot[None]) -> None:
        assert "no tick was emitted yet" in text(app, "head")
        assert cells(app, "workers") == []

    app = TopApp(report(None), never, 3600)
    drive(app, steps)


def test_summary_names_rate_balance_lag_problems_and_warnings() -> None:
    line = summary(report(load(ROWS), ["topic clicks.late is missing"], ["20 % of the tuples are late"]))
    assert line == (
        "clicks failing, 16.7 tuples/s, max/avg 1.60, lag 0.4 s; "
        "problem: topic clicks.late is missing; warning: 20 % of the tuples are late"
    )
    assert "no load yet" in summary(report(None))


def test_lines_of_a_pipeline_that_has_finished_have_no_rate_and_are_not_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = report(load(ROWS))
    gone = [replace(stage, group=GroupDescription("Empty", {}), lag={}) for stage in running.stages]
    finished = replace(running, stages=gone)
    later = replace(finished, time_ms=NOW + 2_000)
    reports = iter([running, finished, later, replace(running, time_ms=NOW + 4_000)])
    with pytest.raises(StopIteration):
        _print_lines(running, lambda: next(reports), 0)
    ended = "clicks finished, last tick 2026-01-01T00:00:30Z, max/avg 1.60, lag 0 s"
    going = "clicks running, 16.7 tuples/s, max/avg 1.60, lag 0.4 s"
    assert capsys.readouterr().out.splitlines() == [
        f"2026-01-01T00:01:40Z  {going}",
        f"2026-01-01T00:01:40Z  {going}",
        f"2026-01-01T00:01:40Z  {ended}",
        f"2026-01-01T00:01:44Z  {going.replace('0.4', '4.4')}",
    ]


def test_print_lines_after_an_error_prints_no_old_state(capsys: pytest.CaptureFixture[str]) -> None:
    def read() -> PipelineStatus:
        if failures:
            raise failures.pop()
        raise StopIteration

    failures = [UnreachableError("no answer")]
    with pytest.raises(StopIteration):
        _print_lines(report(load(ROWS)), read, 0)
    printed = capsys.readouterr()
    assert (len(printed.out.splitlines()), printed.err) == (1, "error: no answer\n")


def test_rows_of_a_tick_without_tuples_are_zero() -> None:
    empty = replace_rows(load(ROWS), [0, 0])
    assert [str(cell) for row in worker_rows(empty, 10, by_load=True) for cell in row[:4]] == [
        *("0", "0", "0.0%", "0.00"),
        *("1", "0", "0.0%", "0.00"),
    ]
    assert list(key_rows(empty, by_load=True)) == []


def replace_rows(tick: TickDistribution, rows: list[int]) -> TickDistribution:
    changed = {"tuples": sum(rows), "rows": sum(rows), "tuples_by_worker": rows, "rows_by_worker": rows, "top_keys": []}
    return TickDistribution(**{**{name: getattr(tick, name) for name in tick.__struct_fields__}, **changed})
