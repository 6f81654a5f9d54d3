"""Generated records of the smoke test give the splitter exactly the requested keys."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from helpers.avro import encoded, record_of
from helpers.formats import SIMPLEST
from skewless.algorithms.windowing.assigner import tumbling
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.parsing.envelopes import ENVELOPES
from skewless.parsing.formats.base import Format
from skewless.parsing.formats.text import Text
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.validation import EventTimeRules
from skewless.schema_registry.schema import Schema
from skewless.smoke_test import check, sample_records, schema_samples

AT = 1_700_000_000_123
SPLITTERS: list[dict[str, Any]] = [
    *SIMPLEST.values(),
    {"format": "text", "key": {"pattern": r"[\pL\pN_]+", "lowercase": True}},
    {"format": "json", "key": {"field": "user.id"}, "value": {"field": "n", "decimals": 2}, "time": {"field": "at"}},
    {"format": "json", "key": {"field": "entities.hashtags[].text"}, "value": {"field": "entities.hashtags[].n"}},
    {"format": "json", "key": {"field": "tags[]"}, "time": {"field": "created", "unit": "s"}},
    {"format": {"name": "csv", "delimiter": ";", "columns": ["at", "page", "views"]}, "key": {"field": "page"}},
    {"format": "tsv", "key": {"field": 1}, "value": {"field": 2}, "time": {"field": 0, "unit": "iso8601"}},
    {"format": "tsv", "key": {"field": 1}, "time": {"field": 0, "unit": "us"}},
    {"format": "json", "key": {"field": "k"}, "time": {"field": "at", "unit": "ns"}},
    {"format": "csv", "key": {"field": 2}, "time": {"field": 0, "of_day": 1, "unit": "iso8601"}},
    {"key": {"from": "record_key"}},
    {"key": {"from": "record_key", "encoding": "json"}},
    {"key": {"from": "record_key", "encoding": "json", "field": "user.id"}, "value": {"field": "n"}},
    {"key": {"from": "record_key"}, "value": {"header": "n"}, "time": {"header": "at", "unit": "iso8601"}},
    {"format": "json", "key": {"header": "who"}, "value": {"field": "n"}},
    *(
        {"envelope": name, "key": {"field": "k"}, "value": {"field": "n"}, "time": {"field": "at"}}
        for name in ENVELOPES
    ),
    {"envelope": {"name": "debezium", "row": "before"}, "key": {"field": "k"}, "time": {"field": "debezium.ts_ms"}},
    {"envelope": "cloudevents", "key": {"field": "k"}, "time": {"header": "ce_time", "unit": "iso8601"}},
]


@pytest.mark.parametrize("document", SPLITTERS, ids=str)
def test_sample_records_of_each_format_give_the_required_keys_and_time(document: dict[str, Any]) -> None:
    settings = ParsingSettings.model_validate(document)
    wanted = sample_records.keys(100, "check")
    records = sample_records.make(settings, wanted, AT)
    parsed = RecordParser(settings).parse(records)
    assert parsed.invalid == []
    assert parsed.keys == wanted
    (time_ms,) = set(parsed.times.tolist())
    assert 0 <= time_ms - AT < 1000, "never late, and hardly ahead"


def test_sample_record_of_a_schema_that_only_refers_to_others_is_of_its_first_record() -> None:
    order, pay = record_of("a.Order", key="string", n="int"), record_of("a.Pay", key="string")
    references = {schema["name"]: Schema("AVRO", json.dumps(schema)) for schema in (order, pay)}
    found = schema_samples._avro(Schema("AVRO", '["a.Order", "a.Pay"]', references), "schema 7", [("key", "k")])
    assert found == b"\0" + encoded(order, {"key": "k", "n": 0})


def test_sample_record_of_a_schema_with_an_invalid_default_is_refused() -> None:
    schema = record_of("R", key="string", n="string")
    schema["fields"][1]["default"] = None
    with pytest.raises(ConfigurationError, match="schema 7 has a part that is not valid: "):
        schema_samples._avro(Schema("AVRO", json.dumps(schema)), "schema 7", [("key", "k")])


def test_sample_records_have_one_key_in_half_of_them() -> None:
    counts = Counter(sample_records.keys(1_000, "check"))
    assert len(counts) == sample_records.KEYS
    assert counts["check0"] == 500


def test_sample_records_for_a_format_without_samples_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Text, "sample", Format.sample)
    with pytest.raises(ConfigurationError, match="the format text"):
        sample_records.make(ParsingSettings.model_validate({"format": "text"}), ["a"], AT)


def test_smoke_test_settings_that_change_the_keys_are_refused() -> None:
    settings = ParsingSettings.model_validate({"format": "text", "key": {"rename_if_contains": {"all": ["check"]}}})
    records = sample_records.make(settings, ["check0"], AT)
    expected = check._expected_counts(RecordParser(settings), records, tumbling(60_000))
    with pytest.raises(ConfigurationError, match="does not keep keys"):
        check._require_unchanged_keys(expected, "check")


def test_smoke_test_ignores_event_times_that_the_splitter_refuses() -> None:
    settings = ParsingSettings.model_validate({"format": "text"})
    records = RecordColumns.of_values([b"a", b"b", b"c"], np.array([AT, AT + 11, AT + 10]))
    rules = EventTimeRules(lateness_ms=0, max_ahead_ms=10)
    assert check._event_times(RecordParser(settings).parse(records), rules, AT) == [AT, AT + 10]


@pytest.mark.parametrize(
    ("aggregator", "reason"),
    [
        ({"emit": "final", "having": {"count": {"at_least": 2}}}, r"having: the smoke test cannot check"),
        ({"top": {"n": 3, "by": "count"}}, r"top: keys of the smoke test would take the ranks of others"),
    ],
)
def test_smoke_test_of_results_that_it_cannot_check_or_changes_is_refused(
    aggregator: dict[str, Any], reason: str
) -> None:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}, "aggregator": aggregator})
    with pytest.raises(ConfigurationError, match=rf"^aggregator\.{reason}"):
        check.run(settings, 10, "check", 1.0)


def test_smoke_test_expects_the_sessions_of_the_sample_records() -> None:
    settings = ParsingSettings.model_validate({"format": "text"})
    records = sample_records.make(settings, ["check0", "check1", "check0"], AT)
    found = check._expected_counts(RecordParser(settings), records, SessionWindows(1_000, 60_000))
    assert found == {(AT, "check0"): 2, (AT, "check1"): 1}
