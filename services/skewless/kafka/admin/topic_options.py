"""Options of topics that some brokers do not know."""

from __future__ import annotations

from collections.abc import Mapping

ANY_TIME_MS = str(2**63 - 1)
"""No limit for the distance from the broker's clock: a record's timestamp is its event time, maybe years away."""
_TIMESTAMP_DIFFERENCE = "message.timestamp.difference.max.ms"
TIMESTAMP_LIMITS = {
    "message.timestamp.before.max.ms": ANY_TIME_MS,
    "message.timestamp.after.max.ms": ANY_TIME_MS,
}
COMPACTION_OPTIONS = {"segment.bytes": str(64 * 2**20), "min.cleanable.dirty.ratio": "0.3"}
"""Options that affect only the size of compacted topics, and so the time of a restore."""
OPTIONAL: Mapping[str, str | None] = {
    **dict.fromkeys(TIMESTAMP_LIMITS, _TIMESTAMP_DIFFERENCE),
    _TIMESTAMP_DIFFERENCE: None,
    **dict.fromkeys(COMPACTION_OPTIONS),
}
"""Options that a pipeline does not require, and the older option that each has replaced.

Kafka has the limits of timestamps since 3.6 (KIP-937). Brokers other than Apache Kafka know a part of the options.
"""


def known_option(option: str, options: Mapping[str, str]) -> str | None:
    """Return the option, or the one that it has replaced if only this one is in the options of a topic; else None."""
    return next((name for name in (option, OPTIONAL.get(option)) if name in options), None)
