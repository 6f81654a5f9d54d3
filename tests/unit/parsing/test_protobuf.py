"""The format protobuf with the descriptors of a file: fields, absence, timestamps, wrappers and broken messages."""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, json_format, message_factory

from skewless.algorithms.record_size import DOCUMENT_BYTES
from skewless.errors import ConfigurationError
from skewless.parsing.formats.base import ParsedBatch
from skewless.parsing.formats.protobuf import ProtobufSchema, least_json_bytes
from skewless.parsing.protobuf.compile_schema import compile_text
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.schema_registry.schema import Schema, prefix
from skewless.schema_registry.settings import RegistrySettings

TIME = 1_767_225_600_123
TEXT = """
syntax = "proto3";
package acme;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Click {
  User user = 1; int64 price = 2; google.protobuf.Timestamp at = 3; google.protobuf.StringValue label = 4;
  oneof what { string page = 5; string ad = 6; } repeated Item items = 7; optional int32 discount = 8;
  string camel_case = 9;
}
message User { string id = 1; }
message Item { string sku = 1; double price = 2; }
"""
FILE = compile_text(Schema("PROTOBUF", TEXT))
CLICK: Any = message_factory.GetMessageClass(FILE.message_types_by_name["Click"])
IMPORTS = ("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto")


def descriptors(folder: Path) -> Path:
    """Write descriptors as protoc does, each file after those that it imports."""
    files = descriptor_pb2.FileDescriptorSet()
    for file in (*(FILE.pool.FindFileByName(name) for name in IMPORTS), FILE):
        file.CopyToProto(files.file.add())
    path = folder / "click.descriptors"
    path.write_bytes(files.SerializeToString())
    return path


def parse(messages: Sequence[Any], folder: Path, settings: dict[str, Any]) -> ParsedBatch:
    format_ = {"name": "protobuf", "schema": str(descriptors(folder)), "message": "acme.Click"}
    parser = RecordParser(ParsingSettings.model_validate({"format": format_, **settings}))
    payloads = [entry if entry is None or isinstance(entry, bytes) else entry.SerializeToString() for entry in messages]
    return parser.parse(RecordColumns.of_values(payloads, np.zeros(len(payloads), np.int64)))


def click(**fields: Any) -> Any:
    message = CLICK(**fields)
    message.at.FromMilliseconds(TIME)
    return message


@pytest.mark.parametrize("unit", ["ms", "s", "us", "ns", "iso8601"])
def test_protobuf_timestamp_is_the_event_time_in_any_unit(unit: str, tmp_path: Path) -> None:
    settings = {"key": {"field": "user.id"}, "time": {"field": "at", "unit": unit}}
    parsed = parse([click(user={"id": "a"})], tmp_path, settings)
    assert (parsed.keys, parsed.times.tolist(), parsed.invalid) == (["a"], [TIME], [])


def test_protobuf_absent_fields_have_their_default_or_are_missing(tmp_path: Path) -> None:
    values = {"price": {"field": "price"}, "discount": {"field": "discount", "missing": "skip"}}
    messages = [click(user={}), click(user={"id": "a"}, price=7, discount=0), click()]
    parsed = parse(messages, tmp_path, {"key": {"field": "user.id"}, "values": values})
    assert parsed.keys == ["", "a"]
    assert parsed.values["price"].to_pylist() == [0, 7]
    assert parsed.values["discount"].to_pylist() == [None, 0]
    assert parsed.invalid == [(2, "key field user.id is missing")]


def test_protobuf_wrappers_oneofs_and_names_of_json_are_read(tmp_path: Path) -> None:
    parts = [{"field": "label"}, {"field": "page"}, {"field": "camelCase", "name": "camel"}]
    messages = [click(label={"value": "x"}, page="/", camel_case="c"), click(label={}, page="/"), click(ad="a")]
    parsed = parse(messages, tmp_path, {"key": {"fields": parts}})
    assert parsed.keys == ['["x","/","c"]', '["","/",""]']
    assert parsed.invalid == [(2, "key part label field label is missing")]


