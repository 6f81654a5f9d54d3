"""Decisions of the demo before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from skewless.config import loader
from skewless.errors import ConfigurationError
from skewless.lab.demo.demo_plan import GROUPINGS, MAX_WINDOWS, make_plan, window_for


@pytest.mark.parametrize("span_s", [0, 1, 29, 31, 1463, 3600, 12 * 3600, 456 * 86_400, 20 * 365 * 86_400])
def test_demo_plan_of_any_time_span_has_a_suitable_window_length(span_s: int) -> None:
    window_s = window_for(span_s * 1000)
    assert span_s / window_s <= MAX_WINDOWS
    assert window_s == 1 or span_s / window_s > 2
    assert make_plan((), (), 10).pipeline("key", "127.0.0.1:9", window_s).aggregator.window_s == window_s


def test_demo_plan_without_files_uses_the_words_dataset_and_the_default_groupings() -> None:
    plan = make_plan((), (), 10)
    assert (plan.dataset, plan.groupings) == ("words", GROUPINGS)


def test_demo_plan_pipelines_have_distinct_names_and_loadable_files(tmp_path: Path) -> None:
    plan = make_plan((), (), 10)
    pipelines = [plan.pipeline(grouping, "127.0.0.1:9", 60) for grouping in plan.groupings]
    assert [pipeline.name for pipeline in pipelines] == ["words-key", "words-partial-key", "words-even"]
    assert {pipeline.aggregated.topic for pipeline in pipelines} == {"words"}
    file = tmp_path / "pipeline.yaml"
    file.write_text(loader.dump(pipelines[0]))
    assert loader.load(file, {}) == pipelines[0]


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
