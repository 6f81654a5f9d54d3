"""Topics that a join cannot read are refused at the start, with what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from skewless import topology
from skewless.algorithms.watermark import MAX_SOURCE_PARTITIONS
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.errors import BrokerError, CheckFailedError, SkewlessError
from skewless.kafka.admin.client import TopicDescription

JOIN: dict[str, Any] = {side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")} | {"apart_s": 1}
SETTINGS: Any = PipelineSettings.model_validate({"name": "p", "join": JOIN, "kafka": {"bootstrap_servers": "b:1"}})


class Admin:
    """Answers with the partition counts of a test."""

    counts: dict[str, int]
    options: Mapping[str, str]

    def __init__(self, _kafka: object) -> None:
        pass

    def partition_counts(self, needed: Collection[str] = ()) -> dict[str, int]:
        return self.counts

    def check_visible(self, _topics: object) -> None:
        pass

    def describe(self, topics: Iterable[str], *, wait_for_all: bool = False) -> dict[str, TopicDescription]:
        return {
            topic: TopicDescription(self.counts[topic], 1, self.options) for topic in topics if topic in self.counts
        }


KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}


def with_topics(monkeypatch: pytest.MonkeyPatch, options: Any = MappingProxyType(KEPT), **counts: int) -> None:
    monkeypatch.setattr(topic_plan, "Admin", type("Found", (Admin,), {"counts": counts, "options": options}))


def stage_partitions(settings: PipelineSettings, stage: str) -> dict[str, int]:
    counts = topic_plan._partition_counts(settings)
    topic_plan.check_stage(settings, topology.stage(stage), counts)
    inputs = StageStart(topology.stage(stage), settings, counts).inputs()
    return {source.topic: source.partitions or 0 for source in inputs}


@pytest.mark.parametrize("side", ["left", "right"])
def test_join_topic_that_does_not_exist_is_named_with_its_setting(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_topics(monkeypatch, **{other: 2 for other in ("left", "right") if other != side})
    for refused in (lambda: stage_partitions(SETTINGS, "join"), lambda: topic_plan.check(SETTINGS)):
        with pytest.raises(BrokerError, match=rf"topic {side} does not exist at b:1.*or correct join\.{side}\.topic"):
            refused()


@pytest.mark.parametrize(("others", "partitions"), [({"right": 5, "p.joined": 3}, 5), ({"p.joined": 3}, 8)])
def test_join_topic_that_does_not_exist_is_created_with_the_partitions_of_the_other_side(
    others: dict[str, int], partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_topics(monkeypatch, **others)
    with pytest.raises(BrokerError, match=rf"--create --topic left --partitions {partitions}`"):
        topic_plan.check(SETTINGS)


def test_join_topics_with_different_partition_counts_are_refused_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    with_topics(monkeypatch, left=2, right=3)
    for refused in (lambda: stage_partitions(SETTINGS, "join"), lambda: topic_plan.check(SETTINGS)):
        with pytest.raises(BrokerError, match="topic left has 2 partitions and topic right has 3"):
            refused()


@pytest.mark.parametrize("counts", [{}, {"p.dead-letters": 3}])
def test_join_stage_partitions_are_those_of_the_joined_topics(
    counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_topics(monkeypatch, left=3, right=3, **counts)
    assert stage_partitions(SETTINGS, "join") == {"left": 3, "right": 3}


def test_join_topic_that_has_grown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_topics(monkeypatch, left=3, right=3, **{"p.joined": 2})
    with pytest.raises(SkewlessError, match=r"p\.joined has 2 partitions.*left 3"):
        stage_partitions(SETTINGS, "join")


def test_join_topics_check_without_own_topics_lists_the_missing_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    with_topics(monkeypatch, left=2, right=2)
    with pytest.raises(CheckFailedError, match=r"p\.joined: is missing; `skewless topics apply` creates it"):
        topic_plan.check(SETTINGS)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"retention.ms": "1999"}, r"topic left keeps records for 1\.999 s.*set retention\.ms to at least 2000"),
        ({"cleanup.policy": "compact,delete"}, "topic left is compacted"),
    ],
)
def test_join_topic_that_loses_waiting_records_is_refused(
    options: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_topics(monkeypatch, KEPT | options, left=2, right=2)
    for refused in (lambda: stage_partitions(SETTINGS, "join"), lambda: topic_plan.check(SETTINGS)):
        with pytest.raises(BrokerError, match=problem):
            refused()


@pytest.mark.parametrize("retention", ["2000", "-1"])
def test_join_topic_that_keeps_waiting_records_is_accepted(retention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_topics(monkeypatch, KEPT | {"retention.ms": retention}, left=2, right=2)
    assert stage_partitions(SETTINGS, "join") == {"left": 2, "right": 2}


ALWAYS = SETTINGS.model_copy(update={"join": SETTINGS.join.model_copy(update={"repartition": "always"})})


def test_repartitioned_join_topics_have_as_many_partitions_as_the_larger_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_topics(monkeypatch, KEPT | {"retention.ms": "1"}, left=2, right=3)
    for stage, topics in (("left", {"left": 2}), ("right", {"right": 3})):
        assert stage_partitions(ALWAYS, stage) == topics
    specs = topic_plan.desired_topics(ALWAYS, 3, 3)
    assert {spec.partitions for spec in specs if spec.name in {"p.left-records", "p.right-records", "p.joined"}} == {3}
    with_topics(monkeypatch, left=2, right=3, **{"p.left-records": 3, "p.right-records": 3})
    assert stage_partitions(ALWAYS, "join") == {"p.left-records": 3, "p.right-records": 3}


def test_repartitioned_join_topic_that_has_grown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_topics(monkeypatch, left=2, right=4, **{"p.left-records": 3, "p.right-records": 3})
    with pytest.raises(SkewlessError, match=r"p\.left-records has 3 partitions.*right 4"):
        stage_partitions(ALWAYS, "join")


GREW = (
    "p.{}: has 5 partitions, topic {} has 6; count everything again with `skewless reset --to-start`, or start a "
    "pipeline of another name"
)


@pytest.mark.parametrize(
    ("settings", "counts", "largest"),
    [(SETTINGS, {"left": 6, "right": 6}, "left"), (ALWAYS, {"left": 2, "right": 6}, "right")],
    ids=["never", "always"],
)
def test_topics_of_a_join_whose_source_has_grown_name_it_and_the_reset(
    settings: PipelineSettings, counts: dict[str, int], largest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {
        topic.name: settings.topic(topic.name) for topic in topology.needed_topics(settings) if topic.name != "replays"
    }
    with_topics(monkeypatch, **counts, **dict.fromkeys(own.values(), 5))
    with pytest.raises(CheckFailedError) as raised:
        topic_plan.planned(settings)
    lines = str(raised.value).splitlines()
    assert [name for name in own if not any(GREW.format(name, largest) in line for line in lines)] == []


@pytest.mark.parametrize("side", ["left", "right"])
def test_repartitioned_join_topic_with_too_many_partitions_is_refused(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = MAX_SOURCE_PARTITIONS
    for counts, is_allowed in (({"left": 1, "right": 1, side: allowed}, True), ({side: allowed + 1}, False)):
        found = {"left": allowed, "right": allowed} | counts
        with_topics(monkeypatch, **found, **dict.fromkeys(("p.left-records", "p.right-records"), max(found.values())))
        for stage in ("left", "right", "join"):
            if is_allowed:
                stage_partitions(ALWAYS, stage)
                continue
            with pytest.raises(BrokerError, match=f"topic {side} has 3001 partitions, the maximum is 3000"):
                stage_partitions(ALWAYS, stage)
    with pytest.raises(BrokerError, match=f"topic {side} has 3001 partitions"):
        topic_plan.check(ALWAYS)
    assert [problem.split(",")[0] for problem in topic_plan.joined_topics_problems(ALWAYS)] == [
        f"topic {side} has 3001 partitions"
    ]