def test_protobuf_elements_of_lists_are_tuples(tmp_path: Path) -> None:
    messages = [click(items=[{"sku": "a", "price": 0.5}, {"sku": "b", "price": 1.5}]), click(), click(items=[{}])]
    settings = {"key": {"field": "items[].sku"}, "value": {"field": "items[].price", "decimals": 1}}
    parsed = parse(messages, tmp_path, settings)
    assert (parsed.keys, parsed.records.tolist(), parsed.invalid) == (["a", "b", ""], [0, 0, 2], [])
    assert parsed.values["value"].to_pylist() == [5, 15, 0]


@pytest.mark.parametrize(("name", "content"), [("tags", ["q"]), ("nums", [1, 2]), ("reals", [0.5]), ("items", [{}])])
def test_protobuf_list_with_elements_exists_for_conditions(name: str, content: list[Any]) -> None:
    fields = "repeated string tags = 1; repeated int32 nums = 2; repeated double reals = 3; repeated Item items = 4;"
    text = f'syntax = "proto3"; message M {{ {fields} string id = 5; }} message Item {{ string sku = 1; }}'
    schema = Schema("PROTOBUF", text)
    message = message_factory.GetMessageClass(compile_text(schema).message_types_by_name["M"])
    values = [
        prefix(7) + b"\0" + message(id=key, **fields).SerializeToString()
        for key, fields in (("a", {name: content}), ("b", {}))
    ]
    records = RecordColumns.of_values(values, np.zeros(2, np.int64))
    for exists, key in ((True, "a"), (False, "b")):
        parsed = parser_of(schema, {"field": "id"}, where=[{"field": name, "exists": exists}]).parse(records)
        assert (parsed.keys, parsed.invalid) == ([key], [])


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (
            click(user={"id": "a"}).SerializeToString()[:-1],
            "broken Protobuf: ends too early (schema click.descriptors)",
        ),
        (b"\x0f", "broken Protobuf: has an unknown wire type (schema click.descriptors)"),
        (b"\x0a\x03\x0a\x01\xff", "key field user.id is not UTF-8"),
        (None, "empty record"),
    ],
)
def test_protobuf_broken_message_is_invalid_next_to_others(payload: bytes | None, reason: str, tmp_path: Path) -> None:
    messages = [click(user={"id": "a"}), payload, click(user={"id": "b"})]
    parsed = parse(messages, tmp_path, {"key": {"field": "user.id"}})
    assert (parsed.keys, parsed.invalid) == (["a", "b"], [(1, reason)])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"message": "acme.Other"}, "format.message: acme.Other is not in"),
        ({"schema": "missing"}, "format.schema: missing: cannot be read"),
        ({"schema": __file__}, "is not a set of descriptors"),
    ],
)
def test_protobuf_schema_file_that_cannot_be_used_is_refused(
    change: dict[str, str], problem: str, tmp_path: Path
) -> None:
    format_ = {"name": "protobuf", "schema": str(descriptors(tmp_path)), "message": "acme.Click"} | change
    with pytest.raises(ConfigurationError, match=problem):
        RecordParser(ParsingSettings.model_validate({"format": format_, "key": {"field": "user.id"}}))


def test_protobuf_setting_of_a_field_that_the_schema_file_lacks_is_named(tmp_path: Path) -> None:
    settings = {
        "key": {"field": "user.id"},
        "value": {"field": "price", "times": "rate"},
        "where": [{"field": "items", "exists": True}, {"field": "contry", "is": "DE"}],
    }
    with pytest.raises(ConfigurationError) as caught:
        parse([], tmp_path, settings)
    lacking = "does not exist in schema click.descriptors"
    assert str(caught.value).splitlines() == [f"value.times: {lacking}", f"where.1.field: {lacking}"]


def test_protobuf_text_that_does_not_compile_or_leaves_its_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="the compiler of Protobuf refuses it"):
        compile_text(Schema("PROTOBUF", "message"))
    with pytest.raises(ValueError, match="outside of the folder"):
        compile_text(Schema("PROTOBUF", TEXT, {"../../x.proto": Schema("PROTOBUF", "")}))


@pytest.mark.parametrize("names", [(".",), ("a", "a/b"), ("a/b", "a"), ("a" * 300,)])
def test_protobuf_text_with_a_reference_that_no_file_can_be_is_refused(names: Sequence[str]) -> None:
    references = dict.fromkeys(names, Schema("PROTOBUF", 'syntax = "proto3";'))
    with pytest.raises(ValueError, match="no file can have the name"):
        compile_text(Schema("PROTOBUF", TEXT, references))


