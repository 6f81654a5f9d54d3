"""Estimated sizes of the topics of pipelines of every kind, and what retention and compaction keep of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from skewless import topology
from skewless.cli.commands import topics as commands
from skewless.cli.main import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import desired_topics
from skewless.errors import ConfigurationError
from skewless.in_memory import InMemoryPipeline
from skewless.operations.topic_sizes import FRAME_BYTES, SEGMENT_BYTES, Load, TopicSize, topic_sizes
from skewless.stages.observer.run_statistics import RunStatistics
from skewless.wire.record import OutputRecord

LOAD = Load(records_per_s=400, record_bytes=100, keys=500, key_bytes=12)
SPLITTER: dict[str, Any] = {"format": "json", "key": {"field": "k"}, "value": {"field": "v"}}
JOIN: dict[str, Any] = {
    **{side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")},
    "apart_s": 10,
    "repartition": "always",
}

ENRICH: dict[str, Any] = {"topic": "mine", "tables": [{"topic": "pages", "fields": {"country": "place.country"}}]}


def settings_of(**parts: Any) -> PipelineSettings:
    sections: dict[str, Any] = {
        "name": "p",
        "source": {"topic": "mine"},
        "splitter": SPLITTER,
        "worker_input": {"max_workers": 8},
        "topics": {"aggregator_partitions": 2},
    }
    return PipelineSettings.model_validate(sections | parts)


def sizes_of(settings: PipelineSettings, load: Load = LOAD) -> dict[str, TopicSize]:
    return {size.name: size for size in topic_sizes(settings, desired_topics(settings, 4, 4), load)}


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"join": JOIN},
        {
            "join": JOIN | {"repartition": "never"},
            "source": {"topic": "p.joined"},
            "event_time": {"allowed_lateness_s": 20},
        },
        {"join": JOIN, "source": None},
        {"splitter": SPLITTER | {"local": {"mode": "buffer"}}},
        {"splitter": SPLITTER | {"local": {"mode": "windows", "window_s": 5}}},
        {"splitter": SPLITTER | {"key": {"fields": [{"field": "a"}, {"field": "b"}]}}},
        {"worker_input": {"max_workers": 8, "encoding": "record"}},
        {"aggregator": {"aggregates": ["count", "distinct", "stddev"], "emit": "final"}},
        {"aggregator": {"window": {"size_s": 60, "every_s": 15}}},
        {"aggregator": {"top": {"n": 10, "by": "count"}}},
        {"aggregator": {"top": {"n": 10, "by": "count"}, "emit": "final"}},
        {"enrich": ENRICH, "source": {"topic": "p.enriched"}},
        {"source": {"topics": ["one", "two"]}, "topics": {"tuples_partitions": 4}},
        {"replicas": {"router": 3, "worker": 2, "aggregator": 2}},
    ],
    ids=str,
)
def test_topic_sizes_of_any_pipeline_has_all_topics(parts: dict[str, Any]) -> None:
    settings = settings_of(**parts)
    sizes = sizes_of(settings)
    assert list(sizes) == [topic.name for topic in topology.needed_topics(settings)]
    unknown = {name for name, size in sizes.items() if size.bytes_per_s is None}
    assert unknown <= {"late", "join-late", "hot-keys", "dead-letters", "replays"}
    assert [name for name, size in sizes.items() if size.bytes_per_s is not None and size.bytes_per_s <= 0] == []


def test_topic_sizes_of_enriched_records_are_those_that_the_enricher_writes() -> None:
    settings = settings_of(enrich=ENRICH, source={"topic": "p.enriched"})
    key, value = b"k" * LOAD.key_bytes, b'{"k":"%b","v":1}' % (b"x" * (LOAD.record_bytes - 14))
    records = [
        OutputRecord("pages", b'{"place":{"country":"twelve chars"}}', key, partition=0, timestamp=1),
        OutputRecord("mine", value, key, partition=0, timestamp=1),
    ]
    (enriched,) = InMemoryPipeline(settings).process(records, now=1)["enriched"]
    assert list(enriched.headers) == [("country", b"twelve chars")]
    assert len(value) == LOAD.record_bytes
    record_bytes = FRAME_BYTES + len(key) + len(value) + 1 + len("country") + len("twelve chars")
    assert sizes_of(settings)["enriched"].bytes_per_s == record_bytes * LOAD.records_per_s


def test_topic_sizes_of_ranks_are_those_of_one_emission_of_each_window() -> None:
    top = {"top": {"n": 10, "by": "count"}}
    final = sizes_of(settings_of(aggregator={**top, "emit": "final", "window_s": 60}))
    often = sizes_of(settings_of(aggregator={**top, "emit_interval_s": 6, "window_s": 60}))
    seldom = sizes_of(settings_of(aggregator={**top, "emit_interval_s": 60, "window_s": 60}))
    for topic in ("top-candidates", "ranker-changelog", "top"):
        assert often[topic].bytes_per_s == pytest.approx(10 * (final[topic].bytes_per_s or 0))
        assert seldom[topic].bytes_per_s == pytest.approx(final[topic].bytes_per_s)
    results = 10 / 60  # per second
    assert 100 * results < (final["top"].bytes_per_s or 0) < 400 * results


def test_topic_sizes_kept_bytes_follow_retention_and_segments() -> None:
    day, days = (
        sizes_of(settings_of(topics={"aggregator_partitions": 2, "internal_retention_s": count * 86_400}))["tuples"]
        for count in (1, 100)
    )
    rate = day.bytes_per_s or 0
    assert days.bytes_per_s == rate
    assert day.kept_bytes == pytest.approx(rate * 86_400 + min(4 * SEGMENT_BYTES, rate * 7 * 86_400))
    assert (days.kept_bytes or 0) - (day.kept_bytes or 0) == pytest.approx(99 * 86_400 * rate)


@pytest.mark.parametrize(
    ("topic", "options", "kept_bytes"),
    [
        ("tuples", {"retention.ms": "-1"}, None),
        ("tuples", {"retention.ms": "-1", "retention.bytes": "1000", "segment.bytes": "500"}, 4 * 1500),
        ("aggregates", {"min.cleanable.dirty.ratio": "1.0"}, None),
    ],
)
def test_topic_sizes_kept_bytes_follow_the_options_of_the_user(
    topic: str, options: dict[str, str], kept_bytes: float | None
) -> None:
    topics = {"aggregator_partitions": 2, "options": {topic: options}}
    assert sizes_of(settings_of(topics=topics))[topic].kept_bytes == kept_bytes


@pytest.mark.parametrize("option", ["retention.ms", "segment.bytes"])
def test_topic_sizes_option_that_is_no_number_is_refused(option: str) -> None:
    settings = settings_of(topics={"aggregator_partitions": 2, "options": {"tuples": {option: "7d"}}})
    with pytest.raises(ConfigurationError, match=f"topics.options.tuples.{option}: '7d' is not a number"):
        sizes_of(settings)


def test_topic_sizes_results_grow_without_a_retention_only() -> None:
    assert sizes_of(settings_of())["aggregates"].kept_bytes is None
    week, weeks = (
        sizes_of(settings_of(topics={"aggregator_partitions": 2, "results_retention_s": count * 604_800}))["aggregates"]
        for count in (1, 10)
    )
    assert 0 < (week.kept_bytes or 0) < (weeks.kept_bytes or 0)


def test_topic_sizes_more_keys_and_tuples_are_more_bytes() -> None:
    few, keys, tuples = (
        sizes_of(settings_of(), load) for load in (LOAD, Load(400, 100, 50_000, 12), Load(4_000, 100, 500, 12))
    )
    for other in (keys, tuples):
        for topic in ("tuples", "partials", "aggregator-changelog", "aggregates"):
            assert (other[topic].bytes_per_s or 0) > (few[topic].bytes_per_s or 0), topic


def test_topic_sizes_options_of_the_command_are_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Load] = []
    monkeypatch.setattr(commands, "_print_plan", lambda _settings, load: loads.append(load))
    file = tmp_path / "pipeline.yaml"
    file.write_text("{name: p, source: {topic: mine}}")
    options = "--rate 400 --record-bytes 100 --keys 500 --key-bytes 12"
    result = CliRunner().invoke(main, ["topics", "apply", "-f", str(file), "--dry-run", *options.split()])
    assert (result.exit_code, loads) == (0, [LOAD]), result.output


@pytest.mark.parametrize("tick_s", [60, 3_600])
def test_topic_sizes_changelog_of_the_observer_is_a_small_part_of_partials(tick_s: float) -> None:
    sizes = sizes_of(settings_of(observer={"tick_s": tick_s}), Load(4_000, 100, 50_000, 12))
    assert 0 < (sizes["observer-changelog"].bytes_per_s or 0) < 0.15 * (sizes["partials"].bytes_per_s or 0)


@pytest.mark.parametrize("tick_s", [1, 60])
def test_topic_sizes_changelog_of_the_observer_has_the_statistics_of_all_keys_per_tick(tick_s: float) -> None:
    keys = pa.chunked_array([np.arange(20_000).astype(str)], pa.string())
    run = RunStatistics()
    run.add(keys, keys, np.zeros(8, np.int64), np.zeros(8, np.int64), 0)
    settings = settings_of(observer={"tick_s": tick_s}, event_time={"allowed_lateness_s": 0})
    estimated = sizes_of(settings, Load(100, 100, 20_000, 12))["observer-changelog"].bytes_per_s or 0
    assert len(run.save()) < estimated * tick_s < 1.5 * len(run.save())


@pytest.mark.parametrize("rate", [0.01, 5_000_000])
def test_topic_sizes_of_extreme_rates_are_finite(rate: float) -> None:
    sizes = sizes_of(settings_of(), Load(rate, 100, 500, 12))
    assert 0 < (sizes["tuples"].bytes_per_s or 0) < 1e9
