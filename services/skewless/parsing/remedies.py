"""Settings with which records are valid that are invalid without them, by the reason of their dead letter."""

from __future__ import annotations

import re

from skewless.parsing.line_decoder import EMPTY

SPLITTER = "splitter"
_LIMITS = (
    (re.compile(r"(record key: )?longer than \d+ bytes"), "to read longer records", "record_bytes"),
    (
        re.compile(r".* is longer than \d+ bytes, too long for a pattern"),
        "to search longer keys",
        "pattern_input_bytes",
    ),
    (re.compile(r"(key|id)\b.* is longer than \d+ bytes"), "to accept longer keys", "key_bytes"),
    (re.compile(r".* is longer than \d+ bytes"), "to accept longer texts", "text_bytes"),
    (re.compile(r"more than \d+ tuples"), "to accept more tuples of a record", "tuples_per_record"),
    (
        re.compile(r"(record key: )?nested deeper than \d+|.*\bis nested too deep\b.*"),
        "to read deeper records",
        "max_depth",
    ),
)


def remedy_of(reason: str, section: str = SPLITTER) -> str | None:
    """Return which setting would change that records are invalid; None for a reason that no setting alone removes.

    `section` is the one with the settings of their topic.
    """
    if reason == EMPTY:
        skips = "to leave out records without a value, set splitter.tombstones: skip"
        return skips if section == SPLITTER else None
    limits = (f"{aim}, raise {section}.limits.{name}" for pattern, aim, name in _LIMITS if pattern.fullmatch(reason))
    return next(limits, None)
