"""Laws of the scan of Protobuf: for any message and paths, it finds what Google's library decodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from skewless.parsing.elements import NOT_A_SCALAR, Scanned, WantedPaths
from skewless.parsing.json_path import LIST, lists_of, parse_path
from skewless.parsing.protobuf.compile_schema import compile_text
from skewless.parsing.protobuf.plan import plan_of
from skewless.parsing.protobuf.scan import scan
from skewless.schema_registry.schema import Schema

TEXT = """
syntax = "proto3";
package acme;
import "google/protobuf/wrappers.proto";
enum Kind { NONE = 0; CLICK = 1; VIEW = 7; }
message Click {
  string text = 1; int32 i32 = 2; int64 i64 = 3; uint32 u32 = 4; uint64 u64 = 5; sint32 s32 = 6; sint64 s64 = 7;
  fixed32 f32 = 8; fixed64 f64 = 9; sfixed32 sf32 = 10; sfixed64 sf64 = 11; bool flag = 12; double real = 13;
  bytes raw = 14; Kind kind = 15; optional int32 maybe = 16; oneof what { string a = 17; Click self = 18; }
  repeated Click children = 19; repeated int32 packed = 20; repeated string names = 21; repeated double reals = 22;
  map<string, int64> counts = 23; map<string, Click> clicks = 24; google.protobuf.Int64Value wrapped = 1000;
}
"""
CLICK = compile_text(Schema("PROTOBUF", TEXT)).message_types_by_name["Click"]
NEW: Any = message_factory.GetMessageClass(CLICK)
SCALARS = [
    "text",
    "i32",
    "i64",
    "u32",
    "u64",
    "s32",
    "s64",
    "f32",
    "f64",
    "sf32",
    "sf64",
    "flag",
    "real",
    "raw",
    "kind",
]
PATHS = [
    *SCALARS, "maybe", "a", "self.text", "self.maybe", "self.self.i32", "children[].i64", "children[].names[]",
    "children[].children[].s64", "packed[]", "names[]", "reals[]", "counts.x", "counts.ü", "clicks.x.maybe", "wrapped",
]  # fmt: skip
NUMBERS = {
    "i32": st.integers(-(2**31), 2**31 - 1), "i64": st.integers(-(2**63), 2**63 - 1),
    "u32": st.integers(0, 2**32 - 1), "u64": st.integers(0, 2**64 - 1),
}  # fmt: skip
KINDS = NUMBERS | {
    "s32": NUMBERS["i32"], "s64": NUMBERS["i64"], "f32": NUMBERS["u32"], "f64": NUMBERS["u64"],
    "sf32": NUMBERS["i32"], "sf64": NUMBERS["i64"], "text": st.text(max_size=5), "raw": st.binary(max_size=5),
    "flag": st.booleans(), "real": st.floats(allow_nan=False), "kind": st.sampled_from([0, 1, 7, 9]),
    "maybe": NUMBERS["i32"], "packed": st.lists(NUMBERS["i32"], max_size=3),
    "names": st.lists(st.text(max_size=3), max_size=3), "reals": st.lists(st.floats(allow_nan=False), max_size=2),
    "counts": st.dictionaries(st.sampled_from(["x", "ü", ""]), NUMBERS["i64"]),
    "wrapped": st.integers(-5, 5).map(lambda value: {"value": value}),
}  # fmt: skip


def fields(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the fields of a message."""
    optional = dict(KINDS)
    if depth:
        inner = fields(depth - 1)
        optional |= {
            "children": st.lists(inner, max_size=2),
            "clicks": st.dictionaries(st.sampled_from(["x", "y"]), inner.map(lambda found: NEW(**found)), max_size=1),
            "self": inner.map(lambda found: NEW(**found)),
        }
    return st.fixed_dictionaries({}, optional=optional)


