"""Settings of several source topics: names, patterns, first offsets, ACLs, and the description of the topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skewless.asyncapi.document import document
from skewless.config import topic_plan
from skewless.config.acls import AclBinding, source_topics
from skewless.config.loader import load
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BrokerError, ConfigurationError
from skewless.kafka.admin.client import Admin
from skewless.topology import stage


def settings(source: dict[str, Any], **parts: Any) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "p", "source": source, **parts})


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("{}", ["source.topic: is required"]),
        ("{topic: a, topics: [b]}", ["source.topics: topic is set as well; remove one of them"]),
        ("{topics: [a, b, a]}", ["source.topics.2: a is listed twice"]),
        ("{topics: []}", ["source.topics: "]),
        ("{topics: [a, 'b c']}", ["source.topics.1: "]),
        ("{topics: ['b c']}", ["source.topics.0: must contain only letters"]),
        ("{topics: [a, .]}", ["source.topics.1: must not be . or .., because Kafka rejects these topic names"]),
        (
            "{topics: [a, p.tuples]}",
            ["source.topics.1: p.tuples is one of the pipeline's own topics, name"],
        ),
        ("{topics: {match: '('}}", ["source.topics.match: is not a regular expression"]),
        ("{topics: {match: 'a{99999999999999999999}'}}", ["source.topics.match: is not a regular expression: the rep"]),
        (f"{{topics: {{match: '{'(' * 5000}'}}}}", ["source.topics.match: is not a regular expression: "]),
        ("{topics: {like: a}}", ["source.topics.match: is required", "source.topics.like: unknown setting"]),
        (
            "{topics: {match: 'p[.].*'}}",
            ["source.topics.match: matches p.aggregates, one of the pipeline's own topics; use a pattern"],
        ),
        (
            "{topics: {match: '__.*'}}",
            ["source.topics.match: matches __consumer_offsets, a topic of Kafka itself; use a pattern that does not"],
        ),
        ("{topics: [a], skip_to: {3: 1}}", ["source.skip_to.3: the name should be topic and partition, for example"]),
        ("{topic: a, skip_to: {a/3: 1}}", ["source.skip_to.a/3: the name should be the number of a partition"]),
        (
            "{topics: [a, b], skip_to: {a/3: 1, c/0: 1}}",
            ["source.skip_to.c/0: topics does not select c; correct the name"],
        ),
        ("{topics: {match: 'a-.*'}, skip_to: {a-b/3: 1, a/0: 1}}", ["source.skip_to.a/0: topics does not select a; "]),
        ("{topic: a, start: 1767225600}", ["source.start: is before 1973-03-03 in ms, so it is probably in s: "]),
        ("{topic: a, start: '1767225600'}", ["source.start: is before 1973-03-03 in ms"]),
        ("{topic: a, start: 1.767225e+09}", ["source.start: is before 1973-03-03 in ms"]),
        ("{topics: [a], start: newest, skip_to: {a/3: -1}}", ["source.start: ", "source.skip_to.a/3: "]),
    ],
)
def test_settings_of_source_topics_that_do_not_fit_are_refused_with_their_path(
    source: str, problems: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"name: p\nsource: {source}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(file, {})
    found = [problem.removeprefix(f"{file}: ") for problem in caught.value.problems]
    assert len(found) == len(problems), found
    for problem, expected in zip(found, problems, strict=True):
        assert problem.startswith(expected)


@pytest.mark.parametrize(
    ("start", "time_ms"), [("0", 0), ("1970-02-01", 2_678_400_000), ("1767225600000", 1_767_225_600_000)]
)
def test_source_start_that_is_not_in_seconds_is_read(start: str, time_ms: int) -> None:
    assert settings({"topic": "a", "start": start}).aggregated.start == time_ms


def test_source_pattern_matches_whole_names_only() -> None:
    source = settings({"topics": {"match": "^clicks-.*$"}}).aggregated
    assert source.select(["clicks-b", "clicks", "my-clicks-c", "clicks-a"]) == ("clicks-a", "clicks-b")


def test_source_skip_to_of_a_topic_has_its_partitions() -> None:
    source = settings({"topics": ["a", "b"], "skip_to": {"a/3": 7, "b/0": 8}}).aggregated
    assert (source.skip_to_of("a"), source.skip_to_of("b")) == ({3: 7}, {0: 8})
    assert settings({"topic": "a", "skip_to": {3: 7}}).aggregated.skip_to_of("a") == {3: 7}


@pytest.mark.parametrize(
    ("match", "name", "prefixed"),
    [
        ("^clicks-.*$", "clicks-", True),
        (r"shop\.clicks-[a-z]+", "shop.clicks-", True),
        ("clicks-?.*", "clicks", True),
        ("clicks|views", "*", False),
        (".*-clicks", "*", False),
    ],
)
def test_acls_of_a_pattern_have_the_characters_with_which_it_begins(match: str, name: str, *, prefixed: bool) -> None:
    (binding,) = source_topics(settings({"topics": {"match": match}}), ("Read",), "its input")
    assert binding == AclBinding("topic", name, ("Read",), ("its input",), prefixed=prefixed)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Topics of the cluster, with their numbers of partitions."""
    topics = {"clicks-a": 2, "clicks-b": 5, "views": 9}
    monkeypatch.setattr(Admin, "__init__", lambda _self, _kafka: None)
    monkeypatch.setattr(Admin, "partition_counts", lambda _self, **_needed: topics)
    monkeypatch.setattr(Admin, "check_visible", lambda _self, _names: None)
    monkeypatch.setattr(Admin, "describe", lambda _self, _names, **_options: {})
    return topics


