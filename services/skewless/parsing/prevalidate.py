"""Checks a batch of JSON records before they are parsed: size, UTF-8 and depth.

The checks run on all records at once, joined with NUL. The joined text is never parsed: two malformed records could
form a well-formed document (`{"a":"` and `"}`). The check of UTF-8 is safe, because no UTF-8 character contains a NUL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import LimitSettings
from skewless.parsing.line_decoder import EMPTY, NOT_UTF8, too_long

_ALL_BUT_OPENINGS = bytes(set(range(256)) - set(b"[{\0"))
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ALIKE = bytes.maketrans(b"{}", b"[]")
# A string without an end extends to the end of the record, which keeps the search linear.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def prevalidate(values: Sequence[bytes | None], limits: LimitSettings, invalid: Problems) -> Sequence[bytes]:
    """Add records that must not be parsed to `invalid`. Returns the values: empty for missing or too large ones."""
    sized, joined = sized_values(values, limits.record_bytes, invalid)
    if not is_utf8(joined):
        invalid |= {i: NOT_UTF8 for i, value in enumerate(sized) if not is_utf8(value)}
    openings = joined.translate(_ALIKE, _ALL_BUT_OPENINGS)
    # Few batches have a record with more opening brackets than the depth allows, or with a NUL. Only for those, the
    # records are checked one by one.
    if b"[" * (limits.max_depth + 1) in openings or openings.count(b"\0") >= max(1, len(sized)):
        candidates = (
            i for i, value in enumerate(sized) if len(value.translate(None, _ALL_BUT_OPENINGS)) > limits.max_depth
        )
        _reject_deep(candidates, sized, limits.max_depth, invalid)
    return sized


def sized_values(values: Sequence[bytes | None], limit: int, invalid: Problems) -> tuple[Sequence[bytes], bytes]:
    """Return the values, empty for missing or too large ones, and all of them joined."""
    try:
        joined = b"\0".join(values)  # type: ignore[arg-type]  # None raises, see below
        # Most batches are together smaller than the limit of one record.
        if len(joined) <= limit or max(map(len, values)) <= limit:  # type: ignore[arg-type]
            return values, joined  # type: ignore[return-value]
    except TypeError:  # A record without a value.
        pass
    invalid |= {
        i: EMPTY if value is None else too_long(limit)
        for i, value in enumerate(values)
        if value is None or len(value) > limit
    }
    sized = [b"" if value is None or i in invalid else value for i, value in enumerate(values)]
    return sized, b"\0".join(sized)


def is_utf8(value: bytes) -> bool:
    """Return whether the bytes are valid UTF-8."""
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _reject_deep(candidates: Iterable[int], values: Sequence[bytes], depth: int, invalid: Problems) -> None:
    for i in candidates:
        if _is_deeper(values[i], depth):
            invalid.setdefault(i, f"nested deeper than {depth}")


def _is_deeper(value: bytes, depth: int) -> bool:
    """Return whether brackets outside strings nest deeper than `depth`."""
    brackets = _STRINGS.sub(b"", value).translate(_ALIKE, _ALL_BUT_BRACKETS)
    for _ in range(depth):  # each pass removes the innermost level
        brackets = brackets.replace(b"[]", b"")
    return b"[" in brackets
