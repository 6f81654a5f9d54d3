"""State schema in the metadata of committed offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skewless.algorithms.watermark import MAX_SOURCE_PARTITIONS, MAX_WATERMARK, WatermarkTracker
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.state_layout import schema_of_stage, state_schema_of
from skewless.config.watcher import ConfigWatcher
from skewless.wire.join_changelog import JoinCheckpoint, encode_checkpoint
from skewless.wire.offset_metadata import (
    OffsetMetadata,
    decode_offset_metadata,
    encode_offset_metadata,
    join_offset_metadata,
    split_offset_metadata,
)
from skewless.wire.state_schema import (
    DIGEST,
    PARSING,
    PARSING_CHARACTERS,
    AnySchema,
    StateSchema,
    encode_schema,
    incompatibilities,
)

BASE: dict[str, Any] = {"name": "p", "source": {"topic": "t"}}
KAFKA_LIMIT = 4_096
"""Kafka's default limit of an offset's metadata (offset.metadata.max.bytes)."""
STEP_LIMIT = 3_850
"""Longest checkpoint of a step."""
RULE_OF_0_2 = {"late_rule": "event_time", "allowed_lateness_s": 0}
LARGEST = StateSchema(
    window="size week start wednesday offset_s 86399.999 zone America/Argentina/ComodRivadavia",
    tick_ms=86_400_000,
    columns=f"{DIGEST}{32 * '0'}",
    decimals=9,
    max_workers=1024,
    aggregator_partitions=1024,
    emit="updates",
    lateness_ms=315_360_000_000_000,
    key_parts=8,
    late_rule="window_end",
    parsing="k" * PARSING_CHARACTERS * len(PARSING),
    top="k" * PARSING_CHARACTERS,
)
TWO_VALUES: dict[str, Any] = {
    "splitter": {"format": "json", "key": {"field": "k"}, "values": {"a": {"field": "a"}, "b": {"field": "b"}}}
}


def schema(**parts: Any) -> StateSchema:
    return state_schema_of(PipelineSettings.model_validate(BASE | parts))


def test_offset_metadata_with_a_schema_is_decoded_as_it_was_encoded() -> None:
    assert decode_offset_metadata(encode_offset_metadata('{"watermarks":"!#$"}', LARGEST)) == OffsetMetadata(
        '{"watermarks":"!#$"}', LARGEST
    )
    assert decode_offset_metadata(encode_offset_metadata("", LARGEST)) == OffsetMetadata(None, LARGEST)


@pytest.mark.parametrize("topic_id", [0, 1, 0xE4E4E4E4, 0xFFFFFFFF])
def test_offset_metadata_with_a_topic_id_is_decoded_and_version_0_2_reads_its_schema(topic_id: int) -> None:
    written = encode_offset_metadata('{"watermarks":"!#$"}', LARGEST, topic_id)
    assert decode_offset_metadata(written) == OffsetMetadata('{"watermarks":"!#$"}', LARGEST, topic_id=topic_id)
    assert join_offset_metadata(*split_offset_metadata(written)) == written
    _, _, schema_text = written.partition("\n")  # as version 0.2.0 does
    assert msgspec.json.decode(schema_text, type=AnySchema) == LARGEST


@pytest.mark.parametrize("changelog_id", [0, 0xFFFFFFFF])
def test_offset_metadata_with_the_id_of_a_changelog_is_decoded(changelog_id: int) -> None:
    written = encode_offset_metadata("c", LARGEST, 7, changelog_id)
    assert decode_offset_metadata(written) == OffsetMetadata("c", LARGEST, topic_id=7, changelog_id=changelog_id)
    assert encode_offset_metadata("c", LARGEST, None, changelog_id) == encode_offset_metadata("c", LARGEST)


def test_offset_metadata_without_room_has_no_topic_id() -> None:
    largest = "x" * (KAFKA_LIMIT - len(encode_offset_metadata("", LARGEST, 7)))
    for checkpoint, topic_id in ((largest, 7), (f"{largest}x", None)):
        written = encode_offset_metadata(checkpoint, LARGEST, 7)
        assert len(written) <= KAFKA_LIMIT
        assert decode_offset_metadata(written) == OffsetMetadata(checkpoint, LARGEST, topic_id=topic_id)


@pytest.mark.parametrize(
    "written",
    [
        "",
        '[60000,60000,"count",0]',
        "[3,60000]",
        '[3,60000,60000,"count",0,64,4,"updates",0,0,1]',
        '[2,60000,60000,"count",0,64,4,"updates",0]',
        '[4,60000,60000,"count",0,64,4,"updates",0]',
        '[3,60000,60000,"count",0,64,4,"never",0]',
        "no JSON",
    ],
    ids=[
        "none",
        "the first version",
        "too short",
        "too long",
        "version 0.1",
        "a later version",
        "unknown value",
        "foreign",
    ],
)
def test_offset_metadata_of_another_version_has_no_schema(written: str) -> None:
    metadata = decode_offset_metadata(f"1700000000000\n{written}")
    assert (metadata.checkpoint, metadata.state_schema) == ("1700000000000", None)
    assert decode_offset_metadata(None) == decode_offset_metadata("") == OffsetMetadata(None, None)


def test_state_schema_of_largest_size_fits_next_to_the_largest_checkpoint() -> None:
    written = encode_offset_metadata("x" * STEP_LIMIT, LARGEST)
    assert len(written) - STEP_LIMIT <= 240
    assert len(written) <= KAFKA_LIMIT


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"aggregator": {"window_s": 120}}, "aggregator.window_s: is 120.0, was 60.0"),
        (
            {"aggregator": {"window": {"size_s": 300, "every_s": 60}}},
            "aggregator.window: is size_s 300 every_s 60 offset_s 0, was size_s 60",
        ),
        (
            {"aggregator": {"window": {"size": "day", "zone": "Europe/Berlin"}}},
            "aggregator.window: is size day offset_s 0 zone Europe/Berlin, was size_s 60",
        ),
        (
            {"aggregator": {"window": {"session": {"gap_s": 300}}}},
            "aggregator.window: is session gap_s 300 max_s 86400, was size_s 60",
        ),
        ({"aggregator": {"emit": "final"}}, "aggregator.emit: is final, was updates"),
        ({"observer": {"tick_s": 30}}, "observer.tick_s: is 30.0, was 60.0"),
        ({"event_time": {"allowed_lateness_s": 2.5}}, "event_time.allowed_lateness_s: is 2.5, was 10.0"),
        ({"event_time": {"late_rule": "event_time"}}, "event_time.late_rule: is event_time, was window_end"),
        ({"worker_input": {"max_workers": 8}}, "worker_input.max_workers: is 8, was 16"),
        ({"topics": {"aggregator_partitions": 8}}, "topics.aggregator_partitions: is 8, was 4"),
        (
            {"splitter": {"key": {"from": "record_key"}, "value": {"decimals": 2}}},
            "splitter.value.decimals: is 2, was 0",
        ),
        (
            {"aggregator": {"aggregates": ["count", "sum", "max"]}},
            "aggregator.aggregates: needs the columns count,max,sum, needed count,sum",
        ),
    ],
    ids=[
        "window",
        "hopping",
        "calendar",
        "sessions",
        "emit",
        "tick",
        "lateness",
        "late rule",
        "max_workers",
        "aggregator_partitions",
        "decimals",
        "aggregates",
    ],
)
def test_incompatibilities_name_each_changed_setting_once_with_both_values(changed: dict[str, Any], line: str) -> None:
    assert list(incompatibilities(schema(), schema(**changed))) == [line]


def test_incompatibilities_of_ranks_exist_only_between_two_settings() -> None:
    ten, five = (schema(aggregator={"top": {"n": n, "by": "count"}}) for n in (10, 5))
    renamed = schema(aggregator={"top": {"n": 10, "by": "count"}, "aggregates": ["count", {"sum": "value", "as": "s"}]})
    text = schema(aggregator={"top": {"n": 10, "by": "count"}, "numbers": "text"})
    for other in (five, renamed, text):
        (line,) = incompatibilities(ten, other)
        assert line.startswith("aggregator.top: it, the names of results or aggregator.numbers are not")
    for previous, current in ((schema(), ten), (ten, schema()), (ten, ten)):
        assert list(incompatibilities(previous, current)) == []


@pytest.mark.parametrize(
    ("before", "after", "is_refused"),
    [
        ([{"sum": "a", "as": "x"}, {"sum": "b", "as": "y"}], [{"sum": "b", "as": "x"}, {"sum": "a", "as": "y"}], True),
        ([{"sum": "a", "as": "x"}, "count"], [{"mean": "a", "as": "x"}, "count"], True),
        ([{"quantile": "a", "at": [0.5], "as": "q"}], [{"quantile": "a", "at": [0.9], "as": "q"}], True),
        ([{"sum": "a", "as": "x"}, "count"], ["count", {"sum": "a", "as": "x"}], False),
        ([{"sum": "a", "as": "x"}, "count"], [{"sum": "a", "as": "y"}, "count"], False),
        (["count", {"sum": "a"}], ["count", {"sum": "a"}, {"mean": "a"}], False),
        (["count", {"sum": "a"}, {"mean": "a"}], ["count", {"sum": "a"}], False),
        ([{"quantile": "a", "at": [0.5]}], [{"quantile": "a", "at": [0.5, 0.9]}], False),
    ],
    ids=["values", "aggregate", "argument", "order", "name", "added", "removed", "quantile added"],
)
def test_incompatibilities_of_results_exist_only_if_a_name_gets_another_meaning(
    before: list[Any], after: list[Any], *, is_refused: bool
) -> None:
    former, current = (schema(aggregator={"aggregates": aggregates}, **TWO_VALUES) for aggregates in (before, after))
    written = encode_offset_metadata("x", former, 7, 8)
    assert decode_offset_metadata(written) == OffsetMetadata("x", former, topic_id=7, changelog_id=8)
    lines = list(incompatibilities(former, current))
    assert len(lines) == is_refused
    assert all(line.startswith("aggregator.aggregates: a result has another aggregate, ") for line in lines)
    of_0_3 = msgspec.structs.replace(former, results=())
    assert list(incompatibilities(of_0_3, current)) == []
    _, _, schema_text = written.partition("\n")  # as version 0.3 does
    assert msgspec.json.decode(schema_text, type=AnySchema) == of_0_3


@pytest.mark.parametrize("before", ["json", "avro", "json_schema", "protobuf"])
@pytest.mark.parametrize("after", ["json", "avro", "json_schema", "protobuf"])
def test_incompatibilities_of_the_format_of_results_exist_unless_it_was_json(before: str, after: str) -> None:
    registry = {"url": "http://registry"}
    former, current = (schema(aggregator={"format": name}, registry=registry) for name in (before, after))
    stored = decode_offset_metadata(encode_offset_metadata("x", former)).state_schema
    assert stored is not None
    expected = [] if before in {"json", after} else [f"aggregator.format: is {after}, was {before}"]
    assert list(incompatibilities(stored, current)) == expected


def test_offset_metadata_without_room_has_no_meanings_of_results() -> None:
    current = schema()
    largest = "x" * (KAFKA_LIMIT - len(encode_offset_metadata("", current, 7, 8)))
    for checkpoint, results in ((largest, current.results), (f"{largest}x", ())):
        written = encode_offset_metadata(checkpoint, current, 7, 8)
        assert len(written) <= KAFKA_LIMIT
        expected = OffsetMetadata(checkpoint, msgspec.structs.replace(current, results=results), 7, 8)
        assert decode_offset_metadata(written) == expected


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kathmandu"])
@pytest.mark.parametrize("late_rule", ["window_end", "event_time"])
def test_incompatibilities_name_an_earliest_time_that_moves_windows_off_their_panes(zone: str, late_rule: str) -> None:
    def daily(earliest: str) -> StateSchema:
        reading = {"key": {"field": "k"}, "time": {"field": "t", "unit": "iso8601", "earliest": earliest}}
        return schema(
            splitter=reading,
            aggregator={"window": {"size": "day", "zone": zone}},
            event_time={"late_rule": late_rule, "allowed_lateness_s": 0},
        )

    modern, old = daily("1990-01-01"), daily("1800-01-01")
    assert list(incompatibilities(modern, daily("2020-01-01"))) == []
    for previous, current in ((modern, old), (old, modern)):
        assert list(incompatibilities(previous, current)) == ["splitter.time: is not what it was"]


def test_incompatibilities_of_each_schema_field_have_a_line() -> None:
    values: dict[str, Any] = {"columns": "max", "emit": "final", "late_rule": "event_time", "engine": "spark"}
    values |= {"parsing": LARGEST.parsing[:-1] + "K", "top": "K", "results": (2,)}
    largest = msgspec.structs.replace(LARGEST, results=(1,))
    for field in msgspec.structs.fields(StateSchema):
        other = msgspec.structs.replace(largest, **{field.name: values.get(field.name, 1)})
        assert len(list(incompatibilities(largest, other))) == 1, field.name


READING: dict[str, Any] = {"key": {"field": "k"}, "value": {"field": "v"}, "time": {"field": "t"}}


@pytest.mark.parametrize(
    ("changed", "paths"),
    [
        ({"key": {"field": "user"}}, ["splitter.key"]),
        ({"key": {"field": "k", "lowercase": True}}, ["splitter.key"]),
        ({"value": {"field": "w"}}, ["splitter.value"]),
        ({"value": {"field": "v", "times": "n"}}, ["splitter.value"]),
        ({"time": {"field": "t", "unit": "s"}}, ["splitter.time"]),
        ({"where": [{"field": "k", "is": "a"}]}, ["splitter.where"]),
        ({"envelope": "debezium"}, [PARSING[-1]]),
        ({"python": "orders:split"}, [PARSING[-1]]),
        ({"format": {"name": "csv", "columns": ["k", "v", "t"]}}, ["splitter.format"]),
        ({"key": {"header": "k"}, "time": {"header": "t"}}, ["splitter.key", "splitter.time"]),
        ({"format": "json", "limits": {"record_bytes": 9}, "local": {"mode": "buffer"}}, []),
        ({"time": {"field": "t", "unit": "ms", "earliest": 5, "latest": "2030-01-01"}}, []),
        ({"value": READING["value"], "values": None}, []),
    ],
)
def test_incompatibilities_name_the_settings_by_which_records_are_read(
    changed: dict[str, Any], paths: list[str]
) -> None:
    lines = list(incompatibilities(schema(splitter=READING), schema(splitter=READING | changed)))
    assert lines == [f"{path}: is not what it was" for path in paths]


def test_incompatibilities_with_checkpoints_that_do_not_say_how_records_were_read_are_none() -> None:
    current = schema(splitter=READING)
    without = msgspec.structs.replace(current, parsing="")
    assert decode_offset_metadata(encode_offset_metadata("x", without)).state_schema == without
    assert list(incompatibilities(without, current)) == list(incompatibilities(current, without)) == []
    assert schema(splitter=READING, event_time=RULE_OF_0_2).parsing == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"worker": {"pane_s": 5}},
        {"aggregator": {"window": {"size_s": 60}}},
        {"aggregator": {"aggregates": ["sum", "count"]}},
        {"aggregator": {"closed_window_retention_s": 5}},
        {"event_time": {"idle_timeout_s": None}},
        {"router": {"workers": 3, "grouping": "key"}},
    ],
    ids=["pane", "the same window", "order of aggregates", "kept windows", "idle", "routing"],
)
def test_state_schema_ignores_settings_that_state_does_not_depend_on(changed: dict[str, Any]) -> None:
    assert schema(**changed) == schema()


def test_config_watcher_incompatible_file_is_reported(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "pipeline.yaml"
    settings = PipelineSettings.model_validate(BASE)
    file.write_text("{name: p, source: {topic: t}, aggregator: {emit: final}, worker_input: {max_workers: 65}}")
    live = ConfigWatcher(file, {}, settings, "aggregator")
    assert [live.poll(), live.poll()] == [None, None]
    assert "aggregator.emit: is final, was updates; worker_input.max_workers: is 65, was 16" in caplog.text
    assert "a restart will fail" in caplog.text


def test_state_schema_of_version_0_2_is_read_and_written_if_the_key_has_no_parts() -> None:
    written = 'x\n[3,60000,60000,"count,sum",0,16,4,"updates",0]'
    of_0_2 = msgspec.structs.replace(schema(event_time=RULE_OF_0_2), results=())
    assert decode_offset_metadata(written).state_schema == of_0_2
    assert encode_offset_metadata("x", of_0_2) == written
    composite = schema(splitter={"key": {"fields": [{"field": "a"}, {"field": "b"}]}})
    for other in (schema(), composite):
        assert decode_offset_metadata(encode_offset_metadata("x", other)).state_schema == other != of_0_2


def test_incompatibilities_of_default_settings_with_version_0_2_name_the_rule_and_the_lateness() -> None:
    assert list(incompatibilities(schema(event_time=RULE_OF_0_2), schema())) == [
        "event_time.late_rule: is window_end, was event_time",
        "event_time.allowed_lateness_s: is 10.0, was 0.0",
    ]


def test_state_schema_of_version_0_2_with_many_columns_is_that_of_their_digest() -> None:
    columns = "count,first_order:binary,last_order:binary,max,min,sum"
    metadata = decode_offset_metadata(f'x\n[3,60000,60000,"{columns}",0,16,4,"updates",0]')
    current = msgspec.structs.replace(schema(event_time=RULE_OF_0_2), columns=columns, results=())
    assert metadata.state_schema == current
    assert current.columns.startswith(DIGEST)


SIDES = {side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")}
JOIN: dict[str, Any] = {**SIDES, "apart_s": 1}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"kind": "inner", "buffer_records": 5}, []),
        ({"apart_s": 0.5, "sync_delay_s": 1, "window_s": 1}, ["join.apart_s: is 0.5, was 1.0"]),
        ({"sync_delay_s": 2}, ["join.sync_delay_s: is 2.0, was 1.0"]),
        ({"window_s": 2}, ["join.window_s: is 2.0, was 1.0"]),
        ({"repartition": "always"}, ["join.repartition: is always, was never"]),
        ({"left": SIDES["left"] | {"topic": "other"}}, ["join.left.topic: is other, was left"]),
        ({"right": SIDES["right"] | {"id": {"field": "key"}}}, ["join.right: format, id, time or limits have changed"]),
        (
            {"right": SIDES["right"] | {"format": {"name": "csv", "columns": ["id"]}}},
            ["join.right: format, id, time or limits have changed"],
        ),
        ({"right": SIDES["right"] | {"format": "json"}}, []),
        ({"left": SIDES["left"] | {"time": {"field": "t"}}}, ["join.left: format, id, time or limits have changed"]),
    ],
)
def test_join_schema_of_changed_settings_names_them(changes: dict[str, Any], expected: list[str]) -> None:
    before, after = (
        schema_of_stage(PipelineSettings.model_validate({"name": "p", "join": JOIN | more}), "join")
        for more in ({}, changes)
    )
    assert list(incompatibilities(before, after)) == expected


def test_config_watcher_incompatible_file_of_a_join_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({"name": "p", "join": JOIN | {"apart_s": 2}}))
    live = ConfigWatcher(file, {}, PipelineSettings.model_validate({"name": "p", "join": JOIN}), "join")
    assert [live.poll(), live.poll()] == [None, None]
    assert "a restart will fail: join.apart_s: is 2.0, was 1.0; join.sync_delay_s: is 2.0" in caplog.text


def join_with_topics(left: str, right: str) -> AnySchema:
    sides = {side: {"topic": topic, "id": {"field": "id"}} for side, topic in (("left", left), ("right", right))}
    join = {**sides, "apart_s": 315_360_000, "repartition": "always"}
    settings = {"name": "p", "join": join, "topics": {"internal_retention_s": 630_720_000}}
    return schema_of_stage(PipelineSettings.model_validate(settings), "join")


@pytest.mark.parametrize("characters", [1, 48, 49, 249])
def test_join_schema_fits_next_to_the_watermarks_of_all_partitions(characters: int) -> None:
    current = join_with_topics("l" * characters, "r" * characters)
    watermarks = WatermarkTracker(MAX_SOURCE_PARTITIONS)
    watermarks.update({number: 10**12 + number * 10**6 for number in range(MAX_SOURCE_PARTITIONS)})
    checkpoint = encode_checkpoint(JoinCheckpoint(MAX_WATERMARK, MAX_WATERMARK, 10**9, watermarks.encode()))
    written = encode_offset_metadata(checkpoint, current)
    assert len(encode_schema(current)) <= 240
    assert len(checkpoint) <= STEP_LIMIT
    assert len(written) <= KAFKA_LIMIT
    assert decode_offset_metadata(written).state_schema == current


def test_join_schema_of_another_topic_with_a_long_name_differs() -> None:
    before, after = join_with_topics("l" * 249, "right"), join_with_topics("m" * 249, "right")
    (line,) = incompatibilities(before, after)
    assert line.startswith(f"join.left.topic: is a topic with a long name (digest {DIGEST}")


def test_incompatibilities_of_a_join_and_another_stage_say_so() -> None:
    of_join = schema_of_stage(PipelineSettings.model_validate({"name": "p", "join": JOIN}), "join")
    assert list(incompatibilities(LARGEST, of_join)) == ["the group belongs to another stage"]
