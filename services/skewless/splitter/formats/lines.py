"""Records that are lines of text: size and UTF-8, checked record by record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skewless.splitter.fields import Problems

if TYPE_CHECKING:
    from skewless.splitter.settings import LimitSettings, SplitterSettings

EMPTY = "empty record"
NOT_UTF8 = "not UTF-8"


def too_long(limit: int) -> str:
    """Give the reason for a record of more than `limit` bytes."""
    return f"longer than {limit} bytes"


class Lines:
    """Decodes records as text, without the line end that a producer of lines may have left."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limit = limits.record_bytes

    def read(self, values: Sequence[bytes | None], bad: Problems) -> Iterator[tuple[int, str]]:
        """Yield (index, line) of each readable record; put the others into `bad`."""
        limit = self._limit
        # Record by record: a join of the batch would let a malformed record reach into its neighbour.
        for i, value in enumerate(values):
            if value is None:
                bad[i] = EMPTY
            elif len(value) > limit:
                bad[i] = too_long(limit)
            else:
                try:
                    line = value.decode()
                except UnicodeDecodeError:
                    bad[i] = NOT_UTF8
                else:
                    yield i, line.rstrip("\r\n")


def no_columns(settings: SplitterSettings) -> Iterator[str]:
    """Say which settings make no sense for a format without columns."""
    for name in ("separator", "quoting", "columns"):
        if name in settings.model_fields_set:
            yield f"{name}: only for csv and tsv, remove it"
