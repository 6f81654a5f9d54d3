"""Headers of internal records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skewless.algorithms.watermark import WatermarkState
from skewless.wire.headers import headers_with
from skewless.wire.record import OwnHeaders


def internal_headers(schema: str, watermarks: Mapping[int, int], idle: Iterable[int] = ()) -> OwnHeaders:
    """Return the headers of an internal record. Upstream partitions in `idle` are idle at their watermark, if any."""
    idle_partitions = set(idle)
    states = {
        partition: WatermarkState(watermarks.get(partition), partition in idle_partitions)
        for partition in sorted({*watermarks, *idle_partitions})
    }
    return headers_with(schema, states)
