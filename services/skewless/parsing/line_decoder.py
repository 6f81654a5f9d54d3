"""Decodes records that are lines of text, and checks their size and encoding."""

from __future__ import annotations

from collections.abc import Sequence

from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import LimitSettings

EMPTY = "empty record"
NOT_UTF8 = "not UTF-8"


def too_long(limit: int) -> str:
    """Return the reason for a record of more than `limit` bytes."""
    return f"longer than {limit} bytes"


def line_of(value: bytes) -> str | None:
    """Return a sampled value as a line; None if it is not text."""
    try:
        line = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in line else line.rstrip("\r\n")


class LineDecoder:
    """Decodes records as UTF-8 text and removes the line end, if any."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limit = limits.record_bytes

    def read(self, values: Sequence[bytes | None], invalid: Problems) -> tuple[list[int], list[str]]:
        """Return the indices of the valid records and their lines. Adds the others to `invalid`."""
        limit = self._limit
        rows, lines = [], []
        # Record by record: in one joined text, a malformed record could change the meaning of the next one.
        for i, value in enumerate(values):
            try:
                if len(value) > limit:  # type: ignore[arg-type]  # raises TypeError for None, without a test per record
                    invalid[i] = too_long(limit)
                    continue
                lines.append(value.decode().rstrip("\r\n"))  # type: ignore[union-attr]
            except UnicodeDecodeError:
                invalid[i] = NOT_UTF8
            except TypeError:
                invalid[i] = EMPTY
            else:
                rows.append(i)
        return rows, lines
