"""Tests of the splitter with composite keys, conditions, and a first offset."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.batches import batch_of, json_values_in, reports, source, tuples_in, watermarks_in, written
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules
from skewless.stages.splitter.builder import parsing_digest
from skewless.stages.splitter.checkpoint import first_checkpoint, start_of
from skewless.stages.splitter.settings import SplitterSettings
from skewless.stages.splitter.step import SplitterRules, SplitterStep
from skewless.wire.tuples import TupleFormat

SETTINGS: dict[str, Any] = {
    "key": {"fields": [{"field": "k"}, {"from": "time", "name": "minute", "truncate": "minute"}]},
    "time": {"field": "t"},
    "where": [{"field": "type", "is": "sale"}],
}
NOW = 10**6


def splitter(checkpoint: str | None = None, **changes: Any) -> SplitterStep:
    settings = ParsingSettings.model_validate(SETTINGS | changes)
    rules = SplitterRules(
        event_time=EventTimeRules(lateness_ms=0, max_ahead_ms=1000),
        tuple_format=TupleFormat(settings.value_types, settings.key.parts),
        idle_timeout_ms=500,
        drain=False,
    )
    step = SplitterStep(RecordParser(settings), rules, reports())
    step.assign(source(3), checkpoint, ())
    return step


def sale(time: int, key: str = "a", kind: str = "sale") -> bytes:
    return json.dumps({"k": key, "t": time, "type": kind}).encode()


def test_splitter_late_tuple_of_a_composite_key_has_its_parts() -> None:
    step = splitter()
    outputs = [*step.process(batch_of(3, [sale(61_000), sale(60_500)]), NOW), *step.flush(NOW)]
    key = '["a","1970-01-01T00:01:00Z"]'
    assert tuples_in(written(outputs, "tuples")) == [(key, 1, 61_000)]
    (late,) = json_values_in(written(outputs, "late"))
    assert (late["key"], late["k"], late["minute"], late["time"]) == (key, "a", "1970-01-01T00:01:00Z", 60_500)


def test_splitter_filtered_records_are_counted_and_advance_the_watermark() -> None:
    step = splitter()
    batch = batch_of(3, [sale(1000), sale(5000, kind="view"), b'{"type": "view"}'])
    outputs = [*step.process(batch, NOW), *step.flush(NOW)]
    assert [output.topic for output in outputs] == ["tuples"]
    assert watermarks_in(outputs) == [{3: 5000}]
    assert [sample.value for sample in step.collect_metrics() if "filtered" in sample.name] == [2]


def test_splitter_rounded_values_are_counted_until_the_end() -> None:
    step = splitter(value={"field": "v"})
    for value in (1.25, 2, 0.5):
        list(step.process(batch_of(3, [json.dumps({"k": "a", "t": 1, "type": "sale", "v": value}).encode()]), NOW))
    assert [sample.value for sample in step.collect_metrics() if "rounded" in sample.name] == [2]


def test_splitter_only_filtered_records_with_a_time_keep_a_partition_active() -> None:
    step = splitter()
    step.end_of_partition(source(3), NOW)
    for value, is_idle in ((b'{"type": "view"}', True), (b'{"type": "view", "t": 1}', False)):
        list(step.process(batch_of(3, [value]), NOW + 500))
        step.end_of_partition(source(3), NOW + 500)
        assert step.idle(source(3)) == is_idle


def test_splitter_first_offset_remains_in_each_checkpoint() -> None:
    step = splitter(first_checkpoint(40))
    assert start_of(step.checkpoint(source(3))) == 40
    list(step.process(batch_of(3, [sale(1000)]), NOW))
    restarted = splitter(step.checkpoint(source(3)))
    assert (start_of(restarted.checkpoint(source(3))), restarted.max_event_time(source(3))) == (40, 1000)
    assert start_of(splitter().checkpoint(source(3))) is start_of(None) is None


@pytest.mark.parametrize("first", [sale(1000), b"invalid"], ids=["valid", "invalid"])
def test_splitter_start_is_the_first_record_that_it_reads(first: bytes) -> None:
    step = splitter()
    list(step.process(batch_of(3, [first], first=500), NOW))
    list(step.process(batch_of(3, [sale(1000)], first=501), NOW))
    assert start_of(step.checkpoint(source(3))) == 500
    restarted = splitter(step.checkpoint(source(3)))
    list(restarted.process(batch_of(3, [sale(2000)], first=502), NOW))
    assert start_of(restarted.checkpoint(source(3))) == 500


def test_splitter_checkpoint_of_a_former_version_starts_at_the_beginning() -> None:
    restarted = splitter("[1000,false]")
    list(restarted.process(batch_of(3, [sale(2000)], first=40), NOW))
    assert start_of(restarted.checkpoint(source(3))) == 0


def test_parsing_digest_of_all_limits_is_that_of_earlier_versions() -> None:
    limits = {
        "tuples_per_record": 1, "text_bytes": 2, "max_depth": 3, "pattern_input_bytes": 4, "key_bytes": 5,
        "record_bytes": 6,
    }  # fmt: skip
    settings = SplitterSettings.model_validate({"key": {"field": "k"}, "limits": limits})
    # Tuples that a splitter of an earlier version holds are only read with the settings that they were made with.
    assert parsing_digest(settings) == "e58fb8c95dad374a"
