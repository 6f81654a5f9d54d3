"""Elements that a scan has found in the records of a batch, and their conversion to scalars. For binary formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from skewless.parsing.compiled_parts import gather
from skewless.parsing.converters import Unit
from skewless.parsing.fixed_point import Scalar
from skewless.parsing.json_path import LIST, Path, lists_of

NULL: Final = 0
BOOLEAN: Final = 1
LONG: Final = 2
FLOAT: Final = 3
DOUBLE: Final = 4
BYTES: Final = 5
STRING: Final = 6
FIXED: Final = 7
ENUM: Final = 8
UNION: Final = 9
RECORD: Final = 10
ARRAY: Final = 11
MAP: Final = 12
UNSIGNED: Final = 13
TIMESTAMP: Final = 14
"""Kinds of elements. An int of Avro is a LONG, because both have the same encoding."""

MIN_CAPACITY: Final = 16
DAY_MS: Final = 86_400_000
PER_MS: Final = {"millis": 1, "micros": 1000, "nanos": 1_000_000}
MAX_SCALE: Final = 1000
"""Maximum decimals of a number, as in PostgreSQL. A schema may have any, and a text has a zero for each."""
MAX_MS: Final = 9_000_000_000_000_000
"""Instants beyond this are too large in any unit, also after they are multiplied."""


class NotAScalar:
    """A record, list, map, or bytes that are not a number."""


class NotUtf8:
    """A text that is not UTF-8."""


NOT_A_SCALAR: Final = NotAScalar()
NOT_UTF8: Final = NotUtf8()

Entry = Scalar | None | NotAScalar | NotUtf8
"""An element. None: it is null or absent."""


@dataclass(slots=True)
class Scanned:
    """What was found in the records of a batch."""

    leaves: Sequence[LeafType]
    """Types of the elements. An element has the number of its type, plus 1, as tag. Tag 0: there is none."""
    data: NDArray[np.uint8]
    counts: NDArray[np.int64]
    """Number of the elements of each level."""
    parents: NDArray[np.int64]
    tags: NDArray[np.int32]
    values: NDArray[np.int64]
    lengths: NDArray[np.int64]
    errors: NDArray[np.uint8]
    """Error of each record; 0: none."""

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - by position
        cls,
        scan: Callable[..., int],
        plan: Plan,
        wanted: WantedPaths,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        max_depth: int,
    ) -> Self:
        """Scan records, which are at these positions of the data.

        `scan` scans from a record on, and returns the first one that does not fit into the output.
        """
        records = len(starts)
        capacity, levels, slots = max(records, MIN_CAPACITY), len(wanted.levels), len(wanted.paths)
        counts = np.zeros(levels, np.int64)
        counts[0] = records
        found = cls(
            plan.leaves,
            data,
            counts,
            np.zeros((levels, capacity), np.int64),
            np.zeros((slots, capacity), np.int32),
            np.zeros((slots, capacity), np.int64),
            np.zeros((slots, capacity), np.int64),
            np.zeros(records, np.uint8),
        )
        begin = 0
        while True:
            begin = scan(
                data, starts, ends, begin, *plan.tables, plan.keys, plan.key_spans, wanted.level_parents,
                wanted.slot_levels, counts, found.parents, found.tags, found.values, found.lengths, found.errors,
                max_depth,
            )  # fmt: skip
            if begin == records:
                return found
            for name in ("parents", "tags", "values", "lengths"):
                output = getattr(found, name)
                setattr(found, name, np.concatenate((output, np.zeros_like(output)), axis=1))

    def column(self, slot: int, level: int, unit: Unit | None = None) -> list[Entry]:
        """Return the elements of a slot. With a unit, times are numbers of this unit, or texts of `iso8601`."""
        count = int(self.counts[level])
        tags, values, lengths = self.tags[slot, :count], self.values[slot, :count], self.lengths[slot, :count]
        kinds = np.unique(tags)
        if len(kinds) == 1:
            return self._converted(int(kinds[0]), values, lengths, unit)
        column = np.full(count, None, np.object_)
        for tag in kinds.tolist():
            found = np.flatnonzero(tags == tag)
            entries = np.empty(len(found), np.object_)
            entries[:] = self._converted(tag, values[found], lengths[found], unit)
            column[found] = entries
        return column.tolist()

    def ancestors(self, level: int, ancestor: int, level_parents: Sequence[int]) -> NDArray[np.int64]:
        """Return for each element of a level the element of a higher level that contains it."""
        index = np.arange(int(self.counts[level]))
        while level != ancestor:
            index = self.parents[level][index]
            level = level_parents[level]
        return index

    def _converted(  # noqa: C901, PLR0911 - one per kind
        self, tag: int, values: NDArray[np.int64], lengths: NDArray[np.int64], unit: Unit | None
    ) -> list[Entry]:
        """Return elements of one type."""
        if tag == 0:
            return [None] * len(values)
        leaf = self.leaves[tag - 1]
        kind = leaf.kind
        if kind == LONG:
            return _integers(values, leaf.logical, unit)
        if kind == STRING:
            return self._texts(values, lengths)
        if kind == BOOLEAN:
            return cast("list[Entry]", (values != 0).tolist())
        if kind == DOUBLE:
            return cast("list[Entry]", values.view(np.float64).tolist())
        if kind == FLOAT:
            # The shortest decimal that is this float, as a producer wrote it: 0.1, not 0.10000000149011612.
            return list(map(float, values.astype(np.int32).view(np.float32).astype(np.str_).tolist()))
        if kind == ENUM:
            return [leaf.symbols.get(number, str(number)) for number in values.tolist()]
        if kind == UNSIGNED:
            return cast("list[Entry]", values.view(np.uint64).tolist())
        if kind == TIMESTAMP:
            seconds = np.clip(values, -MAX_MS // 1000, MAX_MS // 1000)
            return _in_unit(seconds * 1000 + lengths // PER_MS["nanos"], unit or "iso8601")
        if leaf.logical in {"decimal", "uuid"}:
            return self._special(leaf, values, lengths)
        return [None if kind == NULL else NOT_A_SCALAR] * len(values)

    def _texts(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Entry]:
        joined = np.zeros(int(lengths.sum()) + len(lengths), np.uint8)
        gather(self.data, starts, lengths, joined)
        content = joined.tobytes()
        if content.count(0) == len(lengths):  # no text contains a NUL
            with suppress(UnicodeDecodeError):
                return cast("list[Entry]", content.decode().split("\0")[:-1])
        ends = np.cumsum(lengths + 1) - 1
        return [_text(content[start:end]) for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]

    def _special(self, leaf: LeafType, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Entry]:
        data, spans = self.data, zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        contents = (data[start:end].tobytes() for start, end in spans)
        return list(map(_uuid, contents)) if leaf.logical == "uuid" else [_decimal(one, leaf.scale) for one in contents]


def _integers(values: NDArray[np.int64], logical: str, unit: Unit | None) -> list[Entry]:
    """Return integers; dates as text, and with a unit also instants and times of day."""
    kind, _, precision = logical.rpartition("-")
    if logical == "date":
        days = np.clip(values, -MAX_MS // DAY_MS, MAX_MS // DAY_MS)
        if unit in {None, "iso8601"}:
            return cast("list[Entry]", np.datetime_as_string(days.astype("datetime64[D]")).tolist())
        return _in_unit(days * DAY_MS, unit)
    if unit is None or kind not in {"timestamp", "local-timestamp", "time"} or precision not in PER_MS:
        return cast("list[Entry]", values.tolist())
    if (unit, precision) in {("us", "micros"), ("ns", "nanos")}:
        return cast("list[Entry]", values.tolist())
    ms = np.clip(values // PER_MS[precision], -MAX_MS, MAX_MS)
    if kind == "time":
        return [text.partition("T")[2] for text in np.datetime_as_string(ms.astype("datetime64[ms]")).tolist()]
    return _in_unit(ms, unit)


def _in_unit(ms: NDArray[np.int64], unit: Unit | None) -> list[Entry]:
    """Return instants in another unit."""
    match unit:
        case "iso8601":
            return [f"{text}Z" for text in np.datetime_as_string(ms.astype("datetime64[ms]")).tolist()]
        case "us":
            return cast("list[Entry]", (ms * 1000).tolist())
        case "ns":
            return [each * 1_000_000 for each in ms.tolist()]  # the last ones have more than 64 bits
        case "s":
            return cast("list[Entry]", (ms / 1000).tolist())
    return cast("list[Entry]", ms.tolist())


def _text(content: bytes) -> Entry:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return NOT_UTF8


def _uuid(content: bytes) -> Entry:
    return str(UUID(bytes=content)) if len(content) == 16 else NOT_A_SCALAR


def _decimal(content: bytes, scale: int) -> Entry:
    """Return the exact number as text."""
    if scale > MAX_SCALE:
        return NOT_A_SCALAR
    try:
        digits = str(abs(number := int.from_bytes(content, "big", signed=True)))
    except ValueError:  # more digits than Python converts
        return NOT_A_SCALAR
    if scale > 0:
        digits = digits.zfill(scale + 1)
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return f"-{digits}" if number < 0 else digits


@dataclass(slots=True)
class WantedPaths:
    """The paths of wanted elements as slots, and the lists in them as levels. The same for all schemas of a format."""

    paths: tuple[Path, ...]
    """Path of each slot."""
    levels: tuple[Path, ...]
    """Path of the elements of each level, with `[]` at its end. Level 0 are the records."""
    slot_levels: NDArray[np.int64] = field(init=False)
    """Level of each slot."""
    level_parents: NDArray[np.int64] = field(init=False)
    """The level that contains the elements of each level."""

    def __post_init__(self) -> None:
        self.slot_levels = np.array([self.level_of(path) for path in self.paths], np.int64)
        parents = [self.level_of(level[:-1]) if level else 0 for level in self.levels]
        self.level_parents = np.array(parents, np.int64)

    @classmethod
    def of(cls, paths: Iterable[Path]) -> WantedPaths:
        """Return the slots for these paths, and for each list in them."""
        distinct = tuple(dict.fromkeys(paths))
        levels: dict[Path, int] = {(): 0}
        for path in distinct:
            for end, name in enumerate(path, 1):
                if name == LIST:
                    levels.setdefault(path[:end], len(levels))
        lists = (level[:-1] for level in levels if level)
        return cls(tuple(dict.fromkeys((*distinct, *lists))), tuple(levels))

    def level_of(self, path: Path) -> int:
        """Return the level of an element."""
        return self.levels.index(lists_of(path))

    def list_slots(self, path: Path) -> Iterator[int]:
        """Yield the slots of the lists on a path, outermost first."""
        for end, name in enumerate(path):
            if name == LIST:
                yield self.paths.index(path[:end])


@dataclass(frozen=True, slots=True)
class Plan:
    """The tables that drive the scan of records of one schema; see `scan` of each format."""

    tables: tuple[NDArray[np.int64], NDArray[np.int64]]
    keys: NDArray[np.uint8]
    key_spans: NDArray[np.int64]
    leaves: Sequence[LeafType]
    """Types of the elements."""
    absent: frozenset[int]
    """Slots that no record of this schema has."""


@dataclass(frozen=True, slots=True)
class LeafType:
    """What a row of the plan means to those who read its values."""

    kind: int
    logical: str = ""
    scale: int = 0
    symbols: Mapping[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class PlanBuilder:
    """Base of the builders of plans. Collects what a schema has of the wanted elements."""

    wanted: WantedPaths
    leaves: list[LeafType] = field(default_factory=list)
    keys: bytearray = field(default_factory=bytearray)
    key_spans: list[tuple[int, int, int]] = field(default_factory=list)
    found: set[int] = field(default_factory=set)

    def slot(self, path: Path | None, *, is_list: bool = False) -> int:
        """Return the slot of an element; -1 if there is none, or if a list is wanted and it is none."""
        if path not in self.wanted.paths or (not is_list and self.has_wanted((*path, LIST))):
            return -1
        slot = self.wanted.paths.index(path)
        self.found.add(slot)
        return slot

    def has_wanted(self, path: Path) -> bool:
        """Return whether an element is wanted that is at a path or below it."""
        return any(wanted[: len(path)] == path for wanted in self.wanted.paths)

    def add_entries(self, path: Path, add: Callable[[Path], int]) -> tuple[int, int]:
        """Add the wanted entries of a map. Returns their number, and the row of the first one in `key_spans`.

        `add` adds the type of the entry at a path, and returns its number.
        """
        depth, spans = len(path), []
        names = dict.fromkeys(p[depth] for p in self.wanted.paths if len(p) > depth and p[:depth] == path)
        names.pop(LIST, None)
        for name in names:
            encoded, first = name.encode(), len(self.keys)
            self.keys += encoded  # before the entry, which may be a map with keys of its own
            spans.append((first, len(encoded), add((*path, name))))
        self.key_spans += spans
        return len(spans), len(self.key_spans) - len(spans)

    def plan(self, tables: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Plan:
        """Return the plan with these tables."""
        return Plan(
            tables,
            np.frombuffer(bytes(self.keys) or b"\0", np.uint8),
            np.array(self.key_spans or [(0, 0, 0)], np.int64).reshape(-1, 3),
            self.leaves,
            frozenset(range(len(self.wanted.paths))) - self.found,
        )
