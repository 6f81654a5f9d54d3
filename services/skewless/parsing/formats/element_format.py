"""Base of the binary formats, whose records are scanned for the elements at the wanted paths."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from skewless.errors import ConfigurationError
from skewless.parsing.converters import Problems, Unit
from skewless.parsing.elements import ARRAY, NOT_UTF8, Entry, Plan, Scanned, WantedPaths
from skewless.parsing.field_settings import TIME_OF_DAY, FieldSettings, value_fields
from skewless.parsing.fixed_point import Scalar
from skewless.parsing.formats.base import ExtractedFields, OptionalFields, is_part, source_label
from skewless.parsing.formats.schema_format import SchemaFormat, SchemaFormatSettings
from skewless.parsing.json_path import field_setting, path_problems, paths_of

Compiled = TypeVar("Compiled")


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found in the records of a batch that have the same schema."""

    rows: NDArray[np.int64]
    """Index of each record in the batch, ascending."""
    found: Scanned
    label: str
    """Name of the schema in reasons."""
    absent: frozenset[int]
    """Slots that no record of this schema has."""


@dataclass(slots=True)
class _Columns:
    """Fields of the valid records of one schema."""

    rows: NDArray[np.int64]
    key_records: NDArray[np.int64]
    """Index in the batch of the record of each key, or of each row if the key is not a field."""
    keys: list[Scalar] = field(default_factory=list)
    times: list[Scalar] = field(default_factory=list)
    parts: dict[str, list[Scalar]] = field(default_factory=dict)
    values: dict[str, list[Scalar | None]] = field(default_factory=dict)


