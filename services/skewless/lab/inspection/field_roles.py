"""Chooses the fields of a sample that can be the time and the key of tuples."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from statistics import median
from typing import Any

from skewless.parsing.converters import Unit
from skewless.parsing.envelopes import Envelope
from skewless.parsing.field_settings import Encoding, FieldRef
from skewless.parsing.fixed_point import Scalar
from skewless.parsing.formats.base import DetectedFormat, SampledField
from skewless.parsing.json_path import LIST
from skewless.parsing.source_records import INTEGER_BYTES, SourceRecords, last_header

MIN_SHARE = 0.95
"""Share of the records that have to have a time. The same share of the values decides what a field contains: a few may
be mistakes, or a line with the names of columns."""
MIN_KEY_SHARE = 0.5
"""Share of the records that have to have a key."""
MAX_CANDIDATES = 6
UNIQUE = 0.9
"""Share of distinct values from which on a field is an identifier of records rather than a key."""
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_TIME_OF_DAY = re.compile(r"\d\d:\d\d")
_UNREADABLE_TIME = re.compile(
    r"\[?\d{1,2}[/.-](\d{1,2}|[A-Za-z]{3,9})[/.-]\d{4}\b"  # 28/Nov/2026, [28/Nov/2026 of an access log, 11/28/2026
    r"|\d{4}[/.]\d{1,2}[/.]\d{1,2}\b"  # 2026/11/28
    r"|([A-Z][a-z]{2}, ?)?\d{1,2} [A-Z][a-z]{2,8},? \d{4}\b"  # Sat, 28 Nov 2026
    r"|([A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d{1,2},? (\d{4}\b|\d\d:\d\d:)"  # Sat Nov 28 10:30:00 2026
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.,]*(Z|[+-]\d\d:?\d\d)? ?(\[[\w/+-]+\]|[A-Z]{2,5}\b)"  # ... 10:30:00 CET
    r"|(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])([01]\d|2[0-3])[0-5]\d[0-5]\d$"  # 20261128103000
)
"""Usual forms of times that the settings of times do not read."""
_TIME_IN_LINE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d{1,2}/[A-Za-z]{3}/\d{4}[: ]\d\d:\d\d")
"""Usual forms of times in lines of text, of which a pipeline reads no part as a time."""
_UNITS: tuple[tuple[Unit, int], ...] = (("s", 1), ("ms", 1000), ("us", 1_000_000), ("ns", 1_000_000_000))
FIRST_S, _LAST_S = 631_152_000, 4_102_444_800
"""1990-01-01 and 2100-01-01: numbers are times only if they are between these."""

UNITS = dict(_UNITS)
"""Number of each unit in a second."""
ISO, OTHER_FORM, OTHER, MISSING = "ISO 8601", "in another form", "no times", "missing or null"
"""Kinds of values, besides the units of numbers and the UNSET ones."""
_TIME_KINDS = {ISO, OTHER_FORM, *UNITS}
UNSET = {"", "0", "-1", "null", "none", "nil", "nan", "n/a", "-", "\\n"}
"""Values in lower case that stand for no time."""
MIN_UNREAD_SHARE = 0.25
"""Share of the records with a time from which on a field with times is named that is not used. Others are optional."""
SPREAD_S = 5 * 365 * 86_400
"""Numbers of these days are times if they are as near as this to the median. Ids and hashes are further apart."""
NEAR_MS = 30 * 86_400_000
"""Only numbers in us or ns are times if they are as near as this to another time of their record, or to the clock."""


@dataclass(frozen=True, slots=True)
class UnreadTime:
    """The times of a field that cannot be the event time."""

    example: str
    kinds: dict[str, float]
    """Share of the records with each kind of values, if there are several."""


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field or header with the event time, or two fields of which the second one has the time of day."""

    reference: FieldRef
    unit: Unit
    of_day: FieldRef | None = None
    is_header: bool = False

    @property
    def name(self) -> str:
        """Name of the time in reports."""
        return str(self.reference) if self.of_day is None else f"{self.reference} and {self.of_day}"

    @property
    def settings(self) -> dict[str, Any]:
        """Value of `splitter.time`."""
        of_day = {} if self.of_day is None else {"of_day": self.of_day}
        return {"header" if self.is_header else "field": self.reference, **of_day, "unit": self.unit}


