"""Checks of a stage before it starts: results of an earlier start, and the changelog of its state."""

from __future__ import annotations

from typing import Any

import pytest

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.wire.topic_partition import TopicPartition


def start(stage: str, **settings: Any) -> StageStart:
    document = {"name": "p", "source": {"topic": "e"}} | settings
    return StageStart(topology.stage(stage), PipelineSettings.model_validate(document), {"e": 4})


@pytest.mark.parametrize(
    "settings",
    [{"topics": {"tuples_partitions": 8}}, {"source": {"topics": ["e", "f"]}}],
    ids=["more partitions than the source", "several topics"],
)
def test_prior_output_in_partitions_that_others_write_shows_no_lost_offset(settings: dict[str, Any]) -> None:
    """Reports of partitions that the source may get are deleted by retention, as results are."""
    found = start("splitter", **settings).prior_output()
    assert found is not None
    assert found.of_partition(TopicPartition("e", 4)) is None


def test_changelog_is_checked_only_of_stages_whose_results_need_it() -> None:
    with_changelog = [stage.name for stage in topology.STAGES if stage.changelog is not None]
    settings = {"aggregator": {"top": {"n": 1, "by": "count"}, "aggregates": ["count"]}}
    checked = {name: start(name, **settings).changelog_of_results() for name in with_changelog}
    assert checked == {
        "join": "p.join-changelog",
        "router": None,
        "aggregator": "p.aggregator-changelog",
        "ranker": "p.ranker-changelog",
        "observer": None,
    }
