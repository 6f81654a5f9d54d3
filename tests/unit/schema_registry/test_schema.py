"""References of schemas: time that does not grow with the number of ways to one."""

from __future__ import annotations

from time import process_time

from skewless.parsing.formats.avro import parse
from skewless.schema_registry.schema import Schema


def lattice(levels: int) -> Schema:
    """Return a schema of which each level refers to the next one by two names."""
    schema = Schema("AVRO", '"int"')
    for level in range(levels):
        schema = Schema("AVRO", '"int"', {f"{side}{level}": schema for side in "pq"})
    return schema


def test_references_of_equal_schemas_with_many_ways_to_each_are_found_in_linear_time() -> None:
    schema = Schema("AVRO", '"int"', {"a": lattice(24), "b": lattice(24)})
    began = process_time()
    found = list(schema.all_references())
    assert process_time() - began < 1
    assert found == [*(f"{side}{level}" for level in range(24) for side in "pq"), "a", "b"]


def test_avro_schema_with_many_ways_to_each_reference_is_parsed_in_linear_time() -> None:
    schema = lattice(20)
    began = process_time()
    parse(schema)
    assert process_time() - began < 1