def time_fields(detected: DetectedFormat) -> list[TimeField]:
    """Return the fields that contain times, in the order of the records.

    Numbers in ns come after other times, because they may be ids, and dates without a time of day come last. A date is
    joined with the next field that contains times of day.
    """
    usable = [found for found in detected.fields if found.share >= MIN_SHARE and "[]" not in str(found.reference)]
    of_day = [_most(_is_time_of_day, found.values) for found in usable]
    times, dates = [], []
    for i, found in enumerate(usable):
        unit = _unit(found.values)
        if unit == "iso8601" and _most(_is_date, found.values):
            index = next((j for j in [*range(i + 1, len(usable)), *range(i)] if of_day[j]), None)
            if index is None:
                dates.append(TimeField(found.reference, unit))
            else:
                times.append(TimeField(found.reference, unit, usable[index].reference))
        elif unit is not None:
            times.append(TimeField(found.reference, unit))
    return sorted(times, key=lambda found: found.unit == "ns") + dates


def unread_times(detected: DetectedFormat, around_ms: Iterable[float] = ()) -> dict[FieldRef, UnreadTime]:
    """Return the fields with times that cannot be the event time.

    They are in a form or in several units that `splitter.time` does not read, in a list, or not in all records.
    `around_ms` are times of the records and of the clock, by which times in us or ns are distinguished from ids.
    """
    fields = {reference for time in time_fields(detected) for reference in (time.reference, time.of_day)}
    times = {
        found.reference: _unread_time(found, around_ms) for found in detected.fields if found.reference not in fields
    }
    return {reference: time for reference, time in times.items() if time is not None}


def _unread_time(found: SampledField, around_ms: Iterable[float]) -> UnreadTime | None:
    """Return the times of a field if at least half of its values are times, apart from those that stand for none."""
    kinds = [_kind_of_time(value) for value in found.values]
    seconds = {i: _number(found.values[i]) / UNITS[kind] for i, kind in enumerate(kinds) if kind in UNITS}
    middle_s = median(seconds.values()) if seconds else 0.0
    for i, second in seconds.items():
        if abs(second - middle_s) > SPREAD_S:
            kinds[i] = OTHER
    counts = Counter(kinds)
    times = counts.keys() & _TIME_KINDS
    number, others = sum(counts[kind] for kind in times), counts[OTHER]
    may_be_missing = LIST in str(found.reference)  # a list may be empty in most records
    if number < max(1, others) or (found.share * number / len(kinds) < MIN_UNREAD_SHARE and not may_be_missing):
        return None
    if times <= {"us", "ns"} and all(abs(1000 * middle_s - time_ms) > NEAR_MS for time_ms in around_ms):
        return None
    shares = {kind: found.share * count / len(kinds) for kind, count in counts.most_common()}
    if found.share < 1:
        shares[MISSING] = 1 - found.share
    example = next(found.values[i] for i in reversed(range(len(kinds))) if kinds[i] in times)
    return UnreadTime(str(example), shares if len(shares) > 1 else {})


def _kind_of_time(value: Scalar) -> str:
    text = str(value)
    if text.lower() in UNSET:
        return f'"{text}"'
    if _is_number(value):
        number = _number(value)
        for unit, per_second in _UNITS:
            if FIRST_S * per_second <= number < _LAST_S * per_second:
                return unit
    if _UNREADABLE_TIME.match(text):
        return OTHER_FORM
    return ISO if isinstance(value, str) and _is_iso(text) else OTHER


def unread_time_of_lines(lines: Iterable[bytes | None]) -> str | None:
    """Return an example of the times in lines of text; None if they have none."""
    texts = [line.decode(errors="replace") for line in lines if line]
    found = [match[0] for text in texts if (match := _TIME_IN_LINE.search(text)) is not None]
    return found[-1] if len(found) >= MIN_SHARE * max(1, len(texts)) else None


def envelope_times(envelope: Envelope, detected: DetectedFormat, opened: Sequence[SourceRecords]) -> list[TimeField]:
    """Return the field or header in which the envelope of opened records has their time, if they have it."""
    if not envelope.in_headers:
        return [field for field in time_fields(detected) if field.reference == envelope.event_time]
    texts = [last_header(headers, envelope.event_time) for records in opened for headers in records.headers]
    has_time = len(texts) - texts.count(None) >= MIN_SHARE * len(texts)
    return [TimeField(envelope.event_time, "iso8601", is_header=True)] if has_time else []


def groups_nothing(distinct: int, values: int, missing_share: float, unique: float = UNIQUE) -> bool:
    """Return whether a key is unlikely: it is constant, unique for each record, or missing in many records."""
    return distinct == 1 or distinct >= unique * values or missing_share > 1 - MIN_SHARE


