"""A pipeline over a list of records gives typed results, late tuples and invalid records, without Kafka."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import skewless as sk

START_MS = 1_767_225_600_000
MINUTE_MS = 60_000
CLICKS: dict[str, Any] = {"source": "clicks", "key": "user", "time": "ts"}
SIDES = {side: {"topic": side, "id": {"field": "id"}, "time": {"field": "ts"}} for side in ("left", "right")}


def click(user: str, second: int, **fields: Any) -> dict[str, Any]:
    return {"user": user, "ts": START_MS + second * 1000, **fields}


def test_run_results_have_the_types_of_their_aggregates() -> None:
    pipeline = sk.Pipeline(
        **CLICKS,
        values={"price": {"field": "price", "decimals": 2}, "ms": "ms", "page": {"field": "page", "kind": "text"}},
        aggregates=[sk.count(), sk.sum("price"), sk.mean("ms"), sk.largest("price", n=2), sk.distinct("page")],
    )
    prices = (0.1, 0.2, 9007199254740993)
    records = [click("ada", i, price=price, ms=i, page=f"p{i % 2}") for i, price in enumerate(prices)]
    (result,) = sk.testing.run(pipeline, records).results
    assert (result.key, result.window_start, result.window_end) == ("ada", START_MS, START_MS + MINUTE_MS)
    assert result.sum_price == Decimal("9007199254740993.30")
    assert result.largest_price == [Decimal("9007199254740993.00"), Decimal("0.20")]
    assert (result.count, result.mean_ms, type(result.mean_ms), result.distinct_page) == (3, 1.0, float, 2)
    assert list(result.to_dict()) == ["key", "window_start", "window_end", *result.fields, "revision"]
    assert copy.deepcopy(result) == result
    with pytest.raises(AttributeError, match=r"no field sum_ms .fields: key, window_start, .* count, sum_price"):
        _ = result.sum_ms


def test_run_sessions_merge_and_a_tuple_before_the_watermark_is_late() -> None:
    pipeline = sk.Pipeline(
        **CLICKS,
        window={"session": {"gap_s": 30, "max_s": 120}},
        aggregates=["count"],
        event_time={"allowed_lateness_s": 20},
    )
    seconds = (0, 40, 20, 100, 119, 121, 100)
    outcome = sk.testing.run(pipeline, [click("ada", second) for second in seconds], now=START_MS + 200_000)
    found = [(result.window_start, result.window_end, result.count) for result in outcome.results]
    expected = [(0, 70, 3), (100, 120, 2), (121, 151, 1)]
    assert found == [(START_MS + start * 1000, START_MS + end * 1000, count) for start, end, count in expected]
    assert [late["time"] for late in outcome.late] == [START_MS + 100_000]


def test_run_windows_composite_keys_and_conditions_are_those_of_the_pipeline() -> None:
    pipeline = sk.Pipeline(
        source="clicks",
        key=["user", "page"],
        time="ts",
        aggregates=["count"],
        aggregator={"emit": "final", "having": {"count": {"at_least": 2}}},
    )
    records = [click("ada", second, page="home") for second in (0, 1, 60, 61, 120)]
    found = sk.testing.run(pipeline, records).results
    assert [(result.window_start, result.user, result.page, result.count) for result in found] == [
        (START_MS, "ada", "home", 2),
        (START_MS + MINUTE_MS, "ada", "home", 2),
    ]


def test_run_late_and_invalid_records_are_found_by_their_offsets() -> None:
    pipeline = sk.Pipeline(**CLICKS)
    other = sk.testing.Record(value=click("eve", 1), partition=1, key="k", headers={"h": "1"})
    outcome = sk.testing.run(pipeline, [click("ada", 200), click("ada", 1), "{", other])
    assert [(late["key"], late["offset"], late["watermark"]) for late in outcome.late] == [
        ("ada", 1, START_MS + 190_000)
    ]
    (invalid,) = outcome.invalid
    assert (invalid.topic, invalid.partition, invalid.offset, invalid.value) == ("clicks", 0, 2, b"{")
    assert "JSON" in invalid.reason
    assert [result.key for result in outcome.results] == ["eve", "ada"]


def test_run_record_without_a_timestamp_has_that_of_the_run() -> None:
    pipeline = sk.Pipeline("clicks", window="1h")
    at = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    given = sk.testing.Record(value="x", key="ada", timestamp=at.replace(hour=2))
    outcome = sk.testing.run(pipeline, [sk.testing.Record(value="x", key="ada"), given], now=at)
    assert [result.window_start for result in outcome.results] == [START_MS]
    assert [record.reason for record in outcome.invalid] == ["time too far ahead of the clock"]


def test_run_more_workers_than_a_new_topic_has_partitions_counts_all() -> None:
    """The topic of a pipeline that runs may have more partitions than the default."""
    pipeline = sk.Pipeline("t", key="k", router={"workers": 64})
    outcome = sk.testing.run(pipeline, [{"k": f"{number}"} for number in range(500)])
    assert sum(result.count for result in outcome.results) == 500


def test_run_timestamp_within_a_ms_is_rounded_down() -> None:
    just_before = datetime(2026, 1, 1, 0, 0, 59, 999_600, UTC)
    pipeline = sk.Pipeline("t", key="k")
    (result,) = sk.testing.run(pipeline, [sk.testing.Record(value={"k": "a"}, timestamp=just_before)]).results
    assert result.window_start == 1_767_225_600_000


@pytest.mark.parametrize("time", [1_767_225_600_000.5, 10**30, "soon", -1])
def test_run_time_that_is_none_is_named(time: Any) -> None:
    pipeline = sk.Pipeline("t", key="k")
    with pytest.raises(sk.ConfigurationError, match=r"^now: .* is not a time: give whole ms since the epoch"):
        sk.testing.run(pipeline, [{"k": "a"}], now=time)
    with pytest.raises(sk.ConfigurationError, match=r"^timestamp: .* is not a time"):
        sk.testing.run(pipeline, [sk.testing.Record(value={"k": "a"}, timestamp=time)])


LOOP: list[Any] = []
LOOP.append(LOOP)


class Frame:
    """Iterates over its columns, as a DataFrame does."""

    def __iter__(self) -> Iterator[str]:
        return iter(["k"])

    def to_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ({"k": "a"}, "records: is a dict: give a list of records"),
        ('{"k": "a"}', "records: is a str: give a list of records"),
        (sk.testing.Record(value={"k": "a"}), "records: is a Record: give a list of records"),
        (Frame(), "records: is a Frame: give a list of records, for a DataFrame to_dict('records')"),
        (
            [{"k": "a"}, {"k": np.int64(1)}],
            "records.1: cannot be written as JSON in UTF-8: Encoding objects of type numpy.int64",
        ),
        ([{"k": "\ud800"}], "records.0: cannot be written as JSON in UTF-8: 'utf-8' codec can't encode"),
        ([sk.testing.Record(key="\ud800")], "records.0: cannot be written as JSON in UTF-8: 'utf-8' codec"),
        ([[LOOP]], "records.0: cannot be written as JSON in UTF-8: maximum recursion depth exceeded"),
        (5, "records: is no list, but 5: give a list of records"),
        ([sk.testing.Record(headers=[("a", b"b")])], "records.0: headers: must be a mapping"),  # type: ignore[arg-type]
        ([sk.testing.Record(topic=5)], "records.0: topic: 5 is not the name of a topic"),  # type: ignore[arg-type]
        ([sk.testing.Record(partition="1")], "records.0: partition: '1' is not a number"),  # type: ignore[arg-type]
    ],
)
def test_run_records_that_are_none_are_named(records: Any, problem: str) -> None:
    with pytest.raises(sk.ConfigurationError) as caught:
        sk.testing.run(sk.Pipeline("t", key="k"), records)
    assert str(caught.value).startswith(problem)


def test_run_pipeline_that_is_none_is_named() -> None:
    with pytest.raises(sk.ConfigurationError, match=r"^pipeline: 'pipeline.yaml' is no Pipeline: give sk.Pipeline"):
        sk.testing.run("pipeline.yaml", [{"k": "a"}])  # type: ignore[arg-type] # as a user may


def test_run_function_of_the_user_gives_tuples_and_dead_letters_with_tracebacks() -> None:
    splitter = {"python": "helpers.user_functions:orders", "value": {"field": "lines[].v", "decimals": 1}}
    time = {"field": "t"}
    pipeline = sk.Pipeline("carts", key="lines[].k", time=time, aggregates=["count", "sum"], splitter=splitter)
    lines = [{"sku": "a", "price": 10}, {"sku": "b", "price": 1}]
    carts = [{"currency": currency, "at": START_MS, "lines": lines} for currency in ("USD", "GBP", "EUR")]
    outcome = sk.testing.run(pipeline, [*carts, {"test": True}])
    assert [(result.key, result.count, result.sum) for result in outcome.results] == [
        ("a", 2, Decimal(19)),
        ("b", 2, Decimal("1.9")),
    ]
    (invalid,) = outcome.invalid
    assert (invalid.offset, "KeyError" in invalid.reason, "GBP" in invalid.reason) == (1, True, False)
    assert str(invalid.traceback).endswith("KeyError: 'GBP'\n")


def test_run_function_of_the_user_that_depends_on_its_calls_fails() -> None:
    pipeline = sk.Pipeline("clicks", key="k", splitter={"python": "helpers.user_functions:numbered"})
    with pytest.raises(sk.CheckFailedError, match=r"splitter.python: gives other tuples for records 0, 1 when"):
        sk.testing.run(pipeline, [{}, {}])


@pytest.mark.parametrize(
    ("topic", "section"),
    [
        ("joined", {"join": {**SIDES, "apart_s": 5}}),
        ("enriched", {"enrich": {"topic": "left", "tables": [{"topic": "right", "fields": {"n": "id"}}]}}),
    ],
)
def test_run_function_of_the_user_is_called_again_with_records_that_the_pipeline_writes(
    topic: str, section: dict[str, Any], tmp_path: Any
) -> None:
    splitter = {"python": "helpers.user_functions:numbered", "key": {"field": "k"}}
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({"name": "p", **section, "source": {"topic": f"p.{topic}"}, "splitter": splitter}))
    records = [sk.testing.Record(value={"id": "a", "ts": START_MS}, key="a", topic=side) for side in ("right", "left")]
    with pytest.raises(sk.CheckFailedError, match=f"gives other tuples for records 0 of {topic} when"):
        sk.testing.run(sk.Pipeline.load(file), records)


def test_run_same_records_give_the_same_outcome() -> None:
    pipeline = sk.Pipeline(**CLICKS, replicas={"worker": 2}, router={"workers": 4})
    records = [click(f"user{number % 5}", number) for number in range(300)]
    assert sk.testing.run(pipeline, records) == sk.testing.run(pipeline, records)


def test_run_small_list_takes_less_than_50_ms_of_cpu_time() -> None:
    values = {"price": {"field": "price", "decimals": 2}}
    aggregates = [sk.count(), sk.sum("price"), sk.quantile("price", 0.5)]
    pipeline = sk.Pipeline(**CLICKS, values=values, aggregates=aggregates)
    records = [click(f"user{number % 3}", number, price=12.5) for number in range(20)]
    sk.testing.run(pipeline, records)  # the first call imports and compiles
    seconds = []
    for _ in range(5):
        started = time.process_time()
        sk.testing.run(pipeline, records)
        seconds.append(time.process_time() - started)
    assert min(seconds) < 0.05, seconds


def test_run_pipeline_with_a_schema_for_its_results_asks_no_registry() -> None:
    registry = {"url": "http://127.0.0.1:9", "connect_timeout_s": 0.1}  # nothing listens
    for name in ("avro", "json_schema", "protobuf"):
        pipeline = sk.Pipeline(**CLICKS, aggregator={"format": name}, registry=registry)
        assert [result.count for result in sk.testing.run(pipeline, [click("a", 1)]).results] == [1]


def test_run_calendar_windows_take_no_time_again() -> None:
    seconds = []
    for _ in range(5):
        pipeline = sk.Pipeline(**CLICKS, window={"size": "day", "zone": "Europe/Berlin"})
        started = time.process_time()
        sk.testing.run(pipeline, [click("a", 1)])
        seconds.append(time.process_time() - started)
    assert min(seconds) < 0.05, seconds


def test_run_pipeline_that_joins_has_the_records_of_its_topics(tmp_path: Any) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({"name": "p", "join": {**SIDES, "apart_s": 5}}))
    pipeline = sk.Pipeline.load(file)
    sent = [("left", "a"), ("left", "b"), ("right", "a")]
    records = [sk.testing.Record(value={"id": name, "ts": START_MS}, key=name, topic=side) for side, name in sent]
    outcome = sk.testing.run(pipeline, records)
    assert [pair["id"] for pair in outcome.topics["joined"]] == ["a"]
    assert [row["id"] for row in outcome.topics["unmatched-left"]] == ["b"]
    assert (outcome.results, outcome.late, outcome.invalid) == ([], [], [])
    with pytest.raises(sk.ConfigurationError, match=r"records.0: name its topic, .* reads left and right"):
        sk.testing.run(pipeline, [{}])
    with pytest.raises(sk.ConfigurationError, match=r"records.0: unknown source topic lef, did you mean left"):
        sk.testing.run(pipeline, [sk.testing.Record(topic="lef")])
