"""Results in the formats of a registry: their schemas, and the same results after encoding and decoding."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from typing import Any, get_args

import msgspec
import pytest
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st

from skewless.algorithms.record_size import DOCUMENT_BYTES, PRODUCED_BYTES
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import aggregates_output, result_reader, result_writer
from skewless.errors import BadRecordError, ConfigurationError, UnknownSchemaError
from skewless.kafka.errors import TOPIC_BYTES
from skewless.parsing.field_settings import LimitSettings
from skewless.parsing.protobuf.compile_schema import compile_text
from skewless.schema_registry.client import ReferencesError, RegistryClient
from skewless.schema_registry.result_codecs import decoder, encoder
from skewless.schema_registry.result_registration import differences
from skewless.schema_registry.result_schemas import SchemaFormat, pair_schema
from skewless.schema_registry.schema import Schema
from skewless.wire.aggregates import aggregate_type, encode_json
from skewless.wire.joined import JoinedRecord

FORMATS: tuple[SchemaFormat, ...] = get_args(SchemaFormat)
INT64 = st.integers(-(2**63), 2**63 - 1)
EXACT = st.integers(-(10**30), 10**30).map(lambda number: Decimal(number).scaleb(-2))
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)


def settings_of(decimals: int = 2, **aggregator: Any) -> PipelineSettings:
    value = {"price": {"field": "p", "decimals": decimals}, "name": {"field": "n", "kind": "text", "missing": "skip"}}
    aggregates = [
        "count",
        {"sum": "price"},
        {"mean": "price"},
        {"distinct": "name"},
        {"largest": "price", "n": 3},
        {"min": "price"},
    ]
    return PipelineSettings.model_validate(
        {
            "name": "9-orders",
            "source": {"topic": "t"},
            "registry": {"url": "http://localhost:1"},
            "splitter": {
                "key": {"fields": [{"field": "country"}, {"field": "city"}]},
                "values": value,
            },
            "aggregator": {"aggregates": aggregates, **aggregator},
        }
    )


TIMES = INT64.map(lambda ms: ms // 2**22)
ROWS = st.tuples(
    st.text(max_size=5),
    TIMES,
    TIMES,
    st.text(max_size=3),
    st.text(max_size=3),
    st.integers(0, 2**63 - 1),
    EXACT,
    st.none() | DOUBLE,
    st.integers(0, 2**40),
    st.lists(EXACT, max_size=3),
    EXACT,
    st.integers(0, 2**31),
)


@pytest.mark.parametrize("schema_format", FORMATS)
@pytest.mark.parametrize("numbers", ["number", "text"])
@given(rows=st.lists(ROWS, max_size=4))
def test_result_decoded_is_the_json_of_the_encoded_record(
    schema_format: SchemaFormat, numbers: str, rows: list[tuple[Any, ...]]
) -> None:
    settings = settings_of(numbers=numbers)
    as_text = numbers == "text"
    schema, parts = aggregates_output(settings).schema, settings.splitter.key.parts
    record_type = aggregate_type(settings.results, settings.aggregator.numbers, parts)
    encode = encoder(schema_format, schema, 7)
    texts = {7: schema.text(schema_format)}
    to_json = decoder(schema_format, schema, texts.__getitem__)
    for row in rows:
        fields = [_as_text(field) for field in row] if as_text else list(row)
        record = record_type(*fields)
        value = encode(record)
        assert value[:5] == b"\0\0\0\0\7"
        assert json.loads(to_json(value), parse_float=Decimal) == json.loads(encode_json(record), parse_float=Decimal)


@pytest.mark.parametrize("schema_format", FORMATS)
@pytest.mark.parametrize("number", [0.1, -0.07, 1e-07, 12345678.9, 1e22])
def test_double_has_the_digits_of_the_result_without_an_exponent(schema_format: SchemaFormat, number: float) -> None:
    """Small results are doubles, of which `0.1` is not a tenth."""
    settings = settings_of(decimals=9, aggregates=[{"sum": "price", "as": "total"}])
    schema, parts = aggregates_output(settings).schema, settings.splitter.key.parts
    record = aggregate_type(settings.results, "number", parts)("k", 0, 1, "DE", "Köln", number, 1)
    value = encoder(schema_format, schema, 7)(record)
    to_json = decoder(schema_format, schema, lambda _: schema.text(schema_format))
    assert json.loads(to_json(value), parse_float=Decimal)["total"] == Decimal(repr(number))
    if schema_format == "protobuf":  # the number is text
        assert f"{Decimal(repr(number)):f}".encode() in value


@pytest.mark.parametrize("schema_format", FORMATS)
@pytest.mark.parametrize(("missing", "found"), [("skip", None), ("skip", [3]), ("invalid", [])])
def test_list_without_values_is_null_if_the_result_may_be(
    schema_format: SchemaFormat, missing: str, found: list[int] | None
) -> None:
    document = {
        "name": "p",
        "source": {"topic": "t"},
        "splitter": {"key": {"field": "k"}, "value": {"field": "v", "missing": missing}},
        "aggregator": {"aggregates": [{"largest": "value", "n": 3}]},
    }
    settings = PipelineSettings.model_validate(document)
    schema = aggregates_output(settings).schema
    value = encoder(schema_format, schema, 7)(aggregate_type(settings.results)("k", 0, 1, found, 0))
    assert json.loads(decoder(schema_format, schema, lambda _: schema.text(schema_format))(value))["largest"] == found


def _as_text(field: Any) -> Any:
    if isinstance(field, list):
        return [_as_text(item) for item in field]
    return f"{field:f}" if isinstance(field, Decimal) else field


def test_pair_of_the_longest_records_fits_its_topic_and_in_any_schema_a_producer() -> None:
    document = msgspec.Raw(b'"%b"' % (rb"\"" * (DOCUMENT_BYTES // 2 - 1)))
    pair = JoinedRecord("\1" * LimitSettings.model_fields["key_bytes"].metadata[1].le, document, document, 0, 0)
    key = pair.id.encode()
    assert len(key) + len(encode_json(pair)) < TOPIC_BYTES
    for schema_format in FORMATS:
        assert len(key) + len(encoder(schema_format, pair_schema("p"), 7)(pair)) < PRODUCED_BYTES


NO_RESULTS = [b"", b"[", b"\1\0\0\0\7\0", b"\0\0\0\0\7" + b"\xff" * 10]
CASES = [
    (schema_format, value)
    for schema_format in FORMATS
    for value in NO_RESULTS
    if schema_format != "json_schema" or value[:1] != b"\0"  # its readers refuse what is not JSON
]


@pytest.mark.parametrize(("schema_format", "value"), CASES)
def test_value_that_is_no_result_is_a_bad_record(schema_format: SchemaFormat, value: bytes) -> None:
    schema = aggregates_output(settings_of()).schema
    to_json = decoder(schema_format, schema, lambda _: schema.text(schema_format))
    with pytest.raises(BadRecordError):
        to_json(value)


INVALID_DEFAULT = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}'
OTHER_PAIR = '{"type":"record","name":"R","fields":[{"name":"left","type":"int"},{"name":"right","type":"int"}]}'


@pytest.mark.parametrize(
    ("schema_format", "text", "content"),
    [
        ("avro", '"string"', b"\2a"),
        ("avro", INVALID_DEFAULT, b"\2"),
        ("avro", OTHER_PAIR, b"\2\2"),
        ("protobuf", "message Other { string key = 1; }", b"\0\x0a\1a"),
    ],
)
def test_value_of_another_schema_is_a_bad_record(schema_format: SchemaFormat, text: str, content: bytes) -> None:
    to_json = decoder(schema_format, pair_schema("p"), lambda _: text)
    with pytest.raises(BadRecordError, match="of schema 7"):
        to_json(b"\0\0\0\0\7" + content)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnknownSchemaError("no schema"), "the registry has no schema 7"),
        (ReferencesError("http://r", "refers to more than 100 others"), "schema 7 refers to more than 100 others"),
    ],
)
def test_value_whose_schema_cannot_be_read_is_a_bad_record(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def refused(_client: RegistryClient, _schema_id: int) -> Schema:
        raise error

    monkeypatch.setattr(RegistryClient, "schema", refused)
    read = result_reader(settings_of(format="avro"))
    with pytest.raises(BadRecordError, match=reason):
        read(b"\0\0\0\0\7x")


@pytest.mark.parametrize("schema_format", FORMATS)
def test_json_of_before_the_format_was_set_is_read(schema_format: SchemaFormat) -> None:
    schema = aggregates_output(settings_of()).schema
    to_json = decoder(schema_format, schema, lambda _: schema.text(schema_format))
    assert to_json(b'{"key":"a"}') == b'{"key":"a"}'


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("topic", "9-orders.aggregates-value"),
        ("record", "skewless._9_orders.Aggregate"),
        ("topic_record", "9-orders.aggregates-skewless._9_orders.Aggregate"),
    ],
)
def test_subject_of_each_strategy_is_that_of_serializers(subject: str, expected: str) -> None:
    settings = settings_of(subject=subject, format="avro")
    assert aggregates_output(settings).subject == expected


@pytest.mark.parametrize("schema_format", FORMATS)
def test_differences_of_schemas_name_the_fields(schema_format: SchemaFormat) -> None:
    def text(aggregates: list[Any]) -> str:
        return aggregates_output(settings_of(aggregates=aggregates)).schema.text(schema_format)

    before = text(["count", {"sum": "price", "as": "total"}])
    after = text(["count", {"mean": "price", "as": "total"}, {"distinct": "name", "as": "names"}])
    first, second = differences(before, after)
    assert first.startswith("field total was ")
    assert second == "field names is new"


@pytest.mark.parametrize(
    "registered",
    [
        '"string"',
        '["null", "string"]',
        "null",
        "5",
        '{"type": "string"}',
        '{"fields": {}}',
        '{"fields": ["a", {}]}',
        '{"properties": ["a"]}',
    ],
)
def test_differences_of_a_registered_schema_without_fields_are_new_fields(registered: str) -> None:
    current = json.dumps({"fields": [{"name": "a", "type": "string"}]})
    assert list(differences(registered, current)) == ["field a is new"]
    assert list(differences('{"fields": [{"name": "a"}]}', current)) == ["field a was null, and is string"]


def test_schema_of_protobuf_keeps_the_numbers_of_results_when_one_is_appended() -> None:
    def numbers(aggregates: list[Any]) -> dict[str, int]:
        schema = aggregates_output(settings_of(aggregates=aggregates)).schema
        return {column.name: number for number, column in schema.numbered()}

    before, after = numbers(["count"]), numbers(["count", {"sum": "price"}])
    assert before.items() < after.items()
    assert before["revision"] == 6, "after the parts of the key"


def test_value_of_protobuf_from_before_another_order_of_aggregates_has_its_results() -> None:
    """The numbers of fields follow the order of the aggregates, and the schema of each value says which it was."""
    orders = (["count", {"min": "price"}, {"max": "price"}], ["count", {"max": "price"}, {"min": "price"}])
    before, after, with_more = (
        aggregates_output(settings_of(aggregates=order)).schema for order in (*orders, [*orders[1], {"sum": "price"}])
    )
    record = aggregate_type(settings_of(aggregates=orders[0]).results, "number", ("country", "city"))
    value = encoder("protobuf", before, 7)(record("k", 0, 1, "DE", "Köln", 3, Decimal(1), Decimal(9), 0))
    for schema in (before, after, with_more):
        found = json.loads(decoder("protobuf", schema, {7: before.text("protobuf")}.__getitem__)(value))
        assert (found["count"], found["min_price"], found["max_price"], found.get("sum_price")) == (3, 1, 9, None)


def test_schema_of_protobuf_as_registered_reads_the_messages() -> None:
    """Consumers compile the registered text. A result that is missing is then absent, and not 0."""
    settings = settings_of()
    schema, parts = aggregates_output(settings).schema, settings.splitter.key.parts
    row = (
        "k",
        0,
        1,
        "DE",
        "Köln",
        3,
        Decimal("12.50"),
        None,
        2,
        [Decimal("7.25"), Decimal("5.25")],
        Decimal("5.25"),
        1,
    )
    value = encoder("protobuf", schema, 7)(aggregate_type(settings.results, "number", parts)(*row))
    file = compile_text(Schema("PROTOBUF", schema.text("protobuf")))
    message: Any = message_factory.GetMessageClass(file.message_types_by_name["Aggregate"]).FromString(value[6:])
    absent = {column.name for column, field in zip(schema.columns, row, strict=True) if field is None}
    results = {column.name for column in schema.columns if column.is_result and not column.is_list}
    assert {name for name in results if not message.HasField(name)} == absent
    found = [getattr(message, column.name) for column in schema.columns if column.name not in absent]
    expected = ["k", 0, 1, "DE", "Köln", 3, "12.50", 2, ["7.25", "5.25"], "5.25", 1]
    assert found == expected


DOCUMENTS = st.recursive(st.none() | st.integers(-(2**53), 2**53) | st.text(max_size=3), st.lists, max_leaves=3)


@pytest.mark.parametrize("schema_format", FORMATS)
@given(left=st.dictionaries(st.text(max_size=3), DOCUMENTS, max_size=3), right=st.text(), times=st.tuples(TIMES, TIMES))
def test_pair_decoded_is_the_json_of_the_pair_byte_for_byte(
    schema_format: SchemaFormat, left: Any, right: str, times: tuple[int, int]
) -> None:
    schema = pair_schema("a-pipeline")
    first, second = (msgspec.Raw(msgspec.json.encode(document)) for document in (left, right))
    pair = JoinedRecord("é", first, second, *times)
    value = encoder(schema_format, schema, 7)(pair)
    assert value[:5] == b"\0\0\0\0\7"
    assert decoder(schema_format, schema, lambda _: schema.text(schema_format))(value) == encode_json(pair)


@pytest.mark.parametrize("schema_format", FORMATS)
def test_schema_of_pairs_has_each_document_as_text(schema_format: SchemaFormat) -> None:
    text = pair_schema("9 a.b").text(schema_format)
    expected = {
        "avro": '{"name": "left", "type": "string"}',
        "json_schema": '"left": {"type": "string"}',
        "protobuf": "string left = 2;",
    }
    assert expected[schema_format] in text
    assert "skewless._9_a_b" in text


@pytest.mark.parametrize("value", [b"\0\0\0\0\7{}", b"\0\0\0\0\7[]", b"\0\0\0\0\7{", b"\0\0\0\0\7" + b'{"left":1}'])
def test_json_that_is_no_pair_is_a_bad_record(value: bytes) -> None:
    to_json = decoder("json_schema", pair_schema("p"), lambda _: "")
    with pytest.raises(BadRecordError):
        to_json(value)


def test_results_of_protobuf_with_the_name_of_a_generated_oneof_are_read() -> None:
    """The compiler generates `_count` for the optional field `count`, unless a field has this name."""
    settings = settings_of(format="protobuf", aggregates=["count", {"sum": "price", "as": "_count"}])
    schema, parts = aggregates_output(settings).schema, settings.splitter.key.parts
    record = aggregate_type(settings.results, "number", parts)("k", 0, 1, "DE", "Köln", 3, Decimal("1.50"), 1)
    value = encoder("protobuf", schema, 7)(record)
    found = json.loads(decoder("protobuf", schema, lambda _: schema.text("protobuf"))(value))
    assert (found["count"], found["_count"]) == (3, 1.5)
    file = compile_text(Schema("PROTOBUF", schema.text("protobuf")))
    message: Any = message_factory.GetMessageClass(file.message_types_by_name["Aggregate"]).FromString(value[6:])
    assert (message.count, getattr(message, "_count")) == (3, "1.50")  # noqa: B009 - not a private attribute


SAME = "have the same name in the JSON of Protobuf"
OTHERS = "has other characters than letters of English, digits and underscores"


@pytest.mark.parametrize(
    ("schema_format", "names", "words"),
    [
        ("protobuf", ["n1", "n_1"], f"n1 and n_1 {SAME}"),
        ("protobuf", ["_", "__"], f"_ and __ {SAME}"),
        ("protobuf", ["größe"], f"größe {OTHERS}"),
        ("avro", ["größe"], f"größe {OTHERS}"),
    ],
)
def test_results_whose_names_the_schema_cannot_have_are_refused(
    schema_format: str, names: list[str], words: str
) -> None:
    aggregates = [{"sum": "price", "as": name} for name in names]
    with pytest.raises(ValueError, match=f"{schema_format} cannot have these results and parts of the key: {words}; "):
        settings_of(format=schema_format, aggregates=aggregates)
    assert settings_of(format="json_schema", aggregates=aggregates).results


def test_part_of_a_key_whose_name_the_schema_cannot_have_is_refused() -> None:
    document = {
        "name": "p",
        "source": {"topic": "t"},
        "registry": {"url": "http://localhost:1"},
        "splitter": {"key": {"fields": [{"field": "windowStart"}, {"field": "city"}]}},
        "aggregator": {"format": "protobuf"},
    }
    with pytest.raises(ValueError, match=f"window_start and windowStart {SAME}"):
        PipelineSettings.model_validate(document)


@given(st.lists(st.from_regex("[a_][a1_]{0,3}", fullmatch=True), unique=True, max_size=4))
def test_results_of_protobuf_that_are_not_refused_have_an_encoder(names: list[str]) -> None:
    try:
        settings = settings_of(
            format="protobuf", aggregates=["count", *({"sum": "price", "as": name} for name in names)]
        )
    except ValueError as error:
        assert SAME in str(error)  # noqa: PT017 - only some of the names are refused
    else:
        assert callable(encoder("protobuf", aggregates_output(settings).schema, 7))


def test_writer_whose_encoder_cannot_be_built_does_not_ask_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    waits: list[str] = []
    with pytest.raises(ConfigurationError, match="a package is missing"):
        result_writer(settings_of(format="avro"), waits.append)
    assert waits == []


SIDES = {side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")}


def test_join_with_a_format_and_no_registry_is_refused() -> None:
    document = {"name": "p", "join": {**SIDES, "apart_s": 1, "format": "protobuf"}}
    with pytest.raises(ValueError, match=r"registry\.url: missing; join\.format: protobuf needs a registry"):
        PipelineSettings.model_validate(document)


def test_pairs_with_a_schema_as_source_of_the_same_pipeline_are_refused() -> None:
    document = {
        "name": "p",
        "registry": {"url": "http://localhost:1"},
        "join": {**SIDES, "apart_s": 1, "format": "avro"},
        "source": {"topic": "p.joined"},
    }
    with pytest.raises(ValueError, match=r"join\.format: set json, because source\.topic is p\.joined"):
        PipelineSettings.model_validate(document)


def test_pipeline_with_a_format_and_no_registry_is_refused() -> None:
    document = {"name": "p", "source": {"topic": "t"}, "aggregator": {"format": "avro"}}
    with pytest.raises(ValueError, match=r"registry\.url: missing; aggregator\.format: avro needs a registry"):
        PipelineSettings.model_validate(document)
