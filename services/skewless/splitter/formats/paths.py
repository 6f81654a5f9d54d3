"""Paths to fields of JSON, and the typed decoder that reads nothing but what they lead to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

LIST = "[]"
Path = tuple[str, ...]
"""Steps from the root: names of fields, and `LIST` where the path goes through every element of a list."""

_NAME = r"[^.\[\]]+"
_PATH = re.compile(rf"(?:{_NAME}|\[\])(?:\[\])*(?:\.{_NAME}(?:\[\])*)*")


def parse_path(text: str) -> Path | None:
    """Read `entities.hashtags[].text`; None if it is no path."""
    return tuple(re.findall(rf"\[\]|{_NAME}", text)) if _PATH.fullmatch(text) else None


def lists_of(path: Path) -> Path:
    """Give the part of a path up to its last list."""
    return path[: len(path) - path[::-1].index(LIST)] if LIST in path else ()


def collide(one: Path, other: Path) -> bool:
    """Tell whether no record can have both: something would be two of field, object and list."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    if shared in (len(one), len(other)):
        return len(one) != len(other)
    return LIST in (one[shared], other[shared])


class Tree:
    """A msgspec type with only the given paths, for a decoder that skips all else.

    Of a name that an object has twice the last one wins, as in most readers of JSON.
    """

    def __init__(self, leaves: Mapping[Path, Any]) -> None:
        self._attributes: dict[Path, str] = {}
        self.type = self._build((), leaves)

    def _build(self, at: Path, leaves: Mapping[Path, Any]) -> Any:
        if at in leaves:
            return leaves[at]
        names = list(dict.fromkeys(path[len(at)] for path in leaves if path[: len(at)] == at))
        if names == [LIST]:
            return list[self._build((*at, LIST), leaves)]  # type: ignore[misc]  # a type made at run time
        fields = []
        for i, name in enumerate(names):
            self._attributes[*at, name] = f"f{i}"
            fields.append((f"f{i}", self._build((*at, name), leaves), msgspec.field(name=name)))
        # What a decoder makes has no cycles: the garbage collector need not know it.
        return msgspec.defstruct("Object", fields, gc=False)

    def walk(self, path: Path, start: Path = ()) -> Walk:
        """Compile the way from the objects at `start` to the ends of `path`."""
        steps: list[Callable[[Any], Any] | None] = []
        names: list[str] = []
        for end in range(len(start) + 1, len(path) + 1):
            if path[end - 1] != LIST:
                names.append(self._attributes[path[:end]])
            if names and (end == len(path) or path[end] == LIST):
                steps.append(attrgetter(".".join(names)))
                names = []
            if path[end - 1] == LIST:
                steps.append(None)
        return Walk(steps)


class Walk:
    """Goes from decoded objects to what a path leads to, for a whole column at a time."""

    def __init__(self, steps: Sequence[Callable[[Any], Any] | None]) -> None:
        self._steps = steps

    def follow(self, nodes: list[Any]) -> tuple[list[Any], NDArray[np.intp] | None]:
        """Return the ends in order, and the position in `nodes` of each (None: one each)."""
        origins = None
        for step in self._steps:
            if step is not None:
                nodes = list(map(step, nodes))
                continue
            parents = np.repeat(np.arange(len(nodes)), list(map(len, nodes)))
            origins = parents if origins is None else origins[parents]
            nodes = list(chain.from_iterable(nodes))
        return nodes, origins


def conflicts(paths: Mapping[str, Path]) -> Iterator[str]:
    """Say which of the paths of `key`, `value` and `time` cannot stand in one record, or not give one tuple per key."""
    named = list(paths.items())
    for i, (name, path) in enumerate(named):
        for other, other_path in named[:i]:
            if collide(path, other_path):
                yield f"{name}.field: collides with {other}.field, one makes a field of what the other goes through"
    if LIST in paths.get("time", ()):
        yield "time.field: may not go through a list, a record has one time"
    if "key" in paths and "value" in paths:
        lists = lists_of(paths["value"])
        if paths["key"][: len(lists)] != lists:
            yield "value.field: may go only through lists that key.field goes through too"
