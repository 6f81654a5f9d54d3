"""Reads the helm-docs comments of `values.yaml`. The schema contains them as descriptions, which editors show."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KEY = re.compile(r"(?P<indent> *)(?P<name>\w+):")
_FIRST_LINE = re.compile(r" *# -- (?:\([a-z ]+\) )?(?P<text>.*)")
_NEXT_LINE = re.compile(r" *# (?P<text>.*)")


def comments_by_path(lines: Iterable[str]) -> dict[str, str]:
    """Return path of a value -> text of the helm-docs comment above it."""
    comments: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    text = ""
    for line in lines:
        if first := _FIRST_LINE.fullmatch(line):
            text = first["text"]
        elif text and (continuation := _NEXT_LINE.fullmatch(line)):
            text += " " + continuation["text"]
        elif key := _KEY.match(line):
            indent = len(key["indent"])
            path = [parent for parent in path if parent[0] < indent] + [(indent, key["name"])]
            if text:
                comments[".".join(name for _, name in path)] = text
            text = ""
    return comments
