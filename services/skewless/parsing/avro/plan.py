"""The table that drives the scan of records of one Avro schema: its types, and which elements are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from skewless.parsing.elements import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DOUBLE,
    ENUM,
    FIXED,
    FLOAT,
    LONG,
    MAP,
    NULL,
    RECORD,
    STRING,
    UNION,
    LeafType,
    Plan,
    PlanBuilder,
    WantedPaths,
)
from skewless.parsing.json_path import LIST, Path

KINDS: Final = {
    "null": NULL,
    "boolean": BOOLEAN,
    "int": LONG,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": BYTES,
    "string": STRING,
}
SIZES: Final = {"boolean": 1, "float": 4, "double": 8}
MAX_TYPES: Final = 10_000
"""Maximum rows of a plan: a schema could otherwise have a wanted path with very many ways to it."""

MAX_FIXED_BYTES: Final = 2**31 - 1
"""Maximum size of a fixed type, as in Avro for Java."""

MAX_NAME: Final = 255
"""Maximum characters of a field or symbol: as JSON, a record may repeat one more often than it has bytes."""


def plan_of(schema: Any, named: Mapping[str, Any], wanted: WantedPaths) -> Plan:
    """Return the plan of a parsed schema. `named` are its named types. Raises ValueError for one that is too large."""
    return _Builder(wanted, named=named).build(schema)


@dataclass(slots=True)
class _Builder(PlanBuilder):
    named: Mapping[str, Any] = field(kw_only=True)
    rows: list[list[int]] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    """Row of each named type that is skipped."""

    def build(self, schema: Any) -> Plan:
        self._add(schema, ())
        return self.plan((np.array(self.rows, np.int64).reshape(-1, 5), np.array(self.children or [0], np.int64)))

    def _row(self, leaf: LeafType, size: int = 0, slot: int = -1) -> int:
        if len(self.rows) == MAX_TYPES:
            raise ValueError(f"the schema needs more than {MAX_TYPES} rows")
        self.rows.append([leaf.kind, 0, size, slot, 0])
        self.leaves.append(leaf)
        return len(self.rows) - 1

    def _add(self, schema: Any, path: Path | None) -> int:
        """Add the rows of a type, and return the number of its first one. Path None: it is skipped."""
        if isinstance(schema, list):
            return self._add_union(schema, path)
        declared = {"type": schema} if isinstance(schema, str) else schema
        if isinstance(declared["type"], dict | list):  # {"type": {"type": "string"}}
            return self._add(declared["type"], path)
        declared = self.named.get(declared["type"], declared)
        name = declared.get("name", "")
        if path is None and name in self.skipped:
            return self.skipped[name]
        add = {"record": self._add_record, "error": self._add_record, "array": self._add_array, "map": self._add_map}
        row = add.get(declared["type"], self._add_leaf)(declared, path)
        if path is None and name:
            self.skipped[name] = row
        return row

    def _add_leaf(self, declared: Mapping[str, Any], path: Path | None) -> int:
        slot, symbols = self.slot(path), tuple(declared.get("symbols", ()))
        _refuse_long(symbols)
        match declared["type"]:
            case "enum":
                return self._row(LeafType(ENUM, symbols=dict(enumerate(symbols))), len(symbols), slot)
            case "fixed":
                return self._row(_leaf(FIXED, declared), _size(declared["size"]), slot)
            case name:
                return self._row(_leaf(KINDS[name], declared), SIZES.get(name, 0), slot)

    def _add_union(self, branches: Sequence[Any], path: Path | None) -> int:
        row = self._row(LeafType(UNION), len(branches))
        self._set_children(row, [self._add(branch, path) for branch in branches])
        return row

    def _add_record(self, record: Mapping[str, Any], path: Path | None) -> int:
        fields = record["fields"]
        row = self._row(LeafType(RECORD), len(fields), self.slot(path))
        if path is None:
            self.skipped[record["name"]] = row  # before its fields, which may contain the type itself
        names = [part["name"] for part in fields]
        _refuse_long(names)
        types = []
        for part in fields:
            inner = None if path is None else self._wanted_field(part, names, path)
            types.append(self._add(part["type"], inner))
        self._set_children(row, types)
        return row

    def _wanted_field(self, part: Mapping[str, Any], names: Sequence[str], path: Path) -> Path | None:
        """Return the path of a field, by its name or, if there is no field of that name, by an alias."""
        aliases = (alias for alias in part.get("aliases", ()) if alias not in names)
        return next((inner for name in (part["name"], *aliases) if self.has_wanted(inner := (*path, name))), None)

    def _add_array(self, declared: Mapping[str, Any], path: Path | None) -> int:
        row = self._row(LeafType(ARRAY), slot=self.slot(path, is_list=True))
        inner = None if path is None else (*path, LIST)
        is_wanted = inner is not None and self.has_wanted(inner)
        self.rows[row][1] = self._add(declared["items"], inner if is_wanted else None)
        self.rows[row][4] = self.wanted.levels.index(inner) if is_wanted and inner is not None else 0
        return row

    def _add_map(self, declared: Mapping[str, Any], path: Path | None) -> int:
        values = declared["values"]
        row = self._row(LeafType(MAP), slot=self.slot(path))
        self.rows[row][1] = self._add(values, None)
        if path is not None:
            self.rows[row][2], self.rows[row][4] = self.add_entries(path, partial(self._add, values))
        return row

    def _set_children(self, row: int, types: Sequence[int]) -> None:
        self.rows[row][1] = len(self.children)
        self.children += types


def _size(declared: Any) -> int:
    """Return the bytes of a fixed type. The scan trusts it, and fastavro accepts any value."""
    if type(declared) is not int or not 0 <= declared <= MAX_FIXED_BYTES:
        raise ValueError(f"the size of a fixed type is not a number from 0 to {MAX_FIXED_BYTES}")
    return declared


def _refuse_long(names: Sequence[str]) -> None:
    if max(map(len, names), default=0) > MAX_NAME:
        raise ValueError(f"a name has more than {MAX_NAME} characters")


def _leaf(kind: int, declared: Mapping[str, Any]) -> LeafType:
    logical = declared.get("logicalType")
    scale = declared.get("scale", 0)
    return LeafType(kind, logical if isinstance(logical, str) else "", scale if isinstance(scale, int) else 0)
