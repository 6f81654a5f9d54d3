"""Paths to fields of JSON, and typed decoders that read only the fields at these paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.parsing.field_settings import FieldRef, FieldSettings, value_fields

LIST = "[]"
ROOT = ""
"""Reference to a whole document, which no setting has."""
Path = tuple[str, ...]
"""Steps from the root: names of fields, and `LIST` for all elements of a list."""

# msgspec has no decoder for names with a quotation mark, a backslash or a control character, nor with half a surrogate.
_NAME = r"[^.\[\]\"\\\x00-\x1f\ud800-\udfff]+"
NAME = re.compile(_NAME)
_PATH = re.compile(rf"(?:{_NAME}|\[\])(?:\[\])*(?:\.{_NAME}(?:\[\])*)*")


def parse_path(text: str) -> Path | None:
    """Parse a path such as `entities.hashtags[].text`. Returns None if the text is not a path."""
    if text == ROOT:
        return ()
    return tuple(re.findall(rf"\[\]|{_NAME}", text)) if _PATH.fullmatch(text) else None


def lists_of(path: Path) -> Path:
    """Return the part of a path up to its last list."""
    return path[: len(path) - path[::-1].index(LIST)] if LIST in path else ()


def paths_conflict(first: Path, second: Path) -> bool:
    """Return whether no record can contain both paths, because they need different types of one element."""
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    if shared in (len(first), len(second)):
        return len(first) != len(second)
    return LIST in (first[shared], second[shared])


class DecoderSchema:
    """A msgspec type with only the given paths. Its decoder skips everything else.

    If an object contains a name twice, the last one counts, as in most JSON parsers.
    """

    def __init__(self, leaves: Mapping[Path, Any]) -> None:
        self._attributes: dict[Path, str] = {}
        self._optional = {path for path, leaf in leaves.items() if accepts_null(leaf)}
        self.type = self._build((), leaves)

    def _build(self, parent: Path, leaves: Mapping[Path, Any]) -> Any:
        if parent in leaves:
            return leaves[parent]
        names = list(dict.fromkeys(path[len(parent)] for path in leaves if path[: len(parent)] == parent))
        if names == [LIST]:
            return list[self._build((*parent, LIST), leaves)]  # type: ignore[misc]  # a type that is created at run time
        fields = []
        for i, name in enumerate(names):
            self._attributes[*parent, name] = f"f{i}"
            field_type = self._build((*parent, name), leaves)
            # A field without a value of its own may be absent if nothing in it is required.
            default = {"default": None} if accepts_null(field_type) else {}
            fields.append((f"f{i}", field_type, msgspec.field(name=name, **default)))
        # Decoded objects have no cycles, so the garbage collector does not need to track them.
        # Required fields have to be first.
        fields.sort(key=lambda field: accepts_null(field[1]))
        built = msgspec.defstruct("Object", fields, gc=False)
        return built | None if parent and all(accepts_null(field_type) for _, field_type, _ in fields) else built

    def accessor(self, path: Path, start: Path = ()) -> PathAccessor:
        """Return an accessor from the objects at `start` to the elements at `path`."""
        steps: list[Callable[[Any], Any] | None] = []
        names: list[str] = []
        for end in range(len(start) + 1, len(path) + 1):
            if path[end - 1] != LIST:
                names.append(self._attributes[path[:end]])
            if names and (end == len(path) or path[end] == LIST):
                steps.append(_getter(names, optional=path in self._optional))
                names = []
            if path[end - 1] == LIST:
                steps.append(None)
        return PathAccessor(steps)


def accepts_null(field_type: Any) -> bool:
    """Return whether a field of this type may be null or absent."""
    return type(None) in get_args(field_type)


def _getter(names: Sequence[str], *, optional: bool) -> Callable[[Any], Any]:
    """Return a function from an object to the attribute at the end of these names. An optional one may be absent."""
    if not optional:
        return attrgetter(".".join(names))

    def get(node: Any) -> Any:
        for name in names:
            if node is None:
                return None
            node = getattr(node, name)
        return node

    return get


class PathAccessor:
    """Extracts the elements at a path from a column of decoded objects."""

    def __init__(self, steps: Sequence[Callable[[Any], Any] | None]) -> None:
        self._steps = steps

    def follow(self, nodes: list[Any]) -> tuple[list[Any], NDArray[np.intp] | None]:
        """Return the elements in order, and for each element the index in `nodes` of the object that contains it.

        The indices are None if each object has exactly one element.
        """
        row_indices = None
        for step in self._steps:
            if step is not None:
                nodes = list(map(step, nodes))
                continue
            parents = np.repeat(np.arange(len(nodes)), list(map(len, nodes)))
            row_indices = parents if row_indices is None else row_indices[parents]
            nodes = list(chain.from_iterable(nodes))
        return nodes, row_indices


def conflicts(paths: Mapping[str, Path]) -> Iterator[str]:
    """Yield a line for each path of a key, value or time that conflicts with another one, or has invalid lists."""
    named_paths = list(paths.items())
    for i, (name, path) in enumerate(named_paths):
        for other, other_path in named_paths[:i]:
            if paths_conflict(path, other_path):
                yield (
                    f"{field_setting(name)}: conflicts with {field_setting(other)}, both need different types of one "
                    "element"
                )
    if LIST in paths.get("time", ()):
        yield "time.field: must not contain a list, because a record has one time"
    for name, path in paths.items() if "key" in paths else ():
        lists = lists_of(path)
        if name not in ("key", "time") and paths["key"][: len(lists)] != lists:
            yield f"{field_setting(name)}: must contain only lists that key.field contains too"


def field_setting(name: str) -> str:
    """Return the path of the setting of a field: `key.field`, or `value.times` and `time.of_day` of second fields."""
    return name if name.endswith((".times", ".of_day")) else f"{name}.field"


def paths_of(references: Mapping[str, FieldRef]) -> dict[str, Path]:
    """Return the paths of the fields that are valid, by the path of their group of settings."""
    paths = {name: parse_path(text) for name, text in references.items() if isinstance(text, str)}
    return {name: path for name, path in paths.items() if path is not None}


def path_problems(fields: FieldSettings) -> Iterator[str]:
    """Yield a line for each field that is missing, that is not a path, or that conflicts with another one."""
    if fields.key.in_value and fields.key.field is None:
        yield "key.field: missing, set the path of the key, such as user.id or hashtags[].text"
    references = {**fields.required, **fields.optional}
    paths = paths_of(references)
    # The time has a message of its own. An element of a list needs a key of its own.
    with_lists = {"key", "time", *(value_fields(fields) if fields.key.in_value else ())}
    for name, reference in references.items():
        if not paths.get(name):
            setting = field_setting(name)
            yield (
                f"{setting}: {reference!r} is not a path: separate names with dots, write [] after a list; "
                "a name cannot have a quotation mark, a backslash or a control character"
            )
        elif LIST in paths[name] and name not in with_lists:
            yield f"{field_setting(name)}: must not contain a list"
    yield from conflicts({name: path for name, path in paths.items() if name in fields.required})


def _put(document: Any, path: Sequence[str], value: Any) -> Any:
    """Return the document with a value at a path; every list on the path has one element."""
    if not path:
        return value
    if path[0] == LIST:
        return [_put(document[0] if document else None, path[1:], value)]
    inner = {} if document is None else document
    return inner | {path[0]: _put(inner.get(path[0]), path[1:], value)}


def document_of(fields: Sequence[tuple[FieldRef, Any]]) -> Any:
    """Return a document with these fields; every list on a path has one element."""
    document: Any = None
    for path, value in fields:
        steps = parse_path(str(path))
        document = _put(document, (str(path),) if steps is None else steps, value)
    return document