def specified(pipeline: PipelineSettings) -> int:
    specs, _ = topic_plan._describe(Admin(pipeline.kafka), pipeline)
    (partitions,) = {spec.partitions for spec in specs if spec.name in {"p.tuples", "p.late", "p.dead-letters"}}
    return partitions


def test_topic_plan_tuples_have_as_many_partitions_as_the_largest_source_topic(counts: dict[str, int]) -> None:
    assert specified(settings({"topics": ["clicks-a", "clicks-b"]})) == 5
    assert specified(settings({"topics": {"match": "clicks-.*"}})) == 5
    assert specified(settings({"topics": ["clicks-a"]}, topics={"tuples_partitions": 16})) == 16
    counts["p.tuples"] = 3
    assert specified(settings({"topics": ["clicks-a", "clicks-b"]})) == 3, "it does not grow"


def test_topic_plan_number_of_partitions_names_the_topic_that_has_it_unless_it_is_a_setting(
    counts: dict[str, int],
) -> None:
    def named(**parts: Any) -> dict[str, str | None]:
        pipeline = settings({"topics": ["clicks-a", "clicks-b"]}, **parts)
        specs, _ = topic_plan._describe(Admin(pipeline.kafka), pipeline)
        return {spec.name: spec.partitions_of for spec in specs}

    assert (named()["p.late"], named()["p.worker-input"], named()["p.distribution"]) == ("clicks-b", None, None)
    assert named(topics={"tuples_partitions": 16})["p.late"] is None
    counts["p.tuples"] = 3
    assert named()["p.late"] == "p.tuples"
    counts["users"] = 1
    table = {"topic": "users", "key": {"field": "user"}, "fields": {"country": "country"}}
    enriched = settings({"topic": "p.enriched"}, enrich={"topic": "views", "tables": [table]})
    specs, _ = topic_plan._describe(Admin(enriched.kafka), enriched)
    grown = {(spec.partitions, spec.partitions_of) for spec in specs if spec.name in ("p.enriched", "p.tuples")}
    assert grown == {(9, "views")}


def test_topic_plan_pattern_without_a_topic_is_refused(counts: dict[str, int]) -> None:
    pipeline = settings({"topics": {"match": "nothing-.*"}})
    for refused in (
        lambda: specified(pipeline),
        lambda: topic_plan.check_stage(pipeline, stage("splitter"), counts),
    ):
        with pytest.raises(ConfigurationError, match=r"source\.topics\.match: matches no topic at localhost:9092"):
            refused()


def test_topic_plan_missing_source_topic_is_named_with_its_setting(counts: dict[str, int]) -> None:
    assert counts
    with pytest.raises(BrokerError, match=r"topic gone does not exist .*, or correct source\.topics\.1"):
        specified(settings({"topics": ["clicks-a", "gone"]}))


def test_topic_plan_too_many_source_partitions_are_refused_before_the_stage_starts(counts: dict[str, int]) -> None:
    counts |= {"clicks-b": 2_999, "p.tuples": 1_000}
    with pytest.raises(ConfigurationError, match="the 2 topics have together 3001 partitions, the maximum is 3000"):
        topic_plan.check_stage(settings({"topics": {"match": "clicks-.*"}}), stage("splitter"), counts)


def test_topic_plan_changed_tuples_partitions_are_refused(counts: dict[str, int]) -> None:
    counts |= dict.fromkeys(("p.tuples", "p.late", "p.router-state", "p.dead-letters"), 5)
    changed = settings({"topics": ["clicks-a"]}, topics={"tuples_partitions": 4})
    with pytest.raises(ConfigurationError, match=r"topics\.tuples_partitions: is 4, but topic p\.tuples has 5"):
        topic_plan.check_stage(changed, stage("splitter"), counts)


def test_asyncapi_document_of_several_topics_lists_them_as_values_of_a_parameter() -> None:
    channel = document(settings({"topics": ["a", "b"]}))["channels"]["source"]
    assert (channel["address"], channel["parameters"]["source"]["enum"]) == ("{source}", ["a", "b"])
    parameter = document(settings({"topics": {"match": "a-.*"}}))["channels"]["source"]["parameters"]["source"]
    assert parameter == {"description": "Your own topics: a-.*."}