class ElementFormat(SchemaFormat[Compiled]):
    """Base class of the binary formats. A field is an element at a path."""

    field_names: ClassVar[str] = (
        "path such as `user.id`, `tags[]`, `items[].sku` (one tuple per element) or `labels.eu`"
    )
    broken: ClassVar[Mapping[int, str]]
    """Reasons of the errors of a scan."""
    lists_may_be_null: ClassVar[bool] = True
    """Whether a list can be missing, which is not the same as empty."""

    def __init__(self, settings: SchemaFormatSettings, fields: FieldSettings) -> None:
        self._required, self._optional = paths_of(fields.required), paths_of(fields.optional)
        # An absent field meets `exists: false`. It meets no other condition: all records would be filtered.
        unmet = {f"where.{i}" for i, condition in enumerate(fields.where) if condition.exists is not False}
        self._conditions = {name: path for name, path in self._optional.items() if name in unmet}
        self._wanted = WantedPaths.of(self._required.values())
        self._wanted_optional = WantedPaths.of(self._optional.values())
        self._labels = {name: source_label(name, fields) for name in self._required}
        self._units = _units(fields)
        self._values = {name: value for name, (value, _) in value_fields(fields).items()}
        super().__init__(settings, fields)

    @classmethod
    def validate(cls, _settings: SchemaFormatSettings, fields: FieldSettings) -> Iterator[str]:
        """Return a line for each field that is missing, that is not a path, or that conflicts with another one."""
        return path_problems(fields)

    @abstractmethod
    def scan(self, values: Sequence[bytes | None], invalid: Problems, *, optional: bool) -> Iterator[Scan]:
        """Yield the scan of the records of each schema, and add records that are not scanned to `invalid`."""

    def wanted(self, *, optional: bool) -> WantedPaths:
        """Return the paths of the fields that conditions need, or those that tuples need."""
        return self._wanted_optional if optional else self._wanted

    def warn_of_missing(self, plan: Plan, label: str, *, optional: bool) -> None:
        """Log a warning if fields of the settings are absent in a schema."""
        if missing := self._missing_fields(plan, optional=optional):
            self._warn(f"{label} has no field for {', '.join(missing)} of the settings")

    def refuse_missing(self, required: Plan, optional: Plan, label: str) -> None:
        """Raise ConfigurationError if fields of the settings are absent in the schema of all records."""
        missing = self._missing_fields(required, optional=False) + self._missing_fields(optional, optional=True)
        if missing:
            raise ConfigurationError(*(f"{name}: does not exist in {label}" for name in missing))

    def _missing_fields(self, plan: Plan, *, optional: bool) -> list[str]:
        """Return the settings of fields that are absent in a schema: those of conditions, or those of tuples."""
        absent = {self.wanted(optional=optional).paths[slot] for slot in plan.absent}
        fields = self._conditions if optional else self._required
        return sorted(field_setting(name) for name, path in fields.items() if path in absent)

    def _broken(self, scan: Scan) -> Problems:
        """Return the reasons of the records that are not valid in the schema, by their index in the scan."""
        errors = scan.found.errors
        return {
            record: f"broken {self.kind}: {self.broken[int(errors[record])]} ({scan.label})"
            for record in np.flatnonzero(errors).tolist()
        }

    def extract(self, values: Sequence[bytes | None]) -> ExtractedFields:
        """Read each record's fields; see `Format.extract`."""
        invalid: Problems = {}
        parts = [self._read(scan, invalid) for scan in self.scan(values, invalid, optional=False)]
        columns = parts[0] if len(parts) == 1 else _merged([self._no_columns(), *parts])
        fields = ExtractedFields(invalid=invalid)
        rows = columns.rows.tolist()
        fields.rows = range(len(values)) if len(rows) == len(values) else rows
        fields.times, fields.keys, fields.parts = columns.times, columns.keys, columns.parts
        fields.values = dict(columns.values)
        if len(columns.key_records) != len(rows) or not np.array_equal(columns.key_records, columns.rows):
            fields.key_rows = np.searchsorted(columns.rows, columns.key_records)
        return fields

    def _no_columns(self) -> _Columns:
        """Return the fields of no records."""
        columns = _Columns(np.zeros(0, np.int64), np.zeros(0, np.int64))
        for name in self._required.keys() - {"key", "time"}:
            (columns.parts if is_part(name) else columns.values)[name] = []
        return columns

    def _read(self, scan: Scan, invalid: Problems) -> _Columns:
        """Return the fields of the records of one scan, and add the invalid records."""
        wanted, scanned, reasons = self.wanted(optional=False), scan.found, self._broken(scan)
        parents = wanted.level_parents.tolist()
        levels = {name: wanted.level_of(path) for name, path in self._required.items()}
        columns = {
            name: scanned.column(wanted.paths.index(path), levels[name], self._units.get(name))
            for name, path in self._required.items()
        }
        for name, path in self._required.items():
            for slot in wanted.list_slots(path):
                self._check_list(name, scan, slot, reasons)
            self._check_field(name, scan, wanted.paths.index(path), columns[name], reasons)
        for record, reason in reasons.items():
            invalid[int(scan.rows[record])] = reason
        valid = np.ones(len(scan.rows), np.bool_)
        valid[list(reasons)] = False
        key_level = levels.get("key", 0)
        records = scanned.ancestors(key_level, 0, parents)
        kept = np.flatnonzero(valid[records])
        result = _Columns(scan.rows[valid], scan.rows[records[kept]])

        def of_keys(name: str) -> list[Any]:
            """Return the elements that belong to the keys of valid records."""
            index = scanned.ancestors(key_level, levels[name], parents)[kept]
            column, is_whole = columns[name], levels[name] == key_level and not reasons
            return column if is_whole else [column[i] for i in index.tolist()]

        def of_rows(name: str) -> list[Any]:
            return [columns[name][i] for i in np.flatnonzero(valid).tolist()] if reasons else columns[name]

        for name in self._required:
            if name == "key":
                result.keys = of_keys(name)
            elif name == "time":
                result.times = of_rows(name)
            elif is_part(name):
                result.parts[name] = of_rows(name)
            else:
                result.values[name] = of_keys(name)
        return result

    def _check_list(self, name: str, scan: Scan, slot: int, reasons: Problems) -> None:
        """Add a reason for each record in which a list on the way to a field is missing."""
        wanted, scanned = self.wanted(optional=False), scan.found
        level = int(wanted.slot_levels[slot])
        if self.lists_may_be_null:
            kinds = np.array([False, *(leaf.kind == ARRAY for leaf in scanned.leaves)])
            elements = np.flatnonzero(~kinds[scanned.tags[slot, : scanned.counts[level]]])
            missing = scanned.ancestors(level, 0, wanted.level_parents.tolist())[elements].tolist()
        else:
            missing = range(len(scan.rows)) if slot in scan.absent else ()
        for record in missing:
            reasons.setdefault(record, self._missing(name, scan, slot))

    def _check_field(self, name: str, scan: Scan, slot: int, column: Sequence[Entry], reasons: Problems) -> None:
        """Add a reason for each record in which a field is missing or wrong."""
        value = self._values.get(name)
        is_number = not name.startswith("key") and (value is None or value.kind == "number")
        accepted = {str, int, float} if is_number else {str, int, float, bool}
        if set(map(type, column)) <= accepted:
            return
        wanted = self.wanted(optional=False)
        records = scan.found.ancestors(int(wanted.slot_levels[slot]), 0, wanted.level_parents.tolist())
        may_be_missing = value is not None and value.missing == "skip"
        for element, entry in enumerate(column):
            if type(entry) in accepted or (entry is None and may_be_missing):
                continue
            reason = f"{self._labels[name]} has the wrong type or is out of range"
            if entry is None:
                reason = self._missing(name, scan, slot)
            elif entry is NOT_UTF8:
                reason = f"{self._labels[name]} is not UTF-8"
            reasons.setdefault(int(records[element]), reason)

    def _missing(self, name: str, scan: Scan, slot: int) -> str:
        where = f" in {scan.label}" if slot in scan.absent else ""
        return f"{self._labels[name]} is missing{where}"

    def lookup(self, values: Sequence[bytes | None]) -> OptionalFields:
        """Read the fields that exist; see `Format.lookup`."""
        invalid: Problems = {}
        found: list[tuple[int, list[Any]]] = []
        wanted = self.wanted(optional=True)
        for scan in self.scan(values, invalid, optional=True):
            reasons = self._broken(scan)
            invalid |= {int(scan.rows[record]): reason for record, reason in reasons.items()}
            columns = [
                scan.found.column(wanted.paths.index(path), 0, self._units.get(name))
                for name, path in self._optional.items()
            ]
            for record, (row, *entries) in enumerate(zip(scan.rows.tolist(), *columns, strict=True)):
                if record not in reasons:
                    found.append((row, entries))
        found.sort(key=lambda entry: entry[0])
        by_row = [entries for _, entries in found]
        return OptionalFields(
            [row for row, _ in found],
            {name: [entries[i] for entries in by_row] for i, name in enumerate(self._optional)},
            invalid,
        )


