"""Times and durations as users write them, such as 2026-03-01T10:00:00Z or 5m."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from skewless.errors import ConfigurationError

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_INSTANT = -62_135_596_800_000
"""0001-01-01T00:00:00Z in ms: the first instant that both SQL timestamps and Python support."""
LAST_INSTANT = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z in ms."""
SECONDS_BELOW = 100_000_000_000
"""Smaller numbers are seconds since the epoch (up to the year 5138), larger ones milliseconds (from 1973 on)."""
FORM = "a duration above 0 such as 30s, 5m, 1h or 2d"


def parse_duration(text: str) -> float | None:
    """Return a duration in seconds; None if the text is not a duration above 0."""
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _SECONDS[match[2]] if match and float(match[1]) else None


def instant_text(time_ms: int) -> str:
    """Return a time in ms since the epoch in ISO 8601; the number itself beyond the years that Python supports."""
    try:
        time = EPOCH + timedelta(milliseconds=time_ms)  # fromtimestamp() rounds to a double
    except OverflowError:
        return str(time_ms)
    return time.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")


def parse_instant(option: str, text: str, accepted: str = "a time in ISO 8601") -> int:
    """Parse a time, in UTC unless it names a zone, to ms since the epoch; ConfigurationError names `accepted`."""
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{option}: {text!r} must be {accepted}") from None
    return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)
