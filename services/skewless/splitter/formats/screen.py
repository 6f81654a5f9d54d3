"""What is checked of a batch of JSON records before any is parsed: size, UTF-8, depth.

The checks look at all records at once, with NUL between them. That join is only looked at, never parsed: as one
document, two malformed records could make a well-formed one (`{"a":"` and `"}`), and one record could hide another.
UTF-8 is safe there, because no character reaches over a NUL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from skewless.splitter.fields import Problems
from skewless.splitter.formats.lines import EMPTY, NOT_UTF8, too_long

if TYPE_CHECKING:
    from skewless.splitter.settings import LimitSettings

_ALL_BUT_OPENINGS = bytes(set(range(256)) - set(b"[{\0"))
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ALIKE = bytes.maketrans(b"{}", b"[]")
# A string that nothing closes ends with the record: so the search stays linear.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def screen(values: Sequence[bytes | None], limits: LimitSettings, bad: Problems) -> Sequence[bytes]:
    """Put records that must not be parsed into `bad`; return the values, empty where there is nothing to look at."""
    sized = _sized(values, limits.record_bytes, bad)
    joined = b"\0".join(sized)
    if not _is_utf8(joined):
        bad |= {i: NOT_UTF8 for i, value in enumerate(sized) if not _is_utf8(value)}
    openings = joined.translate(_ALIKE, _ALL_BUT_OPENINGS)
    # Few records have more openings than the depth allows, or a NUL of their own; only then each one is looked at.
    if b"[" * (limits.depth + 1) in openings or openings.count(b"\0") >= max(1, len(sized)):
        many = (i for i, value in enumerate(sized) if len(value.translate(None, _ALL_BUT_OPENINGS)) > limits.depth)
        _reject_deep(many, sized, limits.depth, bad)
    return sized


def _sized(values: Sequence[bytes | None], limit: int, bad: Problems) -> Sequence[bytes]:
    try:
        if max(map(len, values), default=0) <= limit:  # type: ignore[arg-type]  # None raises, see below
            return values  # type: ignore[return-value]
    except TypeError:  # A record without a value.
        pass
    bad |= {i: EMPTY if value is None else too_long(limit) for i, value in enumerate(values) if _is_unfit(value, limit)}
    return [b"" if value is None or i in bad else value for i, value in enumerate(values)]


def _is_unfit(value: bytes | None, limit: int) -> bool:
    return value is None or len(value) > limit


def _is_utf8(value: bytes) -> bool:
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _reject_deep(candidates: Iterable[int], values: Sequence[bytes], depth: int, bad: Problems) -> None:
    for i in candidates:
        if _is_deeper(values[i], depth):
            bad.setdefault(i, f"nested deeper than {depth}")


def _is_deeper(value: bytes, depth: int) -> bool:
    """Tell whether brackets outside strings nest deeper than `depth`; each pass takes the innermost level away."""
    brackets = _STRINGS.sub(b"", value).translate(_ALIKE, _ALL_BUT_BRACKETS)
    for _ in range(depth):
        brackets = brackets.replace(b"[]", b"")
    return b"[" in brackets
