"""Decisions of the demo before it starts."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from skewless.config import loader
from skewless.errors import ConfigurationError
from skewless.lab.demo.demo_plan import GROUPINGS, MAX_WINDOWS, make_plan, window_for
from skewless.lab.demo.demo_table import keep


@pytest.mark.parametrize("span_s", [0, 1, 29, 31, 1463, 3600, 12 * 3600, 456 * 86_400, 20 * 365 * 86_400])
def test_demo_plan_of_any_time_span_has_a_suitable_window_length(span_s: int) -> None:
    window_s = window_for(span_s * 1000)
    assert span_s / window_s <= MAX_WINDOWS
    assert window_s == 1 or span_s / window_s > 2
    assert make_plan((), (), 10).pipeline("127.0.0.1:9", window_s).aggregator.window_s == window_s


def test_demo_plan_without_files_uses_the_words_dataset_and_the_default_groupings() -> None:
    plan = make_plan((), (), 10)
    assert (plan.dataset, plan.groupings) == ("words", GROUPINGS)


def test_demo_plan_pipelines_have_distinct_names_and_loadable_files(tmp_path: Path) -> None:
    plan = make_plan((), (), 10)
    live = plan.live_pipelines("127.0.0.1:9")
    assert {grouping: settings.name for grouping, settings in live.items()} == {
        "key": "live-key",
        "partial_key": "live-partial-key",
        "even": "live-even",
    }
    counting = plan.pipeline("127.0.0.1:9", 60)
    assert (counting.name, counting.router.grouping, counting.aggregated.topic) == ("words-even", "even", "words")
    for settings in (*live.values(), counting):
        file = tmp_path / "pipeline.yaml"
        file.write_text(loader.dump(settings))
        assert loader.load(file, {}) == settings


def test_demo_plan_grouping_local_aggregates_in_the_splitter() -> None:
    plan = make_plan((), ("key", "local"), 10)
    by_key, local = plan.live_pipelines("127.0.0.1:9").values()
    found = [settings.splitter.local.mode for settings in (by_key, local, plan.pipeline("127.0.0.1:9", 60))]
    assert found == ["none", "buffer", "buffer"]


@pytest.mark.parametrize(("workers", "rate"), [(4, 400), (10, 1000), (50, 1000)])
def test_demo_plan_live_stream_has_the_rate_of_all_workers_up_to_the_published_one(workers: int, rate: float) -> None:
    plan = make_plan((), ("key",), workers)
    assert plan.stream_rate == rate
    (settings,) = plan.live_pipelines("127.0.0.1:9").values()
    assert 1000 / settings.worker.cost.process_duration_ms == plan.worker_rate == 100


def test_demo_plan_database_without_a_folder_is_in_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = make_plan((), (), 10).pipeline("127.0.0.1:9", 60, Path("counts 1.db"))
    assert settings.sink is not None
    assert settings.sink.url == f"sqlite://{tmp_path}/counts%201.db"


def test_demo_plan_grouping_named_twice_runs_once() -> None:
    assert make_plan((), ("key", "shuffle", "key"), 10).groupings == ("key", "shuffle")


def test_demo_plan_unknown_grouping_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown grouping hash \(known: .*partial_key"):
        make_plan((), ("hash",), 10)


def test_demo_plan_files_of_different_datasets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pages.tsv").write_text("1000\ta\n")
    (tmp_path / "text.txt").write_text("a b\n")
    with pytest.raises(ConfigurationError, match=r"pages.tsv holds pages, .*text.txt holds lines"):
        make_plan((tmp_path / "pages.tsv", tmp_path / "text.txt"), (), 10)


@pytest.mark.parametrize("name", ["shop.db", "shop.db.yaml"])
def test_plan_database_that_is_not_of_an_earlier_demo_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("name: shop\n")
    with pytest.raises(ConfigurationError, match=rf"--database: .*/{name}: exists and is not of an earlier demo"):
        make_plan((), (), 10, database=tmp_path / "shop.db")


def test_plan_database_of_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    stored, database = tmp_path / "stored.db", tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(stored)) as connection:
        connection.execute("CREATE TABLE counts (key TEXT)")
    plan = make_plan((), (), 10, database=database)
    keep(stored, database, plan.pipeline("127.0.0.1:9", 60, database))
    assert make_plan((), (), 10, database=database) == plan
