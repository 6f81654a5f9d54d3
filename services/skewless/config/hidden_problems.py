"""Finds the problems that invalid settings hide.

A group of settings is checked as a whole only if each of its settings is valid. So after an invalid setting was found,
the document is validated again without it, until no other problem is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Location = tuple[int | str, ...]
Find = Callable[[dict[str, Any]], Mapping[Location, str]]
"""Returns the problems of a document by setting; empty if it is valid."""

_FORMAT = ("splitter", "format")
_DEPENDENCIES: tuple[tuple[Location, Location], ...] = (
    (("aggregator", "aggregates"), ("splitter", "values")),
    (("aggregator", "aggregates"), ("splitter", "value")),
    (("aggregator", "having"), ("aggregator", "aggregates")),
    (("splitter",), _FORMAT),
)
"""Settings, and other ones without which they cannot be checked, because these define names."""
_PLACEHOLDERS: Mapping[str, Mapping[str, str] | str] = {"name": "pipeline", "source": {"topic": "topic"}}
"""Used for required settings that are missing or invalid, so that the others can be checked."""


def all_problems(document: dict[str, Any], find: Find) -> dict[Location, str]:
    """Return the problems of a document by setting. Problems that follow from others are left out."""
    found = dict(find(document))
    removed: set[Location] = set()
    new: Mapping[Location, str] = found
    while more := {existing for setting in new if (existing := _existing(document, setting))} - removed:
        removed |= more
        kept: dict[Location, list[int]] = {}
        remaining = _with_placeholders(_without(document, (), removed, kept))
        new = {_original(setting, kept): message for setting, message in find(remaining).items()}
        for setting, message in new.items():
            if not _may_follow(setting, message, removed):
                found.setdefault(setting, message)
    return found


def _existing(document: Any, setting: Location) -> Location:
    """Return the longest part of a path that exists in the document, with numbers for elements of lists."""
    for depth, part in enumerate(setting):
        key = int(part) if isinstance(document, list) and str(part).isdigit() else part
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list) and isinstance(key, int) and key < len(document):
            document = document[key]
            setting = (*setting[:depth], key, *setting[depth + 1 :])
        else:
            return setting[:depth]
    return setting


def _without(value: Any, path: Location, removed: set[Location], kept: dict[Location, list[int]]) -> Any:
    """Return a value without the removed settings. `kept` receives the indices of the elements that lists keep."""
    if isinstance(value, dict):
        return {
            name: _without(member, (*path, name), removed, kept)
            for name, member in value.items()
            if (*path, name) not in removed
        }
    if isinstance(value, list):
        kept[path] = [i for i in range(len(value)) if (*path, i) not in removed]
        return [_without(value[i], (*path, i), removed, kept) for i in kept[path]]
    return value


def _with_placeholders(document: dict[str, Any]) -> dict[str, Any]:
    source = document.get("source")
    merged = {**_PLACEHOLDERS, **document}
    if isinstance(source, dict) and "topics" not in source:
        merged["source"] = {**_PLACEHOLDERS["source"], **source}  # type: ignore[dict-item]  # it is a mapping
    return merged


def _original(setting: Location, kept: Mapping[Location, list[int]]) -> Location:
    """Return the path that a setting has in the whole document."""
    path: Location = ()
    for part in setting:
        indices = kept.get(path, ())
        is_index = str(part).isdigit() and int(part) < len(indices)
        path = (*path, indices[int(part)] if is_index else part)
    return path


def _may_follow(setting: Location, message: str, removed: set[Location]) -> bool:
    """Return whether a problem may exist only because others were removed."""
    return any(
        _overlap(setting, other)
        or _are_members(setting, other)
        or _mentions(message, other)
        or _has_names_for(setting, message, other)
        for other in removed
    )


def _are_members(setting: Location, other: Location) -> bool:
    """Return whether both are members of one group of settings. Elements of a list do not depend on each other."""
    return len(setting) > 1 and setting[:-1] == other[:-1] and isinstance(other[-1], str)


def _mentions(message: str, setting: Location) -> bool:
    return len(setting) > 1 and ".".join(map(str, setting[-2:])) in message


def _overlap(setting: Location, other: Location) -> bool:
    """Return whether one is a part of the other. Problems of the whole document have no path."""
    length = min(len(setting), len(other))
    return length > 0 and setting[:length] == other[:length]


def _has_names_for(setting: Location, message: str, other: Location) -> bool:
    """Return whether a setting may name something that another one defines."""
    for dependent, source in _DEPENDENCIES:
        if _overlap(setting, dependent) and _overlap(other, source):
            if len(other) <= len(source) or source == _FORMAT:
                return True
            if len(other) == len(source) + 1:
                name = other[-1]
                return isinstance(name, int) or re.search(rf"\b{re.escape(name)}\b", message) is not None
    return False
