"""Time zones, with the rules of the package tzdata: all processes have the same rules, whatever their system has."""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time
_FIRST_MS, _LAST_MS = (
    (bound - _EPOCH) // timedelta(milliseconds=1)
    for bound in (datetime(1, 1, 3), datetime(9999, 12, 29))  # noqa: DTZ001 - local times
)
"""Local times that `datetime` can represent in all zones. Earlier and later ones have the offset of these."""


@functools.cache
def zone_names() -> frozenset[str]:
    """Return the names of all time zones."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def closest_zone(name: str) -> str:
    """Return a hint for a name that is not in `zone_names`, to be appended to a message."""
    closest = difflib.get_close_matches(name, sorted(zone_names()), n=1)
    return f", did you mean {closest[0]}?" if closest else ": use a name such as Europe/Berlin"


@functools.cache
def _rules(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@functools.lru_cache(maxsize=4096)
def _utc_offset(name: str, local_ms: int) -> int:
    local = _EPOCH + timedelta(milliseconds=min(max(local_ms, _FIRST_MS), _LAST_MS))
    return (local.replace(tzinfo=_rules(name)).utcoffset() or timedelta()) // timedelta(milliseconds=1)


@functools.cache
def time_zone(name: str) -> TimeZone:
    """Return the time zone with a name. It is always the same object, so that its windows are equal."""
    return TimeZone(name)


@dataclass(frozen=True, slots=True)
class TimeZone:
    """A time zone of `zone_names`."""

    name: str

    def utc_offset(self, local_ms: int) -> int:
        """Return the offset from UTC in ms at a local time, given in ms since 1970-01-01 00:00 local time.

        When the clocks change, a local time may be skipped or occur twice. Both have the offset before the change.
        """
        return _utc_offset(self.name, local_ms)
