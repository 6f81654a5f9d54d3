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

    def read(self, values: Sequence[bytes | None], bad: Problems) -> tuple[list[int], list[str]]:
        """Return the indices of the readable records and their lines; put the others into `bad`."""
        limit = self._limit
        rows, lines = [], []
        # Record by record: a join of the batch would let a malformed record reach into its neighbour.
        for i, value in enumerate(values):
            try:
                if len(value) > limit:  # type: ignore[arg-type]  # a TypeError for None: the test costs only then
                    bad[i] = too_long(limit)
                    continue
                lines.append(value.decode().rstrip("\r\n"))  # type: ignore[union-attr]
            except UnicodeDecodeError:
                bad[i] = NOT_UTF8
            except TypeError:
                bad[i] = EMPTY
            else:
                rows.append(i)
        return rows, lines


def no_columns(settings: SplitterSettings) -> Iterator[str]:
    """Say which settings make no sense for a format without columns."""
    for name in ("separator", "quoting", "columns"):
        if name in settings.model_fields_set:
            yield f"{name}: only for csv and tsv, remove it"
