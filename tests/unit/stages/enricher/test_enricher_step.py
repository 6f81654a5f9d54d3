"""The enricher adds the headers of tables only."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.avro import encoded, record_of
from helpers.batches import reasons_in
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.engine.step import Sample
from skewless.in_memory import InMemoryPipeline
from skewless.stages.enricher.settings import EnrichSettings
from skewless.stages.enricher.step import EnricherStep
from skewless.stages.enricher.table import Table
from skewless.wire.dead_letters import DeadLetterHeaders
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

NOW = 1_767_225_600_000


def pipeline(**of_table: Any) -> InMemoryPipeline:
    table = {"topic": "users", "key": {"field": "user"}, "fields": {"country": "country"}, **of_table}
    settings = {
        "name": "views",
        "enrich": {"topic": "page-views", "tables": [table]},
        "source": {"topic": "views.enriched"},
        "splitter": {"format": "json", "key": {"header": "country"}},
        "aggregator": {"aggregates": ["count"], "emit": "final"},
    }
    return InMemoryPipeline(PipelineSettings.model_validate(settings))


@pytest.mark.parametrize(
    ("default", "headers", "counted"),
    [(None, [("page", b"/")], []), ("unknown", [("page", b"/"), ("country", b"unknown")], ["unknown"])],
)
def test_enricher_record_without_a_row_is_not_counted_under_a_header_that_it_already_has(
    default: str | None, headers: list[tuple[str, bytes]], counted: list[str]
) -> None:
    record = OutputRecord("page-views", b'{"user": "ann"}', partition=0, headers=[("country", b"xx"), ("page", b"/")])
    outputs = pipeline(missing="keep", default=default).process([record], NOW, end=True)
    assert [list(enriched.headers) for enriched in outputs["enriched"]] == [headers]
    assert [json.loads(result.value or b"")["key"] for result in outputs["aggregates"]] == counted
    assert len(outputs["dead-letters"]) == 1 - len(counted)


def batch(topic: str, *records: OutputRecord) -> MessageBatch:
    return MessageBatch.of_outputs(TopicPartition(topic, 0), records, 0)


def enriched(record: OutputRecord, *tables: dict[str, Any], format_: Any = "json") -> list[OutputRecord]:
    """Return what the enricher writes for a record; the first table has a row of the key `ann`."""
    settings = EnrichSettings.model_validate({"topic": "views", "format": format_, "tables": tables})
    built = [Table(table) for table in settings.tables]
    built[0].update(batch("users", OutputRecord("users", b'{"a": 1}', b"ann")))
    return list(EnricherStep(settings, built).process(batch("views", record), NOW))


def test_enricher_with_several_tables_adds_the_row_of_each_by_its_own_key() -> None:
    users = {"topic": "users", "encoding": "int64", "fields": {"age": "a"}}
    pages = {"topic": "pages", "key": {"field": "page"}, "fields": {"title": "t"}}
    sites = {"topic": "sites", "key": {"header": "site"}, "fields": {"owner": "o"}}
    settings = EnrichSettings.model_validate({"topic": "views", "tables": [users, pages, sites]})
    tables, user = [Table(table) for table in settings.tables], struct.pack(">q", 7)
    rows = [(user, b'{"a": 1}'), (b"p", b'{"t": "home"}'), (b"s", b'{"o": "me"}')]
    for table, (key, value) in zip(tables, rows, strict=True):
        table.update(batch(table.topic, OutputRecord(table.topic, value, key)))
    record = OutputRecord("views", b'{"page": "p"}', user, headers=[("site", b"s")])
    (output,) = EnricherStep(settings, tables).process(batch("views", record), NOW)
    assert (output.topic, output.partition, output.key) == ("enriched", 0, user)
    assert list(output.headers) == [("site", b"s"), ("age", b"1"), ("title", b"home"), ("owner", b"me")]


def test_enricher_record_without_a_key_does_not_get_the_row_of_the_empty_key() -> None:
    settings = EnrichSettings.model_validate({"topic": "views", "tables": [{"topic": "users", "fields": {"age": "a"}}]})
    table = Table(settings.tables[0])
    table.update(batch("users", OutputRecord("users", b'{"a": 1}', b"")))
    step = EnricherStep(settings, [table])
    empty, missing = step.process(batch("views", *(OutputRecord("views", b"{}", key) for key in (b"", None))), NOW)
    assert list(empty.headers) == [("age", b"1")]
    headers = {name: value.decode() for name, value in missing.headers}
    assert msgspec.convert(headers, DeadLetterHeaders).topic == "views"
    samples = {sample.name: sample.value for sample in step.collect_metrics() if isinstance(sample, Sample)}
    assert samples["skewless_enricher_missing_rows_total"] == 1


@pytest.mark.parametrize("value", [{"x": {"o": 1}}, {"x": [1]}, []])
def test_enricher_record_without_a_readable_key_of_a_table_that_keeps_it_is_passed_on_with_other_tables(
    value: object,
) -> None:
    users = {"topic": "users", "fields": {"age": "a"}}
    pages = {"topic": "pages", "key": {"field": "x"}, "fields": {"title": "t"}, "missing": "keep", "default": "-"}
    (output,) = enriched(OutputRecord("views", msgspec.json.encode(value), b"ann"), users, pages)
    assert (output.topic, list(output.headers)) == ("enriched", [("age", b"1"), ("title", b"-")])


@pytest.mark.parametrize("key", [["p"], {"p": 1}, "p" * 1025])
@pytest.mark.parametrize("format_name", ["json", "avro"])
def test_enricher_record_with_an_unreadable_key_of_one_table_gets_the_rows_of_others_with_keys_in_fields(
    format_name: str, key: object, tmp_path: Path
) -> None:
    users = {"topic": "users", "key": {"field": "u"}, "fields": {"age": "a"}}
    pages = {"topic": "pages", "key": {"field": "x"}, "fields": {"title": "t"}, "missing": "keep", "default": "-"}
    fields = {"x": key, "u": "ann"}
    format_: Any = "json"
    value = msgspec.json.encode(fields)
    if format_name == "avro":
        items = {"type": "array", "items": "string"}
        schema = record_of("view", x=["string", items, {"type": "map", "values": "int"}], u="string")
        (tmp_path / "views.avsc").write_text(json.dumps(schema))
        format_ = {"name": "avro", "schema": str(tmp_path / "views.avsc")}
        value = encoded(schema, fields)
    record = OutputRecord("views", value)
    (output,) = enriched(record, users, pages, format_=format_)
    assert (output.topic, list(output.headers)) == ("enriched", [("age", b"1"), ("title", b"-")])
    (refused,) = enriched(record, users, {**pages, "missing": "dead_letter", "default": None}, format_=format_)
    ((_, reason),) = reasons_in([refused])
    assert reason.startswith("enrich.tables.1.key field x ")


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (b"{", [("u", b"ann")], None),
        (b"{", [("u", b"\xff")], "enrich.tables.0.key header u is not UTF-8"),
        (b"{", [], "enrich.tables.0.key is missing"),
        (b'{"x": [1]}', [("u", b"ann")], None),
        (b'{"x": [1]}', [("u", b"bob")], "table users has no row for its key (enrich.tables.0.key)"),
    ],
)
def test_enricher_record_with_a_key_in_a_header_gets_its_row_whatever_is_wrong_with_the_value(
    value: bytes, headers: list[tuple[str, bytes]], reason: str | None
) -> None:
    users = {"topic": "users", "key": {"header": "u"}, "fields": {"age": "a"}}
    pages = {"topic": "pages", "key": {"field": "x"}, "fields": {"title": "t"}, "missing": "keep", "default": "-"}
    (output,) = enriched(OutputRecord("views", value, headers=headers), users, pages)
    if reason is None:
        assert list(output.headers) == [*headers, ("age", b"1"), ("title", b"-")]
    else:
        assert reasons_in([output]) == [(0, reason)]


@pytest.mark.parametrize(
    ("encoding", "key", "problem"),
    [
        ("int64", b"1", "record key is not an int64 of 8 bytes"),
        ("utf8", b"\xff", "record key is not UTF-8"),
        ("utf8", None, "record key is missing"),
    ],
)
def test_enricher_record_whose_key_is_unreadable_becomes_a_dead_letter_with_the_reason(
    encoding: str, key: bytes | None, problem: str
) -> None:
    users = {"topic": "users", "encoding": encoding, "fields": {"age": "a"}}
    outputs = enriched(OutputRecord("views", b"{}", key), users)
    assert reasons_in(outputs) == [(0, f"enrich.tables.0.key: {problem}")]


def test_table_whose_row_has_a_field_of_a_wrong_type_names_its_setting() -> None:
    settings = EnrichSettings.model_validate({"topic": "views", "tables": [{"topic": "users", "fields": {"age": "a"}}]})
    (line,) = Table(settings.tables[0]).update(batch("users", OutputRecord("users", b'{"a": {}}', b"ann")))
    assert line.startswith("users/0 at offset 0: enrich.tables.fields.age field a has the wrong type")
