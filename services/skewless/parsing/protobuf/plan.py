"""The tables that drive the scan of Protobuf messages of one type: the wanted fields of each message on a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from skewless.parsing.elements import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DOUBLE,
    ENUM,
    FLOAT,
    LONG,
    RECORD,
    STRING,
    TIMESTAMP,
    UNSIGNED,
    LeafType,
    Plan,
    PlanBuilder,
    WantedPaths,
)
from skewless.parsing.json_path import LIST, Path
from skewless.parsing.protobuf import scan

MESSAGE_TYPE: Final = 11
ENUM_TYPE: Final = 14
SCALARS: Final[Mapping[int, tuple[int, int]]] = {
    1: (scan.FIXED64, DOUBLE),
    2: (scan.FIXED32, FLOAT),
    3: (scan.VARINT, LONG),  # int64
    4: (scan.VARINT, UNSIGNED),  # uint64
    5: (scan.INT32, LONG),
    6: (scan.FIXED64, UNSIGNED),
    7: (scan.FIXED32, LONG),
    8: (scan.VARINT, BOOLEAN),
    9: (scan.BYTES, STRING),
    12: (scan.BYTES, BYTES),
    13: (scan.UINT32, LONG),
    ENUM_TYPE: (scan.INT32, ENUM),
    15: (scan.SIGNED32, LONG),  # sfixed32
    16: (scan.FIXED64, LONG),  # sfixed64
    17: (scan.ZIGZAG32, LONG),
    18: (scan.ZIGZAG, LONG),  # sint64
}
"""Kind of the scan and kind of the element, by the type of a field in its descriptor."""
TIMESTAMP_NAME: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def plan_of(descriptor: Any, wanted: WantedPaths) -> Plan:
    """Return the plan for the messages of a descriptor."""
    return _Builder(wanted).build(descriptor)


@dataclass(slots=True)
class _Builder(PlanBuilder):
    messages: list[list[tuple[int, ...]]] = field(default_factory=list)
    """Rows of the fields of each message."""

    def build(self, descriptor: Any) -> Plan:
        self.add(descriptor, ())
        ends = np.cumsum([len(rows) for rows in self.messages])
        starts = ends - [len(rows) for rows in self.messages]
        rows = [row for rows in self.messages for row in rows]
        messages = np.stack((starts, ends), axis=1).astype(np.int64)
        return self.plan((messages, np.array(rows or [(0,) * 8], np.int64).reshape(-1, 8)))

    def add(self, descriptor: Any, path: Path) -> int:
        """Add a message, and return its number."""
        number = len(self.messages)
        self.messages.append([])
        names = {part.name for part in descriptor.fields}
        for part in descriptor.fields:
            others = () if part.json_name in names else (part.json_name,)
            for name in (part.name, *others):
                self._add_field(number, part, (*path, name))
        return number

    def _add_field(self, message: int, part: Any, path: Path) -> None:
        if not self.has_wanted(path):
            return
        if not part.is_repeated:
            self._add_value(message, part, path, self.slot(path), 0)
        elif part.message_type is not None and part.message_type.GetOptions().map_entry:
            self._add_map(message, part, path, self.slot(path))
        else:
            slot = self.slot(path, is_list=True)
            if self.has_wanted(element := (*path, LIST)):
                self._add_value(message, part, element, self.slot(element), self.wanted.levels.index(element))
            elif slot >= 0:
                self._row(message, part.number, scan.LIST, slot, LeafType(ARRAY))

    def _add_value(self, message: int, part: Any, path: Path, slot: int, level: int) -> None:
        """Add the row of a field, or of the elements of a repeated one."""
        if part.type != MESSAGE_TYPE:
            if part.type not in SCALARS or slot < 0:  # a group, or a scalar that a path goes through
                return
            kind, leaf = SCALARS[part.type]
            # Reversed, so that of several names of a number the first one counts.
            values = reversed(part.enum_type.values) if part.type == ENUM_TYPE else ()
            symbols = {value.number: value.name for value in values}
            is_default = not part.has_presence and level == 0
            self._row(message, part.number, kind, slot, LeafType(leaf, symbols=symbols), level, is_default=is_default)
            return
        name = part.message_type.full_name
        if slot >= 0 and name == TIMESTAMP_NAME:
            inner = self._empty()
            self._row(inner, 1, scan.SECONDS, slot, LeafType(TIMESTAMP), is_default=True)
            self._row(inner, 2, scan.NANOS, slot, LeafType(TIMESTAMP))
            slot = -1
        elif slot >= 0 and name in WRAPPERS:
            inner = self._empty()
            self._add_value(inner, part.message_type.fields_by_name["value"], path, slot, 0)
            slot = -1
        else:
            inner = self.add(part.message_type, path)
        self._row(message, part.number, scan.MESSAGE, slot, LeafType(RECORD), level, (inner, 0))

    def _add_map(self, message: int, part: Any, path: Path, slot: int) -> None:
        """Add the wanted entries of a map whose keys are text."""

        def add(entry_path: Path) -> int:
            entry = self._empty()
            self._add_value(entry, part.message_type.fields_by_name["value"], entry_path, self.slot(entry_path), 0)
            return entry

        self._row(message, part.number, scan.MAP, slot, LeafType(RECORD), 0, self.add_entries(path, add))

    def _empty(self) -> int:
        self.messages.append([])
        return len(self.messages) - 1

    def _row(  # noqa: PLR0913, PLR0917 - by position
        self,
        message: int,
        number: int,
        kind: int,
        slot: int,
        leaf: LeafType,
        level: int = 0,
        target: tuple[int, int] = (0, 0),
        *,
        is_default: bool = False,
    ) -> None:
        self.leaves.append(leaf)
        self.messages[message].append((number, kind, slot, level, *target, len(self.leaves), int(is_default)))