def test_protobuf_text_with_a_reference_that_has_its_name_keeps_both() -> None:
    inner = Schema("PROTOBUF", 'syntax = "proto3"; message Inner { string z = 3; }')
    text = 'syntax = "proto3"; import "schema.proto"; message Outer { string a = 1; Inner inner = 2; }'
    file = compile_text(Schema("PROTOBUF", text, {"schema.proto": inner}))
    assert list(file.message_types_by_name) == ["Outer"]
    assert [part.name for part in file.dependencies[0].message_types_by_name["Inner"].fields] == ["z"]


def test_protobuf_text_with_two_references_of_one_name_is_refused() -> None:
    old, new = (Schema("PROTOBUF", f'syntax = "proto3"; message B {{ string {name} = 1; }}') for name in ("x", "y"))
    middle = Schema("PROTOBUF", 'syntax = "proto3"; import "b.proto"; message A { B b = 1; }', {"b.proto": old})
    text = 'syntax = "proto3"; import "a.proto"; import "b.proto"; message C { A a = 1; B b = 2; }'
    with pytest.raises(ValueError, match=r"two different references have the name b\.proto"):
        compile_text(Schema("PROTOBUF", text, {"a.proto": middle, "b.proto": new}))
    same = compile_text(Schema("PROTOBUF", text, {"a.proto": middle, "b.proto": old}))
    assert list(same.message_types_by_name) == ["C"]


def test_protobuf_document_of_a_join_is_its_json_with_the_names_of_the_schema(tmp_path: Path) -> None:
    format_ = {"name": "protobuf", "schema": str(descriptors(tmp_path)), "message": "acme.Click"}
    parser = RecordParser(ParsingSettings.model_validate({"format": format_, "key": {"field": "user.id"}}))
    message = click(user={"id": "a"}, price=2**60, label={"value": "x"}, page="/", camel_case="y")
    broken = message.SerializeToString() + b"\x4a\x01\xff"  # text that is not UTF-8
    records = RecordColumns.of_values([message.SerializeToString(), broken], np.zeros(2, np.int64))
    assert parser.parse(records).invalid == []
    documents, problems = parser.documents(records, [0, 1])
    assert json.loads(documents[0]) == {
        "user": {"id": "a"},
        "price": str(2**60),
        "at": "2026-01-01T00:00:00.123Z",
        "label": "x",
        "page": "/",
        "items": [],
        "camel_case": "y",
    }
    assert problems == {1: "Protobuf that cannot be converted to JSON"}


