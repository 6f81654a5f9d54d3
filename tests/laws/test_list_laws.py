"""Laws of keys and values at any depth of lists in lists, in every format whose records have lists."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.avro import encoded, record_of
from skewless.parsing.protobuf.compile_schema import compile_text
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.schema_registry.schema import Schema

MAX_DEPTH = 2
AVRO = record_of("Node", key="string", amount="long", inner={"type": "array", "items": "Node"})
TEXT = 'syntax = "proto3"; message Node { string key = 1; int64 amount = 2; repeated Node inner = 3; }'
FILE = compile_text(Schema("PROTOBUF", TEXT))
NODE: Any = message_factory.GetMessageClass(FILE.message_types_by_name["Node"])
Node = dict[str, Any]
ENCODERS: Mapping[str, Callable[[Node], bytes]] = {
    "json": lambda node: json.dumps(node).encode(),
    "avro": lambda node: encoded(AVRO, node),
    "protobuf": lambda node: NODE(**node).SerializeToString(),
}


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, dict[str, Any]]:
    """Return the settings of each format."""
    folder = tmp_path_factory.mktemp("schemas")
    avro, protobuf = folder / "node.avsc", folder / "node.descriptors"
    avro.write_text(json.dumps(AVRO))
    files = descriptor_pb2.FileDescriptorSet()
    FILE.CopyToProto(files.file.add())
    protobuf.write_bytes(files.SerializeToString())
    return {
        "json": {"name": "json"},
        "avro": {"name": "avro", "schema": str(avro)},
        "protobuf": {"name": "protobuf", "schema": str(protobuf), "message": "Node"},
    }


Shape = list["Shape"]
"""The lists of a record: one entry per element, which has a list of its own."""


def shapes(depth: int) -> st.SearchStrategy[Shape]:
    return st.lists(shapes(depth - 1), max_size=2) if depth else st.just([])


def node_of(shape: Shape, numbers: Iterator[int]) -> Node:
    """Return a record, or an element of a list, whose number no other one has."""
    number = next(numbers)
    return {"key": str(number), "amount": number, "inner": [node_of(inner, numbers) for inner in shape]}


def paths_to(node: Node, depth: int) -> Iterator[list[Node]]:
    """Yield each element at a depth, after all that contain it."""
    if not depth:
        yield [node]
    for inner in node["inner"] if depth else ():
        yield from ([node, *path] for path in paths_to(inner, depth - 1))


@pytest.mark.parametrize("name", ENCODERS)
@settings(max_examples=settings().max_examples * 4)
@given(records=st.lists(st.none() | shapes(MAX_DEPTH), max_size=4), depth=st.integers(1, MAX_DEPTH), data=st.data())
def test_tuples_of_lists_have_the_values_of_what_contains_their_key(
    name: str, formats: Mapping[str, Any], records: list[Shape | None], depth: int, data: st.DataObject
) -> None:
    depths = data.draw(st.lists(st.integers(0, depth), min_size=1, unique=True))
    document = {
        "format": formats[name],
        "key": {"field": "inner[]." * depth + "key"},
        "values": {f"v{each}": {"field": "inner[]." * each + "amount"} for each in depths},
    }
    numbers = count()
    nodes = [None if shape is None else node_of(shape, numbers) for shape in records]
    payloads = [None if node is None else ENCODERS[name](node) for node in nodes]
    parser = RecordParser(ParsingSettings.model_validate(document))

    def parsed(first: int, end: int) -> list[tuple[Any, ...]]:
        batch = parser.parse(RecordColumns.of_values(payloads[first:end], np.zeros(end - first, np.int64)))
        columns = (column.to_pylist() for column in batch.values.values())
        return list(zip((first + batch.records).tolist(), batch.keys, *columns, strict=True))

    expected = [
        (row, path[-1]["key"], *(path[each]["amount"] for each in depths))
        for row, node in enumerate(nodes)
        for path in (() if node is None else paths_to(node, depth))
    ]
    assert parsed(0, len(nodes)) == expected
    assert [found for row in range(len(nodes)) for found in parsed(row, row + 1)] == expected
