"""What the comments of `values.yaml` say about each value, for editors that show the schema's descriptions."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KEY = re.compile(r"(?P<indent> *)(?P<name>\w+):")
_FIRST = re.compile(r" *# -- (?:\([a-z ]+\) )?(?P<text>.*)")
_MORE = re.compile(r" *# (?P<text>.*)")


def explained(lines: Iterable[str]) -> dict[str, str]:
    """Give the text of helm-docs' comment in front of each value, by path."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    text = ""
    for line in lines:
        if first := _FIRST.fullmatch(line):
            text = first["text"]
        elif text and (more := _MORE.fullmatch(line)):
            text += " " + more["text"]
        elif key := _KEY.match(line):
            path = [each for each in path if each[0] < len(key["indent"])] + [(len(key["indent"]), key["name"])]
            if text:
                found[".".join(name for _, name in path)] = text
            text = ""
    return found
