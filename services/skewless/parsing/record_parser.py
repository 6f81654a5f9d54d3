"""RecordParser: converts records to tuples. Combines fields of values with keys, headers and partitions of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.parsing.conditions import Condition
from skewless.parsing.converters import Problems, dates_with_times, times
from skewless.parsing.envelopes import OpenedRecords
from skewless.parsing.field_settings import TIME_OF_DAY, Encoding, ValueSettings, value_path
from skewless.parsing.fixed_point import Scalar
from skewless.parsing.formats import find_format
from skewless.parsing.formats.base import ExtractedFields, Format, OptionalFields, ParsedBatch, source_label
from skewless.parsing.python_function import PythonFunction
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import SourceRecords, header_texts, last_header, record_key_texts, select
from skewless.parsing.tuple_builder import TupleBuilder
from skewless.parsing.validation import NO_TIME
from skewless.schema_registry.cache import SchemaCache
from skewless.schema_registry.schema import SchemaId

_Texts = Callable[[SourceRecords], tuple[Sequence[Scalar], Problems]]
"""Returns a text or number per record, and reasons for invalid ones."""


NeededSchemas = tuple[SchemaCache[Any], frozenset[SchemaId]]
"""Schemas that records need, of a cache."""


class RecordParser:
    """Parses records of a source topic. Each record is parsed alone, and an invalid one raises no error."""

    def __init__(self, settings: ParsingSettings) -> None:
        chosen = settings.field_format
        self._settings = settings
        self._envelope = settings.envelope
        self._open = opener(settings)
        self._format = find_format(chosen.name)(chosen, settings) if settings.reads_value else None
        self._conditions = {f"where.{i}": Condition(condition) for i, condition in enumerate(settings.where)}
        self._has_rules = bool(settings.where) or bool(settings.envelope and settings.envelope.rule_fields)
        key = settings.key
        of_key = settings.of_record_key
        self._key_format = None if of_key is None else find_format(of_key.format.name)(of_key.format, of_key)
        self._key = _text_source(key.from_, key.header, "key", key.encoding)
        if self._key_format is not None:
            self._key = _key_source(self._key_format)
        self._parts = {
            f"key.fields.{i}": source
            for i, part in enumerate(key.fields)
            if (source := _text_source(part.from_, part.header, f"key part {part.part_name}")) is not None
        }
        self._values = {
            value_path(settings, name): value
            for name, value in settings.named_values.items()
            if value.header is not None
        }
        """Settings of the values that are in headers, by their path."""
        self._time = _text_source(None, settings.time.header, "time")
        self._builder = TupleBuilder(settings)

    @property
    def schemas(self) -> list[SchemaCache[Any]]:
        """Schemas of a registry with which values and record keys are read."""
        caches = (found.schemas for found in (self._format, self._key_format) if found is not None)
        return [cache for cache in caches if cache is not None]

    def needed_schemas(self, records: SourceRecords) -> Iterator[NeededSchemas]:
        """Yield the schemas that records need. They must be there before `parse`, so that it does no I/O."""
        if self._format is not None and self._format.schemas is not None:
            opened = records if self._open is None else self._open(records).records
            yield self._format.schemas, self._format.schema_ids(self._format.values(opened))
        if self._key_format is not None and self._key_format.schemas is not None:
            yield self._key_format.schemas, self._key_format.schema_ids(self._key_format.keys(records))

    def parse(self, records: SourceRecords) -> ParsedBatch:
        """Return the tuples of records."""
        if self._settings.tombstones == "skip" and None in records.values:
            tombstones = [row for row, value in enumerate(records.values) if value is None]
            return self._parse_opened(records, OpenedRecords(records, tombstones), self._parse_envelopes)
        return self._parse_envelopes(records)

    def _parse_envelopes(self, records: SourceRecords) -> ParsedBatch:
        if self._open is None:
            return self._parse_content(records)
        return self._parse_opened(records, self._open(records), self._parse_content)

    def parse_only(self, name: str, records: SourceRecords) -> ParsedBatch:
        """Parse records as if each had only this one of its values, without conditions.

        For settings whose values may all be missing, and are among the fields of `optional`.
        """
        settings, path = self._settings, value_path(self._settings, name)
        value = settings.named_values[name]
        found = OptionalFields(range(len(records.values)), {}, {})
        if value.header is None:
            found = self._lookup(records)
        fields = ExtractedFields(rows=found.rows, invalid=found.invalid)
        if self._key is not None:
            fields.keys = _read(self._key, records, fields)
        fields.values = {value_path(settings, other): [None] * len(found.rows) for other in settings.named_values}
        if value.header is None:
            column = found.columns[path]
            fields.values[path] = [entry if isinstance(entry, str | int | float) else None for entry in column]
            for row, entry in zip(found.rows, column, strict=True):
                if entry is not None and not isinstance(entry, str | int | float):
                    fields.invalid[row] = f"{source_label(path, settings)} has the wrong type or is out of range"
        else:
            fields.values[path] = _read_value(path, value, records, fields)
        return self._builder.convert(fields, records)

    def documents(self, records: SourceRecords, rows: Sequence[int]) -> tuple[Sequence[bytes], Problems]:
        """Return the values of valid records as results contain them, and the reasons of those that cannot be, by row.

        They are JSON or text; see `Format.in_json`.
        """
        if self._format is None:
            return [b""] * len(rows), {}
        values = self._format.values(records)
        documents, problems = self._format.documents([values[row] for row in rows])
        return documents, {rows[index]: reason for index, reason in problems.items()}

    def _parse_opened(
        self, records: SourceRecords, opened: OpenedRecords, parse: Callable[[SourceRecords], ParsedBatch]
    ) -> ParsedBatch:
        """Parse what is in the envelopes of records, or what a function of the user has returned for them."""
        left_out = {*opened.skipped, *opened.invalid}
        if not left_out:
            return parse(opened.records)
        rows = np.array([row for row in range(len(records.values)) if row not in left_out], dtype=np.int32)
        parsed = parse(select(opened.records, rows.tolist()))
        skipped = np.array(opened.skipped, dtype=np.int32)
        event_times = np.full(len(records.values), NO_TIME)
        if self._has_kafka_time:
            event_times[skipped] = records.timestamps[skipped]
        filtered = np.sort(np.concatenate((skipped, rows[parsed.filtered])))
        merged = _merged(parsed, rows, event_times, opened.invalid, filtered)
        tracebacks = {int(rows[index]): text for index, text in parsed.tracebacks.items()}
        return replace(merged, tracebacks={**opened.tracebacks, **tracebacks})

    def _parse_content(self, records: SourceRecords) -> ParsedBatch:
        """Parse records without an envelope, or whose envelope is open."""
        if not self._has_rules:
            return self._parse(records)
        optional = self._lookup(records)
        meets = self._meets(records, optional)
        rows = np.array(optional.rows, dtype=np.int32)
        if self._envelope is not None:
            counts, problems = self._envelope.meets(optional)
            optional.invalid.update(problems)
            meets &= counts
        selected = rows[meets]
        if len(selected) == len(records.values):
            return self._parse(records)
        parsed = self._parse(select(records, selected.tolist()))
        event_times = self._times_of_filtered(records, optional, np.flatnonzero(~meets))
        filtered = np.setdiff1d(rows[~meets], list(optional.invalid))
        return _merged(parsed, selected, event_times, optional.invalid, filtered)

    def _parse(self, records: SourceRecords) -> ParsedBatch:
        if self._format is not None:
            fields = self._format.extract(self._format.values(records))
        else:
            fields = ExtractedFields(rows=range(len(records.values)))
        if self._key is not None:
            fields.keys = _read(self._key, records, fields)
        for path, source in self._parts.items():
            fields.parts[path] = _read(source, records, fields)
        for path, value in self._values.items():
            fields.values[path] = _read_value(path, value, records, fields)
        if self._time is not None:
            fields.times = _read(self._time, records, fields)
        return self._builder.convert(fields, records)

    def _lookup(self, records: SourceRecords) -> OptionalFields:
        """Return the fields that the conditions need, and the event times."""
        if self._format is not None and self._settings.optional:
            return self._format.lookup(self._format.values(records))
        return OptionalFields(range(len(records.values)), {}, {})

    def _meets(self, records: SourceRecords, optional: OptionalFields) -> NDArray[np.bool_]:
        """Return for each readable record whether it meets all conditions."""
        meets = np.ones(len(optional.rows), dtype=np.bool_)
        for path, settings in zip(self._conditions, self._settings.where, strict=True):
            column = optional.columns.get(path)
            if settings.header is not None:
                column = _optional_texts(records, settings.header, optional.rows)
            meets &= np.array(self._conditions[path].meets(column or ()), dtype=np.bool_)
        return meets

    @property
    def _has_kafka_time(self) -> bool:
        return self._settings.time.header is None and self._settings.time.field is None

    def _times_of_filtered(
        self, records: SourceRecords, optional: OptionalFields, filtered: NDArray[np.intp]
    ) -> NDArray[np.int64]:
        """Return the event time of each filtered record whose time can be read, NO_TIME for the others.

        `filtered` has the indices of the records in `optional`.
        """
        result = np.full(len(records.values), NO_TIME)
        rows = np.array(optional.rows, dtype=np.int32)[filtered]
        time = self._settings.time
        if self._has_kafka_time:
            result[rows] = records.timestamps[rows]
            return result
        column = optional.columns.get("time")
        if time.header is not None:
            column = _optional_texts(records, time.header, optional.rows)
        # An absent time, or one of a wrong type, is converted from an empty text, which is not a time.
        entries = [column[index] for index in filtered.tolist()] if column else []
        texts = [entry if isinstance(entry, str | int | float) else "" for entry in entries]
        if time.of_day is not None:
            times_of_day = optional.columns[TIME_OF_DAY]
            texts = dates_with_times(texts, [times_of_day[index] for index in filtered.tolist()])
        converted, problems = times(texts, time.unit)
        converted[list(problems)] = NO_TIME
        result[rows] = converted
        return result


def opener(settings: ParsingSettings) -> Callable[[SourceRecords], OpenedRecords] | None:
    """Return a function that opens envelopes, or that calls the function of the user; None if there is neither.

    Raises ConfigurationError if the function of the user does not exist.
    """
    if settings.python is not None:
        return python_function(settings).open
    envelope = settings.envelope
    if envelope is None:
        return None
    return lambda records: envelope.open(records, settings.limits, settings.headers)


def python_function(settings: ParsingSettings) -> PythonFunction:
    """Return the function of the user. Raises ConfigurationError if it does not exist."""
    decode = find_format(settings.format.name).decoder(settings.format.resolved(), settings.limits)
    if settings.python is None or decode is None:
        raise ValueError("the settings have no function")
    return PythonFunction(settings.python, decode)


def _merged(
    parsed: ParsedBatch,
    rows: NDArray[np.int32],
    event_times: NDArray[np.int64],
    invalid: Problems,
    filtered: NDArray[np.int32],
) -> ParsedBatch:
    """Return the result of a batch of which only some rows were parsed.

    `event_times`, `invalid` and `filtered` are those of the other rows.
    """
    event_times[rows] = parsed.times
    reasons = invalid | {int(rows[index]): reason for index, reason in parsed.invalid}
    return replace(
        parsed, records=rows[parsed.records], times=event_times, invalid=sorted(reasons.items()), filtered=filtered
    )


def _text_source(from_: str | None, header: str | None, purpose: str, encoding: Encoding = "utf8") -> _Texts | None:
    """Return a function that reads a text which is not in the value of a record; None if there is none."""
    match from_:
        case "record_key":
            return lambda records: record_key_texts(records, encoding)
        case "partition":
            return lambda records: ([str(records.partition)] * len(records.values), {})
    return None if header is None else lambda records: header_texts(records, header, purpose)


def _key_source(format_: Format) -> _Texts:
    """Return a function that reads the key in each record key, which has a format."""

    def read(records: SourceRecords) -> tuple[Sequence[Scalar], Problems]:
        record_keys = format_.keys(records)
        fields = format_.extract(record_keys)
        if not fields.invalid:
            return fields.keys, {}
        keys: list[Scalar] = [""] * len(record_keys)
        for row, key in zip(fields.rows, fields.keys, strict=True):
            keys[row] = key
        return keys, {
            row: "record key is missing" if record_keys[row] is None else f"record key: {reason}"
            for row, reason in fields.invalid.items()
        }

    return read


def _read(source: _Texts, records: SourceRecords, fields: ExtractedFields) -> list[Scalar]:
    """Return the texts of the rows that the format could read, and add the problems to the invalid records."""
    texts, problems = source(records)
    for index, reason in problems.items():
        fields.invalid.setdefault(index, reason)
    rows: Sequence[int] = fields.rows
    return list(texts) if len(rows) == len(texts) else [texts[row] for row in rows]


def _read_value(
    path: str, value: ValueSettings, records: SourceRecords, fields: ExtractedFields
) -> list[Scalar | None]:
    """Return the text of a header for each key, and add the problems. A value that may be missing is None."""
    header = value.header or ""
    texts, problems = header_texts(records, header, path)
    column = list[Scalar | None](texts)
    for index, reason in problems.items():
        if value.missing == "skip" and last_header(records.headers[index], header) is None:
            column[index] = None
        else:
            fields.invalid.setdefault(index, reason)
    rows = [column[row] for row in fields.rows]
    return rows if fields.key_rows is None else [rows[row] for row in fields.key_rows.tolist()]


def _optional_texts(records: SourceRecords, header: str, rows: Sequence[int]) -> list[str | None]:
    texts, problems = header_texts(records, header, "")
    return [None if row in problems else texts[row] for row in rows]
