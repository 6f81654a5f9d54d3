"""Results in the formats of a registry: their schemas, and the same results after encoding and decoding."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import schema_of_results, subject_of
from skewless.errors import BadRecordError
from skewless.schema_registry.result_codecs import decoder, encoder
from skewless.schema_registry.result_registration import differences
from skewless.schema_registry.result_schemas import SchemaFormat
from skewless.wire.aggregates import aggregate_type, encode_json

FORMATS: tuple[SchemaFormat, ...] = get_args(SchemaFormat)
INT64 = st.integers(-(2**63), 2**63 - 1)
EXACT = st.integers(-(10**30), 10**30).map(lambda number: Decimal(number).scaleb(-2))
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)


def settings_of(**aggregator: Any) -> PipelineSettings:
    value = {"price": {"field": "p", "decimals": 2}, "name": {"field": "n", "kind": "text", "missing": "skip"}}
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


ROWS = st.tuples(
    st.text(max_size=5),
    INT64.map(lambda ms: ms // 2**22),
    INT64.map(lambda ms: ms // 2**22),
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
    schema, parts = schema_of_results(settings), settings.splitter.key.parts
    record_type = aggregate_type(settings.results, settings.aggregator.numbers, parts)
    encode = encoder(schema_format, schema, 7)
    texts = {7: schema.text(schema_format)}
    to_json = decoder(schema_format, schema, texts.__getitem__, as_text=as_text)
    for row in rows:
        fields = [_as_text(field) for field in row] if as_text else list(row)
        record = record_type(*fields)
        value = encode(record)
        assert value[:5] == b"\0\0\0\0\7"
        assert json.loads(to_json(value), parse_float=Decimal) == json.loads(encode_json(record), parse_float=Decimal)


def _as_text(field: Any) -> Any:
    if isinstance(field, list):
        return [_as_text(item) for item in field]
    return f"{field:f}" if isinstance(field, Decimal) else field


NO_RESULTS = [b"", b"[", b"\1\0\0\0\7\0", b"\0\0\0\0\7" + b"\xff" * 10]
CASES = [
    (schema_format, value)
    for schema_format in FORMATS
    for value in NO_RESULTS
    if schema_format != "json_schema" or value[:1] != b"\0"  # its readers refuse what is not JSON
]


@pytest.mark.parametrize(("schema_format", "value"), CASES)
def test_value_that_is_no_result_is_a_bad_record(schema_format: SchemaFormat, value: bytes) -> None:
    schema = schema_of_results(settings_of())
    to_json = decoder(schema_format, schema, lambda _: schema.text(schema_format), as_text=False)
    with pytest.raises(BadRecordError):
        to_json(value)


@pytest.mark.parametrize("schema_format", FORMATS)
def test_json_of_before_the_format_was_set_is_read(schema_format: SchemaFormat) -> None:
    schema = schema_of_results(settings_of())
    to_json = decoder(schema_format, schema, lambda _: schema.text(schema_format), as_text=False)
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
    assert subject_of(settings, schema_of_results(settings)) == expected


@pytest.mark.parametrize("schema_format", FORMATS)
def test_differences_of_schemas_name_the_fields(schema_format: SchemaFormat) -> None:
    def text(aggregates: list[Any]) -> str:
        return schema_of_results(settings_of(aggregates=aggregates)).text(schema_format)

    before = text(["count", {"sum": "price", "as": "total"}])
    after = text(["count", {"mean": "price", "as": "total"}, {"distinct": "name", "as": "names"}])
    first, second = differences(before, after)
    assert first.startswith("field total was ")
    assert second == "field names is new"


def test_schema_of_protobuf_keeps_the_numbers_of_results_when_one_is_appended() -> None:
    def numbers(aggregates: list[Any]) -> dict[str, int]:
        schema = schema_of_results(settings_of(aggregates=aggregates))
        return {column.name: number for number, column in schema.numbered()}

    before, after = numbers(["count"]), numbers(["count", {"sum": "price"}])
    assert before.items() < after.items()
    assert before["revision"] == 6, "after the parts of the key"


def test_pipeline_with_a_format_and_no_registry_is_refused() -> None:
    document = {"name": "p", "source": {"topic": "t"}, "aggregator": {"format": "avro"}}
    with pytest.raises(ValueError, match=r"registry\.url: missing; aggregator\.format: avro needs a registry"):
        PipelineSettings.model_validate(document)