def elements(message: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the elements at a path of a message as Google's library has them."""
    if not path:
        yield message
        return
    name, *rest = path
    if name == LIST:
        for item in message or ():
            yield from elements(item, rest)
        return
    if not isinstance(message, Message):
        found: Any = message[name] if message is not None and name in message else None
        yield from elements(found, rest)
        return
    part = message.DESCRIPTOR.fields_by_name[name]
    found = None if part.has_presence and not message.HasField(name) else getattr(message, name)
    if part.enum_type is not None:
        symbol = part.enum_type.values_by_number.get(found)
        found = str(found) if symbol is None else symbol.name
    if name == "wrapped" and found is not None:
        found = found.value
    yield from elements(found, rest)


def scanned(wanted: WantedPaths, payloads: Sequence[bytes]) -> Scanned:
    ends = np.cumsum(list(map(len, payloads)))
    starts = ends - np.array(list(map(len, payloads)))
    data = np.frombuffer(b"".join(payloads) or b"\0", np.uint8)
    return Scanned.of(scan, plan_of(CLICK, wanted), wanted, data, starts, ends, 32)


CHOSEN = st.lists(st.sampled_from(PATHS), min_size=1, max_size=4, unique=True).map(
    lambda texts: [path for text in texts if (path := parse_path(text))]
)


@given(st.lists(fields(2), min_size=1, max_size=4), CHOSEN)
def test_scan_finds_what_the_library_decodes(records: list[dict[str, Any]], paths: list[tuple[str, ...]]) -> None:
    messages = [NEW(**record) for record in records]
    wanted = WantedPaths.of(paths)
    found = scanned(wanted, [message.SerializeToString() for message in messages])
    assert not found.errors.any()
    for path in paths:
        level = wanted.levels.index(lists_of(path))
        column = found.column(wanted.paths.index(path), level)
        owners = found.ancestors(level, 0, wanted.level_parents.tolist()).tolist()
        expected = [(i, entry) for i, message in enumerate(messages) for entry in elements(message, path)]
        assert owners == [i for i, _ in expected], path
        plain = [NOT_A_SCALAR if isinstance(entry, bytes) else entry for _, entry in expected]
        assert column == plain, (path, column, plain)
        assert list(map(type, column)) == list(map(type, plain))


@given(st.sampled_from(["i32", "u32", "s32", "kind", "maybe", "flag", "i64", "u64", "s64"]), st.integers(0, 2**64 - 1))
def test_scan_of_a_number_with_too_many_bits_finds_what_the_library_decodes(name: str, number: int) -> None:
    tag = NEW.DESCRIPTOR.fields_by_name[name].number << 3
    payload = b"".join(encoded(part) for part in (tag, number))
    path = (name,)
    assert scanned(WantedPaths.of([path]), [payload]).column(0, 0) == list(elements(NEW.FromString(payload), path))


def encoded(number: int) -> bytes:
    """Return an unsigned integer in the encoding with 7 bits per byte."""
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + encoded(number >> 7)


@given(st.lists(fields(1), min_size=1, max_size=4), CHOSEN, st.data())
def test_scan_of_broken_messages_is_the_same_alone_and_agrees_with_the_library(
    records: list[dict[str, Any]], paths: list[tuple[str, ...]], data: st.DataObject
) -> None:
    wanted, changed = WantedPaths.of(paths), []
    for record in records:
        payload = NEW(**record).SerializeToString()
        start = data.draw(st.integers(0, len(payload)))
        end = start + data.draw(st.integers(0, 2))
        changed.append(payload[:start] + data.draw(st.binary(max_size=3)) + payload[end:])
    found = scanned(wanted, changed)
    alone = [scanned(wanted, [payload]) for payload in changed]
    assert [one.errors[0] for one in alone] == found.errors.tolist()
    for path in paths:
        slot, level = wanted.paths.index(path), wanted.levels.index(lists_of(path))
        together = [entry for one in alone for entry in one.column(slot, level)]
        assert str(found.column(slot, level)) == str(together)
    for payload, one in zip(changed, alone, strict=True):
        if one.errors[0]:
            continue
        try:
            message = NEW.FromString(payload)
        except DecodeError:
            continue  # of a field that is skipped, or of a text that is not UTF-8
        for path in paths:
            slot, level = wanted.paths.index(path), wanted.levels.index(lists_of(path))
            expected = [NOT_A_SCALAR if isinstance(entry, bytes) else entry for entry in elements(message, path)]
            assert str(one.column(slot, level)) == str(expected), (path, payload)
