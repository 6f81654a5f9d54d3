"""Public records: headers, and compatibility with the records of version 0.2.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.generate.asyncapi_page import fields
from docs.generate.examples import written_records
from skewless import topology
from skewless.asyncapi.document import ANY, Document, document
from skewless.asyncapi.messages import messages_of
from skewless.asyncapi.schemas import REF
from skewless.wire.headers import ARROW, BYTES, CONTENT_TYPE_HEADER, JSON, SCHEMA_HEADER

EARLIER = json.loads((Path(__file__).parent / "public-records-0.2.0.json").read_text())
"""Type of each field and header of 0.2.0, and whether every record has it, by the name and version of the format."""
FORMATS = {
    "late": "skewless.late.v1",
    "aggregates": "skewless.aggregate.v1",
    "top": "skewless.top.v1",
    "distribution": "skewless.distribution.v1",
    "hot-keys": "skewless.hot-key.v1",
    "dead-letters": "skewless.dead-letter.v1",
    "joined": "skewless.joined.v1",
    "unmatched-left": "skewless.unmatched.v1",
    "unmatched-right": "skewless.unmatched.v1",
    "join-late": "skewless.join-late.v1",
}
"""Format of the records of each public topic."""


@pytest.fixture(scope="module")
def today() -> Document:
    return document()


def fields_of(made: Document, message: dict[str, Any], part: str) -> dict[str, list[Any]]:
    """Return type and presence of the fields of a record by path."""
    schema_by_name = made["components"]["schemas"]
    schema = message.get(part, {})
    resolved = schema_by_name[schema["$ref"].removeprefix(REF)] if "$ref" in schema else schema
    found = fields(resolved, schema_by_name) if "properties" in resolved else ()
    return {field.path: [field.type, field.required] for field in found}


@pytest.mark.parametrize("name", EARLIER)
@pytest.mark.parametrize("part", ["headers", "payload"])
def test_public_record_of_a_format_of_0_2_0_has_every_field_with_its_type(
    today: Document, name: str, part: str
) -> None:
    (message,) = (row for row in today["components"]["messages"].values() if row["name"] == name)
    assert EARLIER[name][part].items() <= fields_of(today, message, part).items()


def test_public_records_of_all_topics_have_a_format_and_a_content_type() -> None:
    # The records of enriched are those of the user.
    assert FORMATS.keys() | {"enriched"} == {row.name for row in topology.TOPICS if row.public}
    run = written_records(ANY)
    for topic, schema in FORMATS.items():
        headers = [dict(record.headers) for record in run[topic]]
        assert {each[SCHEMA_HEADER].decode() for each in headers} == {schema}
        content_types = {BYTES.encode(), ARROW.encode()} if topic == "dead-letters" else {JSON.encode()}
        assert {each[CONTENT_TYPE_HEADER] for each in headers} <= content_types


def test_public_records_of_a_topic_share_one_list_of_headers() -> None:
    """They are the hot path of the aggregator, so that its output builds nothing per record."""
    headers = {id(record.headers) for record in written_records(ANY)["aggregates"]}
    assert len(headers) == 1


def test_public_topics_have_records_of_one_format() -> None:
    assert {topic: {row.schema_header for row in messages_of(topic)} for topic in FORMATS} == {
        topic: {schema} for topic, schema in FORMATS.items()
    }
