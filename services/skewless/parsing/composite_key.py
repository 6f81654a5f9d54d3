"""Composite keys: the JSON array of the texts of several parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.parsing.converters import Problems, texts_of, times
from skewless.parsing.field_settings import FieldSettings, Truncation
from skewless.parsing.fixed_point import Scalar
from skewless.parsing.formats.base import source_label

_SPANS_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_encode = msgspec.json.Encoder().encode


def encode_keys(parts: Iterable[Sequence[str]]) -> list[str]:
    """Return the keys of columns of parts, such as `["books","2010-12-01T08:00:00Z"]`."""
    return [_encode(row).decode() for row in zip(*parts, strict=True)]


class CompositeKey:
    """Converts the fields of the parts to keys."""

    def __init__(self, settings: FieldSettings) -> None:
        self._parts = settings.key.fields
        self._default_unit = settings.time.unit
        self._labels = [
            source_label(f"key.fields.{i}", settings, part.header) for i, part in enumerate(settings.key.fields)
        ]

    def convert(
        self, columns: Mapping[str, Sequence[Scalar]], event_times: NDArray[np.int64]
    ) -> tuple[list[str], Problems]:
        """Return the keys of rows, and reasons for rows with an invalid part.

        `columns` has the fields of the parts by the path of their settings; `event_times` has the event time of each
        row.
        """
        texts, invalid = [], Problems()
        for i, part in enumerate(self._parts):
            if part.from_ == "time":
                texts.append(_truncated(event_times, part.truncate))
                continue
            column = columns[f"key.fields.{i}"]
            if part.truncate is None:
                texts.append(texts_of(column))
                continue
            part_times, problems = times(column, part.unit or self._default_unit)
            texts.append(_truncated(part_times, part.truncate))
            for row, problem in problems.items():
                invalid.setdefault(row, f"{self._labels[i]} {problem}")
        return encode_keys(texts), invalid


def _truncated(event_times: NDArray[np.int64], truncation: Truncation | None) -> list[str]:
    """Return the starts of the spans that contain times in ms, as ISO 8601 in UTC."""
    span_ms = _SPANS_MS[truncation or "minute"]
    starts, row_starts = np.unique(event_times // span_ms, return_inverse=True)
    texts = np.datetime_as_string((starts * span_ms).astype("datetime64[ms]"), unit="s")
    return [f"{text}Z" for text in texts[row_starts].tolist()]
