"""Texts in the output of several commands: counts, times, and text of users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from skewless.times import instant_text

_encode = msgspec.json.Encoder(decimal_format="number").encode


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 record` or `2,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def input_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a report of a Spark job about the records that it has read."""
    yield f"{report['records']:,} records, {report['tuples']:,} tuples, {report['late']:,} late"
    if report["filtered"]:
        yield f"  {report['filtered']:,} filtered by splitter.where or splitter.envelope"
    if report["rounded"]:
        yield f"  {report['rounded']:,} values rounded to their decimals"
    for reason, count in report["dead_letters_by_reason"].items():
        yield f"  {count:,} dead letters: {reason}"


def duration(seconds: float, digits: int = 3) -> str:
    """Return a duration with this number of digits in its largest unit, days with all of theirs."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            number = seconds / size
            return f"{number:,.0f} {unit}" if number >= 10**digits - 0.5 else f"{number:.{digits}g} {unit}"
    return f"{seconds:.{digits}g} s"


def iso(time_ms: int) -> str:
    """Return a time in ISO 8601, in whole seconds; in ms before the year 1, as watermarks with a long lateness are."""
    return instant_text(time_ms // 1000 * 1000)


def field_label(name: str) -> str:
    """Return a field of records, or two of them, as text: a number is that of a column."""
    if name.isdecimal():
        return f"column {name}"
    return f"columns {name}" if name.replace(" and ", "").isdecimal() else name


def printable(text: str) -> str:
    """Return a text of a user without control characters, which could change the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def value_text(value: Any, if_null: str = "-") -> str:
    """Return the value of an aggregate as text: lists and booleans as JSON, with all digits of their numbers."""
    if value is None:
        return if_null
    return _encode(value).decode() if isinstance(value, list | bool) else str(value)
