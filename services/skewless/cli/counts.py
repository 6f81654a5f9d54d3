"""Counts in messages to the user."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 record` or `2,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
