"""Records in envelopes: what counts, what is filtered, and what is invalid, and the settings that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from helpers.envelopes import EVENT, RECORDS, STRUCTURED, TIME_MS, attributes, change, structured, with_schema
from skewless.parsing.envelopes import ENVELOPES
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.validation import NO_TIME
from skewless.wire.record import Headers

OLD, NEW = '{"k":"old","n":1}', '{"k":"new","n":2}'
COUNTED = "counted"
FILTERED = "filtered"
NO_OP = "no op field, so it is not a change event of Debezium"
DEBEZIUM: dict[str, Any] = {"envelope": "debezium", "key": {"field": "k"}, "time": {"field": "debezium.source.ts_ms"}}
CLOUDEVENTS: dict[str, Any] = {
    "envelope": "cloudevents",
    "key": {"field": "k"},
    "time": {"header": "ce_time", "unit": "iso8601"},
}


def outcomes(settings: dict[str, Any], values: Sequence[bytes | None], headers: Sequence[Headers] = ()) -> list[str]:
    """Return the key and value, `filtered` or the reason of each record."""
    size = len(values)
    records = RecordColumns(values, np.arange(size, dtype=np.int64), [b"id"] * size, headers or [()] * size)
    parsed = RecordParser(ParsingSettings.model_validate(settings)).parse(records)
    found = {int(row): FILTERED for row in parsed.filtered} | dict(parsed.invalid)
    tuples = zip(parsed.records.tolist(), parsed.keys, parsed.values["value"].to_pylist(), strict=True)
    found |= {row: f"{key} {value} {parsed.times[row]}" for row, key, value in tuples}
    return [found[row] for row in range(size)]


CHANGES: list[tuple[bytes | None, str]] = [
    (change("c", after=NEW), f"new 1 {TIME_MS}"),
    (change("u", OLD, NEW), f"new 1 {TIME_MS}"),
    (change("u", after=NEW), f"new 1 {TIME_MS}"),
    (change("r", after=NEW), f"new 1 {TIME_MS}"),
    (with_schema(change("c", after=NEW)), f"new 1 {TIME_MS}"),
    (b' {\n "schema" : null, "payload" : ' + change("c", after=NEW) + b"}", f"new 1 {TIME_MS}"),
    (change("d", OLD), FILTERED),
    (with_schema(change("d", OLD)), FILTERED),
    (None, FILTERED),
    (b'{"schema":null,"payload":null}', FILTERED),
    (change("t"), FILTERED),
    (b'{"op":"m","ts_ms":1,"source":{"ts_ms":1},"message":{"prefix":"p","content":"YQ=="}}', FILTERED),
    (change("c"), "key field after.k is missing"),
    (b'{"op":"c","source":{"ts_ms":1}}', "key field after.k is missing"),
    (change("c", after='{"n":2}'), "key field after.k is missing"),
    (change("x", OLD, NEW), "unknown op of Debezium"),
    (change("", OLD, NEW), "unknown op of Debezium"),
    (NEW.encode(), NO_OP),
    (b'{"source":{"ts_ms":1},"databaseName":"shop","ddl":"DROP TABLE orders","tableChanges":[]}', NO_OP),
    (b'{"schema":{},"payload":{"ts_ms":1}}', NO_OP),
    (b'{"status":"BEGIN","id":"555:24023128","ts_ms":1}', NO_OP),
    (b'{"op":{"c":1},"after":' + NEW.encode() + b"}", "unknown op of Debezium"),
    (b"[]", NO_OP),
    (b"[", "malformed JSON"),
    (b"{", "malformed JSON"),
    (b'{"schema":{},"payload":{', "malformed JSON"),
    (b'{"schema":"\xff","payload":1}', NO_OP),
    (b"", "malformed JSON"),
]


def test_debezium_each_kind_of_record_has_its_outcome() -> None:
    assert outcomes(DEBEZIUM, [value for value, _ in CHANGES]) == [outcome for _, outcome in CHANGES]


@pytest.mark.parametrize(
    ("envelope", "expected"),
    [
        ({"name": "debezium", "operations": ["create"]}, ["new", FILTERED, FILTERED, FILTERED]),
        ({"name": "debezium", "operations": ["snapshot", "update"]}, [FILTERED, "new", FILTERED, "new"]),
        ({"name": "debezium", "row": "before"}, [FILTERED, "old", "old", FILTERED]),
        ({"name": "debezium", "row": "before", "operations": ["delete"]}, [FILTERED, FILTERED, "old", FILTERED]),
    ],
    ids=str,
)
def test_debezium_operations_and_row_decide_what_counts(envelope: dict[str, Any], expected: list[str]) -> None:
    values = [change("c", after=NEW), change("u", OLD, NEW), change("d", OLD), change("r", after=NEW)]
    found = outcomes({**DEBEZIUM, "envelope": envelope}, values)
    assert [outcome.split()[0] for outcome in found] == expected


def test_debezium_rules_hold_when_no_field_of_the_row_is_read() -> None:
    settings = {"envelope": "debezium", "key": {"from": "record_key"}, "value": {"constant": 7}}
    values = [change("c", after=NEW), None, change("d", OLD), b"{}"]
    assert outcomes(settings, values) == ["id 7 0", FILTERED, FILTERED, NO_OP]


def test_debezium_filtered_records_have_their_time_and_tombstones_that_of_kafka_only() -> None:
    def times(settings: dict[str, Any]) -> list[int]:
        records = RecordColumns([change("d", OLD), None, change("c", after=NEW)], np.array([7, 8, 9]))
        listed: list[int] = RecordParser(ParsingSettings.model_validate(settings)).parse(records).times.tolist()
        return listed

    assert times(DEBEZIUM) == [TIME_MS, NO_TIME, TIME_MS]
    assert times({"envelope": "debezium", "key": {"field": "k"}}) == [7, 8, 9]


def test_debezium_conditions_keys_and_times_name_columns_and_fields_of_the_event() -> None:
    settings = {
        "envelope": "debezium",
        "key": {"fields": [{"field": "debezium.source.table", "name": "table"}, {"field": "k"}]},
        "value": {"field": "n"},
        "where": [{"field": "n", "above": 1}, {"field": "debezium.op", "is_not": "r"}],
        "time": {"field": "debezium.ts_ms"},
    }
    values = [change("c", after=NEW), change("c", after=OLD), change("r", after=NEW)]
    assert outcomes(settings, values) == [f'["orders","new"] 2 {TIME_MS + 142}', FILTERED, FILTERED]


def test_debezium_limit_of_a_record_applies_to_its_wrapper() -> None:
    value = with_schema(change("c", after=NEW))
    limits = {"record_bytes": len(value) - 1}
    assert outcomes({**DEBEZIUM, "limits": limits}, [value, change("c", after=NEW)]) == [
        f"longer than {len(value) - 1} bytes",
        f"new 1 {TIME_MS}",
    ]
    deep = b'{"schema":' + b"[" * 100_000 + b"]" * 100_000 + b',"payload":{}}'
    # The schema is skipped. Whether so deep a one can be skipped depends on the recursion limit of Python's version.
    assert outcomes(DEBEZIUM, [deep]) in (["nested deeper than 32"], [NO_OP])


NO_EVENT = "not a CloudEvent, it has no specversion"
DATA = {"k": "a"}
EVENTS: list[tuple[bytes | None, Headers, str]] = [
    (structured(data=DATA), STRUCTURED, f"a 1 {TIME_MS}"),
    (structured(data=DATA), (), f"a 1 {TIME_MS}"),
    (
        structured(data=DATA),
        [("ce_time", b"2020-01-01"), ("content-type", b"Application/CloudEvents+JSON")],
        f"a 1 {TIME_MS}",
    ),
    (structured(data=DATA, datacontenttype="application/vnd.order+json; charset=utf-8"), (), f"a 1 {TIME_MS}"),
    (structured(data='{"k":"b"}', datacontenttype="text/plain"), (), f"b 1 {TIME_MS}"),
    (structured(data_base64="eyJrIjoiYyJ9"), STRUCTURED, f"c 1 {TIME_MS}"),
    (b'{"k":"d"}', attributes(), f"d 1 {TIME_MS}"),
    (structured(data='{"k":"b"}'), (), "key field k is missing"),
    (structured(data_base64="?"), (), "data_base64 of the CloudEvent is not Base64"),
    (structured(data_base64=1234), (), "data_base64 of the CloudEvent is not Base64"),
    (structured(data=DATA, time=None), (), "time header ce_time is missing"),
    (structured(data=DATA, time="noon"), (), "time header ce_time is not ISO 8601"),
    (structured(data=None), (), "empty record"),
    (structured(), (), "empty record"),
    (None, attributes(), "empty record"),
    (None, (), "empty record"),
    (structured(specversion="0.3", data=DATA), (), "the specversion of the CloudEvent is not 1.0"),
    (b'{"k":"d"}', [("ce_specversion", b"2")], "the specversion of the CloudEvent is not 1.0"),
    (b'{"k":"d"}', [("ce_specversion", None)], "the specversion of the CloudEvent is not 1.0"),
    (b"Obj\x01", [("content-type", b"application/cloudevents+avro")], "the CloudEvent is structured, but not in JSON"),
    (b'{"k":"d"}', [("content-type", b"application/json")], NO_EVENT),
    (b"[]", (), "malformed CloudEvent"),
    (b'{"specversion":"1.0","time":"\xff"}', (), "malformed CloudEvent"),
    (b'{"specversion":' + b"[" * 100_000, (), "malformed CloudEvent"),
]


def test_cloudevents_each_kind_of_record_has_its_outcome() -> None:
    found = outcomes(CLOUDEVENTS, [value for value, _, _ in EVENTS], [headers for _, headers, _ in EVENTS])
    assert found == [outcome for _, _, outcome in EVENTS]


def test_cloudevents_attributes_and_extensions_are_headers_in_both_modes() -> None:
    settings = {
        "envelope": "cloudevents",
        "key": {"fields": [{"header": "ce_type", "name": "type"}, {"header": "own", "name": "own"}]},
        "value": {"header": "ce_weight", "decimals": 1},
        "where": [{"header": "content-type", "is": "text/plain"}, {"header": "ce_test", "is": "true"}],
    }
    own = ("own", b"x")
    binary = [*attributes(), ("ce_weight", b"15"), ("ce_test", b"true"), ("content-type", b"text/plain"), own]
    value = structured(weight=15, test=True, datacontenttype="text/plain", data="any text")
    expected = [f'["{EVENT["type"]}","x"] 150 {row}' for row in range(2)]
    assert outcomes(settings, [b"any text", value], [binary, [own]]) == expected


def test_cloudevents_media_type_of_structured_data_is_not_that_of_the_event() -> None:
    settings = {"envelope": "cloudevents", "format": "text", "key": {"header": "content-type"}}
    values = [structured(data="x", datacontenttype="text/plain"), structured(data="x")]
    assert outcomes(settings, values, [STRUCTURED] * 2) == ["text/plain 1 0", "key header content-type is missing"]


def test_cloudevents_data_of_any_format_is_read() -> None:
    settings = {"envelope": "cloudevents", "format": "csv", "key": {"field": 1}, "value": {"field": 0}}
    values = [structured(data="5,a\n", datacontenttype="text/csv"), structured(data_base64="NixiCg==")]
    assert outcomes(settings, values) == ["a 5 0", "b 6 1"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"envelope": "maxwell", "key": {"field": "k"}}, "should be debezium or cloudevents, or a mapping"),
        ({"envelope": {"row": "before"}, "key": {"field": "k"}}, "should be debezium or cloudevents, or a mapping"),
        ({"envelope": {"name": ["debezium"]}, "key": {"field": "k"}}, "should be debezium or cloudevents, or"),
        ({"envelope": "debezium", "format": "csv", "key": {"field": 0}}, "debezium needs a format with nested fields"),
        (
            {"envelope": {"name": "debezium", "operations": ["create", "delete"]}, "key": {"field": "k"}},
            "operations: delete has no row after the change",
        ),
        (
            {"envelope": {"name": "debezium", "row": "before", "operations": ["snapshot"]}, "key": {"field": "k"}},
            "operations: snapshot has no row before the change",
        ),
        ({"envelope": {"name": "debezium", "operations": ["truncate"]}, "key": {"field": "k"}}, "operations.0"),
        ({"envelope": {"name": "cloudevents", "row": "after"}, "key": {"field": "k"}}, "cloudevents.row"),
    ],
)
def test_envelope_settings_without_meaning_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ParsingSettings.model_validate(settings)


@pytest.mark.parametrize(("envelope", "form"), RECORDS)
def test_envelope_recognizes_its_own_records_only(envelope: str, form: str) -> None:
    record = RECORDS[envelope, form]('{"k":"a"}')
    assert [name for name, kind in ENVELOPES.items() if kind.recognizes(*record)] == [envelope]
    assert not any(kind.recognizes(value, ()) for kind in ENVELOPES.values() for value in (b'{"k":"a"}', b"text", b"{"))