def _units(fields: FieldSettings) -> dict[str, Unit]:
    """Return the unit of each field that is read as a time, by the path of its group of settings."""
    parts = {
        f"key.fields.{i}": part.unit or fields.time.unit
        for i, part in enumerate(fields.key.fields)
        if part.truncate is not None
    }
    return {"time": fields.time.unit, TIME_OF_DAY: "iso8601", **parts}


def _merged(parts: Sequence[_Columns]) -> _Columns:
    """Return the fields of all records, in the order of the records."""
    rows = np.concatenate([part.rows for part in parts])
    key_records = np.concatenate([part.key_records for part in parts])
    by_row = np.argsort(rows, kind="stable").tolist()
    by_key = np.argsort(key_records, kind="stable").tolist()

    def ordered(columns: Iterable[list[Any]], order: list[int]) -> list[Any]:
        column = list(chain.from_iterable(columns))
        return [column[i] for i in order] if column else column

    return _Columns(
        rows[by_row],
        key_records[by_key],
        ordered((part.keys for part in parts), by_key),
        ordered((part.times for part in parts), by_row),
        {name: ordered((part.parts[name] for part in parts), by_row) for name in parts[0].parts},
        {name: ordered((part.values[name] for part in parts), by_key) for name in parts[0].values},
    )
