"""Durations as users write them, such as 30s or 5m."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
FORM = "a duration above 0 such as 30s, 5m, 1h or 2d"


def parse_duration(text: str) -> float | None:
    """Return a duration in seconds; None if the text is not a duration above 0."""
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _SECONDS[match[2]] if match and float(match[1]) else None