def test_protobuf_document_with_the_defaults_of_very_many_messages_is_too_long_for_a_pair(tmp_path: Path) -> None:
    format_ = {"name": "protobuf", "schema": str(descriptors(tmp_path)), "message": "acme.Click"}
    settings = {"format": format_, "key": {"field": "user.id"}, "limits": {"record_bytes": 2**20}}
    parser = RecordParser(ParsingSettings.model_validate(settings))
    payload = CLICK(items=[{}] * (DOCUMENT_BYTES // 20)).SerializeToString()
    records = RecordColumns.of_values([payload, CLICK().SerializeToString()], np.zeros(2, np.int64))
    documents, problems = parser.documents(records, [0, 1])
    assert problems == {0: f"longer than {DOCUMENT_BYTES} bytes as JSON"}
    assert json.loads(documents[1])["items"] == []


def test_protobuf_document_too_long_for_a_pair_is_refused_before_it_takes_memory() -> None:
    fields = "".join(f"int64 number_{number} = {number + 1};" for number in range(100))
    text = f'syntax = "proto3"; message M {{ repeated Item items = 1; }} message Item {{ {fields} }}'
    parser = parser_of(Schema("PROTOBUF", text), {"field": "items[].number_0"})
    records = RecordColumns.of_values([prefix(7) + b"\0" + b"\x0a\0" * 20_000], np.zeros(1, np.int64))
    tracemalloc.start()
    try:
        _, problems = parser.documents(records, [0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert problems == {0: f"longer than {DOCUMENT_BYTES} bytes as JSON"}
    assert peak < 2 * DOCUMENT_BYTES


def test_protobuf_least_json_bytes_are_at_most_those_of_the_document() -> None:
    text = """
    syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
    message M {
      M m = 1; repeated M ms = 2; map<string, M> by_name = 3; map<int32, string> names = 4; optional int32 i = 5;
      google.protobuf.Timestamp at = 6; repeated google.protobuf.Timestamp times = 7; google.protobuf.Struct any = 8;
    }
    """
    message_type: Any = message_factory.GetMessageClass(
        compile_text(Schema("PROTOBUF", text)).message_types_by_name["M"]
    )
    inner = message_type(names={1: "a"}, times=[{}, {}], at={}, i=0)
    message = message_type(m=inner, ms=[inner, {}], by_name={"a": inner}, any={"a": None})
    document = msgspec.json.encode(
        json_format.MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    )
    assert len(document) // 4 < least_json_bytes(message) <= len(document)


class Registry:
    """A registry with one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def schema(self, _schema_id: int) -> Schema:
        return self._schema


def parser_of(schema: Schema, key: dict[str, Any], **splitter: Any) -> RecordParser:
    """Return a parser of the records of a schema with the id 7."""
    settings = ParsingSettings.model_validate({"format": "protobuf", "key": key, **splitter})
    assert settings.bind(RegistrySettings.model_validate({"url": "http://127.0.0.1:1"})) == []
    parser = RecordParser(settings)
    (cache,) = parser.schemas
    cache.client = Registry(schema)  # type: ignore[assignment]  # has the method that the cache calls
    cache.fetch(7)
    return parser


@pytest.mark.parametrize("field", ["tag[]", "item[].sku", "labels[]", "labels.eu[].sku", "tags[][]"])
def test_protobuf_field_that_is_no_list_in_the_schema_has_dead_letters(field: str) -> None:
    fields = "string tag = 1; Item item = 2; map<string, Item> labels = 3; repeated string tags = 4;"
    schema = Schema("PROTOBUF", f'syntax = "proto3"; message M {{ {fields} }} message Item {{ string sku = 1; }}')
    parsed = parser_of(schema, {"field": field}).parse(RecordColumns.of_values([prefix(7) + b"\0"], np.zeros(1, int)))
    assert parsed.invalid == [(0, f"key field {field} is missing in schema 7")]


def test_protobuf_enum_has_its_first_name_and_a_field_with_two_names_one_value() -> None:
    text = """
    syntax = "proto3";
    enum State { option allow_alias = true; UNKNOWN = 0; STARTED = 1; RUNNING = 1; }
    message Job { State state = 1; sint64 user_id = 2; }
    """
    schema = Schema("PROTOBUF", text)
    message = message_factory.GetMessageClass(compile_text(schema).message_types_by_name["Job"])(state=1, user_id=5)
    fields = [{"field": name} for name in ("state", "user_id", "userId")]
    assert keys_of(parser_of(schema, {"fields": fields}), message) == ['["STARTED","5","5"]']


def base64_of(file: Any) -> Schema:
    """Return a schema as the serializers of Python and .NET register it."""
    return Schema("PROTOBUF", base64.b64encode(file.serialized_pb).decode())


def keys_of(parser: RecordParser, message: Any) -> list[str]:
    value = prefix(7) + b"\0" + message.SerializeToString()
    parsed = parser.parse(RecordColumns.of_values([value], np.zeros(1, np.int64)))
    assert parsed.invalid == []
    return parsed.keys


MAPS = """
syntax = "proto3";
package acme;
message Labelled {
  %s
  message Inner { string id = 1; }
}
message Label { string text = 1; }
"""
MAP_FIELDS = "map<string, string> labels = 1; map<string, Label> others = 2;"
MAP_ENTRIES = """
  repeated LabelsEntry labels = 1;
  repeated .acme.Labelled.OthersEntry others = 2;
  message LabelsEntry { option map_entry = true; string key = 1; string value = 2; }
  message OthersEntry {
    option  map_entry=true;
    string key = 1;
    Label value = 2;
  }
"""


@pytest.mark.parametrize("is_referred_to", [False, True])
def test_protobuf_text_with_the_entries_of_maps_is_that_of_maps(*, is_referred_to: bool) -> None:
    schema = Schema("PROTOBUF", MAPS % MAP_ENTRIES)
    if is_referred_to:
        text = 'syntax = "proto3"; import public "maps.proto"; message Outer { acme.Labelled at = 1; }'
        schema = Schema("PROTOBUF", text, {"maps.proto": schema})
    file = compile_text(Schema("PROTOBUF", MAPS % MAP_FIELDS))
    found = compile_text(schema)
    expected, described = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(expected)
    (found.dependencies[0] if is_referred_to else found).CopyToProto(described)
    expected.name = described.name
    assert described == expected
    fields: dict[str, Any] = {"labels": {"eu": "a", "us": "b"}, "others": {"x": {"text": "c"}}}
    message = message_factory.GetMessageClass(file.message_types_by_name["Labelled"])(**fields)
    path = ""
    if is_referred_to:
        message = message_factory.GetMessageClass(found.message_types_by_name["Outer"])(at=fields)
        path = "at."
    parts = {"label": "labels.us", "other": "others.x.text"}
    key = {"fields": [{"name": name, "field": f"{path}{field}"} for name, field in parts.items()]}
    assert keys_of(parser_of(schema, key), message) == ['["b","c"]']


@pytest.mark.parametrize("entry", ["string key = 1; string other = 2;", "double key = 1; string value = 2;"])
def test_protobuf_text_with_entries_of_no_map_is_refused(entry: str) -> None:
    text = f"repeated LabelsEntry labels = 1; message LabelsEntry {{ option map_entry = true; {entry} }}"
    with pytest.raises(ValueError, match="the compiler of Protobuf refuses it"):
        compile_text(Schema("PROTOBUF", MAPS % text))


def test_protobuf_descriptors_in_base64_are_read_with_those_that_they_refer_to() -> None:
    assert keys_of(parser_of(base64_of(FILE), {"field": "user.id"}), click(user={"id": "a"})) == ["a"]
    text = 'syntax = "proto3"; import "click.proto"; message Outer { acme.Click click = 1; }'
    outer = compile_text(Schema("PROTOBUF", text, {"click.proto": Schema("PROTOBUF", TEXT)}))
    message = message_factory.GetMessageClass(outer.message_types_by_name["Outer"])(click={"user": {"id": "b"}})
    for schema in (base64_of(outer), Schema("PROTOBUF", text)):
        for reference in (base64_of(FILE), Schema("PROTOBUF", TEXT)):
            complete = Schema("PROTOBUF", schema.text, {"click.proto": reference})
            assert keys_of(parser_of(complete, {"field": "click.user.id"}), message) == ["b"]


def test_protobuf_text_that_imports_files_of_the_registry_is_compiled() -> None:
    text = """
    syntax = "proto3";
    import "confluent/meta.proto";
    import "confluent/type/decimal.proto";
    import "confluent/type/variant.proto";
    import "confluent/types/decimal.proto";
    message Paid {
      string id = 1 [(confluent.field_meta).doc = "x"];
      confluent.type.Decimal price = 2;
      confluent.type.Variant more = 3;
    }
    """
    file = compile_text(Schema("PROTOBUF", text))
    message = message_factory.GetMessageClass(file.message_types_by_name["Paid"])(id="a", price={"scale": 2})
    assert keys_of(parser_of(Schema("PROTOBUF", text), {"field": "price.scale"}), message) == ["2"]
    own = Schema("PROTOBUF", 'syntax = "proto3"; message Own {}')
    text = 'syntax = "proto3"; import "confluent/meta.proto"; message A { Own own = 1; }'
    file = compile_text(Schema("PROTOBUF", text, {"confluent/meta.proto": own}))
    assert file.message_types_by_name["A"].fields[0].message_type.name == "Own"


def test_records_without_the_indexes_of_their_message_have_one_reason_and_leave_nothing_in_memory() -> None:
    parser = parser_of(Schema("PROTOBUF", TEXT), {"field": "user.id"})
    (cache,) = parser.schemas
    # The text of field 1 is taken for five indexes.
    values = [prefix(7) + CLICK(user={"id": f"user {number}"}).SerializeToString() for number in range(1000)]
    parsed = parser.parse(RecordColumns.of_values(values, np.zeros(len(values), np.int64)))
    assert {reason for _, reason in parsed.invalid} == {"no such message in schema 7"}
    assert len(parsed.invalid) == 1000
    schema = cache.get(7)
    assert isinstance(schema, ProtobufSchema)
    assert schema.plans == {}