def key_fields(
    detected: DetectedFormat, times: Iterable[TimeField], unread: Collection[FieldRef] = ()
) -> dict[FieldRef, bool]:
    """Return the fields that can be a key, most likely key first, and whether each of them groups nothing.

    Texts in nearly all records, with many values that occur repeatedly, are the most likely keys. `times` are no keys,
    and neither are `unread` ones.
    """
    fields = {ref for time in times if not time.is_header for ref in (time.reference, time.of_day)}
    no_keys = fields.union(unread)
    usable = [
        found
        for found in detected.fields
        if found.reference not in no_keys and _is_frequent(found) and not _is_measure(found.values)
    ]
    return {found.reference: _is_unlikely(found) for found in sorted(usable, key=_rank)[:MAX_CANDIDATES]}


def encoding_of(record_keys: Sequence[bytes]) -> Encoding | None:
    """Return the encoding of most record keys; None if it is not one that a pipeline reads."""
    needed = MIN_SHARE * len(record_keys)
    texts = [text for key in record_keys if (text := _text(key)) is not None]
    # Printable text first: it may have 8 or 4 bytes. An integer almost always has bytes that are not printable.
    if sum(text.isprintable() for text in texts) >= needed:
        return "utf8"
    sizes = Counter(map(len, record_keys))
    for encoding, size in INTEGER_BYTES.items():
        if sizes[size] >= needed:
            return encoding
    return "utf8" if len(texts) >= needed else None


def are_objects(record_keys: Sequence[bytes]) -> bool:
    """Return whether most record keys look like JSON objects, as Debezium writes them.

    A pipeline would count by their texts, and two texts can be the same object.
    """
    return sum(key.startswith(b"{") and key.endswith(b"}") for key in record_keys) >= MIN_SHARE * len(record_keys)


def _text(record_key: bytes) -> str | None:
    try:
        return record_key.decode()
    except UnicodeDecodeError:
        return None


def _is_frequent(found: SampledField) -> bool:
    """Return whether most records have the field. A list may be empty in most records, which are still valid."""
    return found.share >= MIN_KEY_SHARE or "[]" in str(found.reference)


def _is_unlikely(found: SampledField) -> bool:
    return groups_nothing(len(set(found.values)), len(found.values), 0.0)


def _rank(found: SampledField) -> tuple[bool, bool, bool, bool, int]:
    distinct = len(set(found.values))
    is_number = _most(_is_number, found.values)
    return distinct == 1, _is_unlikely(found), found.share < MIN_SHARE, is_number, -distinct


def _is_measure(values: Sequence[Scalar]) -> bool:
    """Return whether values are truth values or fractions, by which nothing is grouped."""
    return _most(lambda value: isinstance(value, bool) or _is_fraction(value), values)


def _is_fraction(value: Scalar) -> bool:
    if isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value):
        return True
    return _is_number(value) and _number(value) % 1 != 0


def _most(is_one: Callable[[Scalar], bool], values: Sequence[Scalar]) -> bool:
    """Return whether nearly all values are of a kind."""
    return bool(values) and sum(map(is_one, values)) >= MIN_SHARE * len(values)


def _is_number(value: Scalar) -> bool:
    if isinstance(value, str):
        return value.removeprefix("-").replace(".", "", 1).isdecimal() and value.isascii()
    return not isinstance(value, bool)


def _number(value: Scalar) -> float:
    """Return a number as double. One that is out of range becomes 0: it is neither a fraction nor a time."""
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def _unit(values: Sequence[Scalar]) -> Unit | None:
    if _most(_is_number, values):
        numbers = [_number(value) for value in values if _is_number(value)]
        for unit, per_second in _UNITS:
            first, last = FIRST_S * per_second, _LAST_S * per_second
            if sum(first <= number < last for number in numbers) >= MIN_SHARE * len(values):
                return unit
        return None
    return "iso8601" if _most(lambda value: isinstance(value, str) and _is_iso(value), values) else None


def _is_date(value: Scalar) -> bool:
    """Return whether a value that is a time in ISO 8601 has no time of day."""
    return isinstance(value, str) and len(value) <= len("2026-03-01")


def _is_time_of_day(value: Scalar) -> bool:
    if not isinstance(value, str) or not _TIME_OF_DAY.match(value):
        return False
    try:
        time.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_iso(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "-" in text or "T" in text  # other texts that Python reads are numbers, such as 20261128
