"""Checks whether bytes are text."""

from __future__ import annotations


def is_utf8(value: bytes) -> bool:
    """Return whether the bytes are valid UTF-8."""
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
