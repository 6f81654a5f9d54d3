"""A pipeline in memory gives the results of a plain loop, for any source, join, number of processes and division."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.in_memory import InMemoryPipeline
from skewless.wire.record import OutputRecord

MINUTE_MS = 60_000
START_MS = 1_767_225_600_000 // MINUTE_MS * MINUTE_MS
NOW_MS = START_MS + 10 * MINUTE_MS
SPLITTER = {"format": "json", "key": {"field": "key"}, "time": {"field": "time"}}
JOIN: dict[str, Any] = {
    side: {"topic": side, "id": {"field": "id"}, "time": {"field": "time"}} for side in ("left", "right")
} | {"apart_s": 5}


def settings_of(**parts: Any) -> PipelineSettings:
    sections: dict[str, Any] = {
        "name": "p",
        "source": {"topic": "events"},
        "splitter": SPLITTER,
        "worker_input": {"max_workers": 4},
        "router": {"workers": 3},
        "aggregator": {"window_s": 60},
    }
    return PipelineSettings.model_validate(sections | parts)


def record(topic: str, partition: int, second: int, key: str = "a") -> OutputRecord:
    value = json.dumps({"key": key, "id": key, "time": START_MS + second * 1000}).encode()
    return OutputRecord(topic, value, key.encode(), partition=partition, timestamp=START_MS)


def counts_of(results: Sequence[OutputRecord]) -> dict[tuple[int, str], int]:
    """Return the last count of each minute and key."""
    rows = [json.loads(result.value or b"") for result in results]
    return {((row["window_start"] - START_MS) // MINUTE_MS, row["key"]): row["count"] for row in rows}


EVENTS = [("one" if number % 3 else "two", number % 2, number, f"key{number % 7}") for number in range(300)]
"""Topic, partition, second and key."""
COUNTS = Counter((second // 60, key) for _, _, second, key in EVENTS)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({}, "events"),
        ({"replicas": {"splitter": 3, "router": 2, "worker": 2, "aggregator": 2}}, "events"),
        ({"source": {"topics": ["one", "two"]}, "topics": {"tuples_partitions": 1}}, None),
        ({"source": {"topics": {"match": "one|two"}}}, None),
    ],
    ids=["one topic", "several processes", "several topics", "pattern"],
)
@pytest.mark.parametrize("portion", [300, 50])
def test_in_memory_pipeline_of_any_source_gives_the_counts_of_a_plain_loop(
    parts: dict[str, Any], name: str | None, portion: int
) -> None:
    records = [record(name or topic, partition, second, key) for topic, partition, second, key in EVENTS]
    pipeline = InMemoryPipeline(settings_of(**parts), {name: 2} if name else {"one": 2, "two": 2})
    results: list[OutputRecord] = []
    for first in range(0, len(records), portion):
        end = first + portion == len(records)
        results += pipeline.process(records[first : first + portion], NOW_MS, end=end)["aggregates"]
    assert counts_of(results) == COUNTS


@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize("portion", [300, 50])
def test_in_memory_pipeline_ranks_the_keys_as_a_plain_loop_does(emit: str, portion: int) -> None:
    aggregator = {"window_s": 60, "emit": emit, "top": {"n": 3, "by": "count"}}
    pipeline = InMemoryPipeline(settings_of(aggregator=aggregator, replicas={"aggregator": 2}), {"events": 2})
    records = [record("events", partition, second, key) for _, partition, second, key in EVENTS]
    found: dict[tuple[int, int], str] = {}
    for first in range(0, len(records), portion):
        end = first + portion == len(records)
        for output in pipeline.process(records[first : first + portion], NOW_MS, end=end)["top"]:
            row = json.loads(output.value or b"")
            found[(row["window_start"] - START_MS) // MINUTE_MS, row["rank"]] = row["key"]
    minutes = {minute for minute, _ in COUNTS}
    ranked = {
        minute: sorted((-count, key) for (of, key), count in COUNTS.items() if of == minute) for minute in minutes
    }
    assert found == {(minute, rank): ranked[minute][rank - 1][1] for minute in minutes for rank in (1, 2, 3)}


def test_in_memory_pipeline_late_and_invalid_records_have_their_topics_and_offsets() -> None:
    pipeline = InMemoryPipeline(settings_of())
    first = pipeline.process([record("events", 0, 200)], NOW_MS)
    written = pipeline.process([record("events", 0, 1), OutputRecord("events", b"?")], NOW_MS, end=True)
    (late,) = written["late"]
    assert json.loads(late.value or b"")["offset"] == 1
    (invalid,) = written["dead-letters"]
    assert (invalid.value, dict(invalid.headers)["__skewless.errors.offset"]) == (b"?", b"2")
    assert counts_of(first["aggregates"] + written["aggregates"]) == {(3, "a"): 1}
    assert json.loads(written["distribution"][-1].value or b"")["run"]["tuples"] == 1


PAIRED = [record("left", 0, 1), record("left", 1, 2, "b"), record("right", 0, 3)]


def test_in_memory_pipeline_aggregates_the_pairs_of_its_own_join() -> None:
    parts: dict[str, Any] = {
        "join": JOIN,
        "source": {"topic": "p.joined"},
        "splitter": {"format": "json", "key": {"field": "id"}, "time": {"field": "left_time"}},
        "event_time": {"allowed_lateness_s": 600},
    }
    written = InMemoryPipeline(settings_of(**parts), {"left": 2}).process(PAIRED, NOW_MS, end=True)
    assert [json.loads(row.value or b"")["id"] for row in written["unmatched-left"]] == ["b"]
    assert counts_of(written["aggregates"]) == {(0, "a"): 1}


def test_in_memory_pipeline_that_only_joins_writes_pairs_of_repartitioned_records() -> None:
    settings = settings_of(join=JOIN | {"repartition": "always"}, source=None)
    written = InMemoryPipeline(settings, {"left": 2}).process(PAIRED, NOW_MS, end=True)
    assert [pair.key for pair in written["joined"]] == [b"a"]
    assert [row.key for row in written["unmatched-left"]] == [b"b"]


def test_in_memory_pipeline_refuses_records_that_no_stage_reads() -> None:
    pipeline = InMemoryPipeline(settings_of(), {"events": 2})
    for topic, partition in (("event", 0), ("events", 2)):
        with pytest.raises(ConfigurationError, match=f"no stage reads topic {topic} partition {partition}"):
            pipeline.process([record(topic, partition, 0)], NOW_MS)


def test_in_memory_pipeline_pattern_without_topics_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="matches no topic"):
        InMemoryPipeline(settings_of(source={"topics": {"match": "none"}}), {"events": 2})
