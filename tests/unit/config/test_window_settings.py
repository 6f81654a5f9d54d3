"""Settings of windows: which windows they mean, and all that is wrong with them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from skewless.algorithms.windowing.assigner import CalendarWindows, HoppingWindows, tumbling
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.config.loader import dump, load
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError

BASE: dict[str, Any] = {"name": "p", "source": {"topic": "t"}}
DAY_MS, WEEK_MS, MONDAY_MS = 86_400_000, 604_800_000, 345_600_000


def settings(window: dict[str, Any] | None = None, **parts: Any) -> PipelineSettings:
    aggregator = {} if window is None else {"aggregator": {"window": window}}
    return PipelineSettings.model_validate(BASE | aggregator | parts)


def problems(folder: Path, **parts: Any) -> list[str]:
    """Load a file and return the problems without its name."""
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(BASE | parts))
    with pytest.raises(ConfigurationError) as caught:
        load(file, {})
    return [problem.removeprefix(f"{file}: ") for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("window", "meant"),
    [
        ({"size_s": 300}, tumbling(300_000)),
        ({"size_s": 300, "every_s": 60}, HoppingWindows(300_000, 60_000)),
        ({"size_s": 25.92, "every_s": 0.018}, HoppingWindows(25_920, 18)),
        ({"size_s": 3600, "offset_s": 1200}, HoppingWindows(3_600_000, 3_600_000, 1_200_000)),
        ({"size_s": 604_800, "start": "monday"}, HoppingWindows(WEEK_MS, WEEK_MS, MONDAY_MS)),
        ({"size_s": 604_800, "start": "thursday"}, tumbling(WEEK_MS)),
        (
            {"size_s": 1_209_600, "every_s": 604_800, "start": "monday", "offset_s": 18_000},
            HoppingWindows(2 * WEEK_MS, WEEK_MS, MONDAY_MS + 18_000_000),
        ),
    ],
)
def test_window_settings_of_seconds_mean_hopping_windows(window: dict[str, Any], meant: HoppingWindows) -> None:
    assert settings(window).aggregator.windows == meant


@pytest.mark.parametrize(
    ("window", "time", "bounds"),
    [
        ({"size": "day"}, 0, (0, DAY_MS)),
        ({"size": "day", "offset_s": 18_000}, 0, (-68_400_000, 18_000_000)),
        ({"size": "week"}, MONDAY_MS, (MONDAY_MS, MONDAY_MS + WEEK_MS)),
        ({"size": "week", "start": "friday"}, 0, (DAY_MS - WEEK_MS, DAY_MS)),
        ({"size": "day", "zone": "Europe/Berlin"}, 1_459_036_800_000, (1_459_033_200_000, 1_459_116_000_000)),
    ],
)
def test_window_settings_of_a_calendar_mean_calendar_windows(
    window: dict[str, Any], time: int, bounds: tuple[int, int]
) -> None:
    windows = settings(window).aggregator.windows
    assert isinstance(windows, CalendarWindows)
    (start,) = windows.slices(np.array([time])).tolist()
    assert (start, windows.end(start)) == bounds


def test_window_settings_window_s_is_short_for_size_s() -> None:
    short = PipelineSettings.model_validate(BASE | {"aggregator": {"window_s": 300}}).aggregator
    assert (short.windows, short.window_ms) == (tumbling(300_000), 300_000)
    assert short.window_schema == settings({"size_s": 300}).aggregator.window_schema == 300_000


@pytest.mark.parametrize("aggregator", [{}, {"window_s": 30}, {"window": {"size_s": 300, "every_s": 60}}], ids=str)
def test_window_settings_that_are_dumped_can_be_loaded(aggregator: dict[str, Any], tmp_path: Path) -> None:
    given = PipelineSettings.model_validate(BASE | {"aggregator": aggregator})
    file = tmp_path / "dumped.yaml"
    file.write_text(dump(given))
    assert load(file, {}) == given


def test_window_settings_from_the_environment_conflict_with_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(BASE | {"aggregator": {"window": {"size_s": 300}}}))
    with pytest.raises(ConfigurationError, match="remove window_s or window"):
        load(file, {"SKEWLESS__AGGREGATOR__WINDOW_S": "60"})
    assert load(file, {"SKEWLESS__AGGREGATOR__WINDOW__SIZE_S": "60"}).aggregator.windows == tumbling(60_000)


@pytest.mark.parametrize(
    ("aggregator", "expected"),
    [
        (
            {"window_s": 300, "window": {"size_s": 300}},
            ["aggregator.window_s: has the same meaning as window.size_s: remove window_s or window"],
        ),
        ({"window_s": None}, ["aggregator.window_s: is required, or window"]),
        ({"window": {}}, ["aggregator.window.size_s: is required, or size with day or week"]),
        (
            {"window": {"size_s": 300, "every_s": 600, "offset_s": 700, "zone": "UTC", "start": "monday"}},
            [
                "aggregator.window.zone: needs size day or week instead of size_s, because the length of a day varies",
                "aggregator.window.every_s: must not be more than size_s, because some tuples would be in no window",
                "aggregator.window.offset_s: must be less than 600, because a window begins after this time again",
                "aggregator.window.start: needs size week, or windows that begin every n weeks (604800 seconds)",
            ],
        ),
        (
            {"window": {"size": "day", "every_s": 60, "offset_s": 86_400, "start": "monday", "zone": "Europe/Berln"}},
            [
                "aggregator.window.every_s: has no effect on size day: remove one of them",
                "aggregator.window.offset_s: must be less than a day (86400)",
                "aggregator.window.start: needs size week",
                "aggregator.window.zone: unknown time zone, did you mean Europe/Berlin?",
            ],
        ),
        (
            {"window": {"size_s": 86_400, "every_s": 59}},
            ["aggregator.window.every_s: must be at least 60: a tuple can be in at most 1,440 windows"],
        ),
        ({"window": {"size": "month"}}, ["aggregator.window.size: should be 'day' or 'week'"]),
        (
            {"window": {"size": "day", "zone": "../zones"}},
            ["aggregator.window.zone: unknown time zone: use a name such as Europe/Berlin"],
        ),
        (
            {"window": {"session": {"gap_s": 60}, "size_s": 60, "every_s": 60, "size": "day", "zone": "UTC"}},
            [
                f"aggregator.window.{name}: has no effect on session: remove one of them"
                for name in ("every_s", "size", "size_s", "zone")
            ],
        ),
        (
            {"window_s": 60, "window": {"session": {}}},
            ["aggregator.window_s: has the same meaning as window.size_s: remove window_s or window"],
        ),
        (
            {"window": {"session": {"gap_s": 60, "max_s": 59}}},
            [
                "aggregator.window.session.max_s: must not be less than gap_s, because no session would end by its gap",
            ],
        ),
        (
            {"window": {"session": {"gap_s": 0, "max_s": -1}}},
            [
                "aggregator.window.session.gap_s: should be greater than or equal to 0.001",
                "aggregator.window.session.max_s: should be greater than or equal to 0.001",
            ],
        ),
        (
            {
                "window": {"session": {}},
                "top": {"n": 1, "by": "count"},
                "emit_interval_s": 5,
                "having": {"count": {"above": 1}},
            },
            [
                "aggregator.top: ranks the keys of a window, and sessions differ by key: remove it, or window.session",
                "aggregator.emit_interval_s: is not possible with window.session: remove one of them",
                (
                    "aggregator.having: needs emit: final, because a result that is updated may match at one time and "
                    "not at another"
                ),
            ],
        ),
    ],
)
def test_window_settings_that_contradict_are_refused_all_at_once(
    aggregator: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    assert problems(tmp_path, aggregator=aggregator) == expected


def test_window_settings_session_has_panes_that_are_not_longer_than_its_gap(tmp_path: Path) -> None:
    made = settings({"session": {"gap_s": 7, "max_s": 3600}})
    assert made.aggregator.windows == SessionWindows(7_000, 3_600_000)
    assert made.pane_ms == 6_000
    assert settings({"session": {}}).pane_ms == 15_000
    section = {"aggregator": {"window": {"session": {"gap_s": 7, "max_s": 3600}}}}
    (problem,) = problems(tmp_path, worker={"pane_s": 10}, **section)
    assert problem == (
        "worker.pane_s: a pane of 10 seconds is longer than aggregator.window.session.gap_s: "
        "use a shorter pane, or a shorter splitter.local.window_s if a local window is longer"
    )


def test_window_settings_session_in_a_table_of_partials_is_refused(tmp_path: Path) -> None:
    sink = {"url": "sqlite:///results.db", "mode": "merge"}
    assert problems(tmp_path, aggregator={"window": {"session": {}}}, sink=sink) == [
        "sink.mode: merge cannot merge sessions (aggregator.window.session): use mode: replace"
    ]


@pytest.mark.parametrize("name", ["size_s", "every_s", "offset_s"])
@pytest.mark.parametrize("value", [0.0005, 1.0005, -15])
def test_window_settings_span_that_is_not_whole_milliseconds_is_refused(
    name: str, value: float, tmp_path: Path
) -> None:
    (problem,) = problems(tmp_path, aggregator={"window": {"size_s": 3600} | {name: value}})
    assert problem.startswith(f"aggregator.window.{name}: ")


@pytest.mark.parametrize(
    ("aggregator", "pane_s", "grid_s", "fitting"),
    [
        ({"window_s": 20}, 15, "20", "10 or 20"),
        ({"window": {"size_s": 300, "every_s": 50}}, 15, "50", "10"),
        ({"window": {"size_s": 300, "offset_s": 50}}, 60, "50", "10"),
        ({"window": {"size": "day", "zone": "Asia/Kathmandu"}}, 30.5, "900", "30 or 60"),
        ({"window": {"size": "day", "zone": "Africa/Monrovia"}}, 60, "30", "30"),
    ],
)
def test_window_settings_pane_that_does_not_fit_is_refused_with_those_that_fit(
    aggregator: dict[str, Any], pane_s: float, grid_s: str, fitting: str, tmp_path: Path
) -> None:
    problem, *_ = problems(tmp_path, aggregator=aggregator, worker={"pane_s": pane_s})
    assert problem.startswith("worker.pane_s: ")
    assert problem.endswith(f"begin and end at multiples of {grid_s} seconds: use {fitting}")


def test_window_settings_default_pane_fits_days_in_zones_with_quarters_of_an_hour() -> None:
    for zone in ("Asia/Kathmandu", "Pacific/Chatham", "Australia/Lord_Howe", "Africa/Monrovia", "Asia/Kolkata"):
        settings({"size": "day", "zone": zone})


@pytest.mark.parametrize(
    ("aggregator", "more", "pane_ms"),
    [
        ({}, {}, 15_000),
        ({"window_s": 10}, {}, 10_000),
        ({"window_s": 7}, {}, 1_000),
        ({"window_s": 0.25}, {}, 250),
        ({"window_s": 45}, {}, 15_000),
        ({"window_s": 45}, {"observer": {"tick_s": 40}}, 5_000),
        ({"window": {"size_s": 300, "every_s": 50}}, {}, 10_000),
        ({"window": {"size_s": 86_400, "every_s": 3_600, "offset_s": 1}}, {}, 1_000),
        ({"window_s": 10}, {"worker": {"pane_s": 5}}, 5_000),
        ({}, {"splitter": {"local": {"mode": "windows", "window_s": 5}}}, 15_000),
        ({}, {"splitter": {"local": {"mode": "windows", "window_s": 4}}}, 12_000),
        ({}, {"splitter": {"local": {"mode": "windows", "window_s": 30}}}, 30_000),
        (
            {"window": {"size": "day", "zone": "Europe/Berlin"}},
            {"splitter": {"time": {"earliest": "1890-01-01"}}},
            4_000,
        ),
    ],
)
def test_window_settings_pane_that_is_not_set_follows_from_the_windows(
    aggregator: dict[str, Any], more: dict[str, Any], pane_ms: int
) -> None:
    splitter = {"format": "text", **more.get("splitter", {})}
    given = PipelineSettings.model_validate(BASE | {"aggregator": aggregator} | more | {"splitter": splitter})
    assert given.pane_ms == pane_ms
    assert given.worker.pane_s is None or "worker" in more


def test_window_settings_times_before_standard_time_need_smaller_panes(tmp_path: Path) -> None:
    parts = {"splitter": {"format": "text", "time": {"earliest": "1890-01-01"}}, "worker": {"pane_s": 15}}
    (problem,) = problems(tmp_path, aggregator={"window": {"size": "day", "zone": "Europe/Berlin"}}, **parts)
    assert problem.endswith("multiples of 8 seconds: use 4")


def test_window_settings_interval_of_updates_needs_updates(tmp_path: Path) -> None:
    assert problems(tmp_path, aggregator={"emit": "final", "emit_interval_s": 5}) == [
        "aggregator.emit_interval_s: has no effect on emit final: remove one of them"
    ]
    given = PipelineSettings.model_validate(BASE | {"aggregator": {"emit_interval_s": 0.5}})
    assert given.aggregator.emit_interval_ms == 500
