"""Laws of the scan of Avro: for any schema, records and paths, it finds what fastavro decodes."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from skewless.parsing.avro.plan import plan_of
from skewless.parsing.avro.scan import scan
from skewless.parsing.elements import NOT_A_SCALAR, Scanned, WantedPaths
from skewless.parsing.json_path import LIST, Path, lists_of, paths_conflict

Drawn = tuple[Any, st.SearchStrategy[Any]]
"""A type, and a strategy for its values."""
MAX_DEPTH = 32
TEXT = st.text(max_size=5)
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": TEXT,
    "bytes": st.binary(max_size=5),
}


@st.composite
def drawn_types(draw: st.DrawFn, depth: int, numbers: Iterator[int]) -> Drawn:  # noqa: PLR0911 - one per kind
    """Draw a type, with a name of its own where it needs one."""
    kinds = ["primitive", "enum", "fixed", *(["record", "array", "map", "union"] if depth else ())]
    match draw(st.sampled_from(kinds)):
        case "enum":
            symbols = draw(st.lists(st.sampled_from("ABCDE"), min_size=1, unique=True))
            return {"type": "enum", "name": f"E{next(numbers)}", "symbols": symbols}, st.sampled_from(symbols)
        case "fixed":
            return {"type": "fixed", "name": f"F{next(numbers)}", "size": 3}, st.binary(min_size=3, max_size=3)
        case "record":
            return draw(drawn_records(depth - 1, numbers))
        case "array":
            items, values = draw(drawn_types(depth - 1, numbers))
            return {"type": "array", "items": items}, st.lists(values, max_size=3)
        case "map":
            items, values = draw(drawn_types(depth - 1, numbers))
            return {"type": "map", "values": items}, st.dictionaries(st.sampled_from(["a", "b", "ü"]), values)
        case "union":
            inner, values = draw(drawn_types(depth - 1, numbers).filter(lambda found: not is_nullable(found[0])))
            return (["null", inner] if draw(st.booleans()) else [inner, "null"]), st.none() | values
    name = draw(st.sampled_from(sorted(PRIMITIVES)))
    return name, PRIMITIVES[name]


def is_nullable(schema: Any) -> bool:
    return schema == "null" or isinstance(schema, list)


@st.composite
def drawn_records(draw: st.DrawFn, depth: int, numbers: Iterator[int]) -> Drawn:
    fields = {name: draw(drawn_types(depth, numbers)) for name in draw(st.sampled_from(["a", "ab", "abc"]))}
    schema = {
        "type": "record",
        "name": f"R{next(numbers)}",
        "fields": [{"name": name, "type": schema} for name, (schema, _) in fields.items()],
    }
    return schema, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})


def paths_in(schema: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every element below a type."""
    match schema:
        case [*branches]:
            for branch in branches:
                yield from paths_in(branch, path)
        case {"type": "record", "fields": fields}:
            for part in fields:
                yield (*path, part["name"])
                yield from paths_in(part["type"], (*path, part["name"]))
        case {"type": "array", "items": items}:
            yield (*path, LIST)
            yield from paths_in(items, (*path, LIST))
        case {"type": "map", "values": values}:
            for name in ("a", "ü"):
                yield (*path, name)
                yield from paths_in(values, (*path, name))


def elements(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the elements at a path of a decoded record. A list that is null has none."""
    if not path:
        yield value
    elif path[0] == LIST:
        for item in value if isinstance(value, list) else ():
            yield from elements(item, path[1:])
    else:
        yield from elements(value.get(path[0]) if isinstance(value, dict) else None, path[1:])


def as_entry(value: Any) -> Any:
    return NOT_A_SCALAR if isinstance(value, dict | list | bytes) else value


def same(found: Any, expected: Any) -> bool:
    """Compare entries. A float is found as its shortest decimal."""
    if isinstance(expected, float) and isinstance(found, float):
        return found == expected or struct.pack("<f", found) == struct.pack("<f", expected)
    return type(found) is type(expected) and bool(found == expected)


def encode(schema: Any, record: Any) -> bytes:
    output = io.BytesIO()
    schemaless_writer(output, schema, record)
    return output.getvalue()


def scanned(schema: Any, wanted: WantedPaths, payloads: Sequence[bytes]) -> Scanned:
    named: dict[str, Any] = {}
    plan = plan_of(parse_schema(schema, named_schemas=named), named, wanted)
    ends = np.cumsum(list(map(len, payloads)))
    starts = ends - np.array(list(map(len, payloads)))
    data = np.frombuffer(b"".join(payloads) or b"\0", np.uint8)
    return Scanned.of(scan, plan, wanted, data, starts, ends, MAX_DEPTH)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[Any], list[Path]]:
    """Draw a schema, records, and paths that one record can have."""
    schema, values = draw(drawn_records(3, iter(range(1000))))
    paths: list[Path] = []
    for path in draw(st.lists(st.sampled_from(list(paths_in(schema))), min_size=1, max_size=4)):
        if not any(paths_conflict(path, other) for other in paths):
            paths.append(path)
    return schema, draw(st.lists(values, min_size=1, max_size=5)), paths


@given(cases())
def test_scan_finds_what_fastavro_decodes(case: tuple[Any, list[Any], list[Path]]) -> None:
    schema, records, paths = case
    wanted = WantedPaths.of(paths)
    found = scanned(schema, wanted, [encode(parse_schema(schema), record) for record in records])
    assert not found.errors.any()
    for path in paths:
        level = wanted.levels.index(lists_of(path))
        column = found.column(wanted.paths.index(path), level)
        owners = found.ancestors(level, 0, wanted.level_parents.tolist()).tolist()
        expected = [(i, as_entry(entry)) for i, record in enumerate(records) for entry in elements(record, path)]
        assert owners == [i for i, _ in expected], path
        assert all(map(same, column, (entry for _, entry in expected))), (path, column, expected)


@given(cases(), st.data())
def test_scan_accepts_only_payloads_that_fastavro_reads_to_the_end(
    case: tuple[Any, list[Any], list[Path]], data: st.DataObject
) -> None:
    schema, records, paths = case
    parsed, wanted = parse_schema(schema), WantedPaths.of(paths)
    changed = []
    for record in records:
        payload = encode(parsed, record)
        start = data.draw(st.integers(0, len(payload)))
        end = start + data.draw(st.integers(0, 2))
        changed.append(payload[:start] + data.draw(st.binary(max_size=3)) + payload[end:])
    found = scanned(schema, wanted, changed)
    for payload, error in zip(changed, found.errors.tolist(), strict=True):
        if error == 0:
            stream = io.BytesIO(payload)
            try:
                schemaless_reader(stream, parsed, None)
            except UnicodeDecodeError:
                continue  # a text that is skipped is not decoded
            assert not stream.read()
    alone = [scanned(schema, wanted, [payload]) for payload in changed]
    assert [one.errors[0] for one in alone] == found.errors.tolist()
    for path in paths:
        slot, level = wanted.paths.index(path), wanted.levels.index(lists_of(path))
        together = [entry for one in alone for entry in one.column(slot, level)]
        assert str(found.column(slot, level)) == str(together)
