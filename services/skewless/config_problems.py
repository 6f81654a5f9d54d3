"""What pydantic found wrong, as a user wants to read it: where it stands, and what to do. Values are never shown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from skewless.settings import PipelineSettings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
FROM_ENVIRONMENT = "environment (no -f FILE)"


def describe(
    problems: Sequence[ErrorDetails], document: Any, variables: Mapping[tuple[str, ...], str], file: Path | None
) -> list[str]:
    """Return one line for each problem: `file: path: message`, or `VARIABLE: message` if the environment set it."""
    lines: dict[str, str] = {}
    for problem in problems:
        for setting, message in _split(_in_document(problem["loc"], document), problem):
            variable = variables.get(tuple(map(str, setting)))
            where = variable or ": ".join([str(file or FROM_ENVIRONMENT), *_path(setting)])
            # A setting that may be of several types fails once for each of them.
            lines[where] = f"{lines[where]}, or {message}" if where in lines else message
    return [f"{where}: {message}" for where, message in lines.items()]


def _path(setting: Location) -> list[str]:
    return [".".join(map(str, setting))] if setting else []


def _split(setting: Location, problem: ErrorDetails) -> Iterator[tuple[Location, str]]:
    """Take apart what a group of settings says about several of its members: `key.field: ...; value.default: ...`."""
    names = _names(setting)
    for message in re.split(r"; (?=[a-z_.]+: )", _message(problem, setting)):
        member, colon, rest = message.partition(": ")
        inside = colon and member.split(".")[0] in names
        yield ((*setting, *member.split(".")), rest) if inside else (setting, message)


def _in_document(location: Location, document: Any) -> Location:
    """Cut off what pydantic adds behind the path of a setting: which member of a union it tried."""
    for depth, part in enumerate(location):
        if isinstance(document, dict):
            document = document.get(part)
        elif isinstance(document, list) and isinstance(part, int):
            document = document[part]
        else:
            return location[:depth]
    return location


def _message(problem: ErrorDetails, setting: Location) -> str:
    match problem["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "unknown setting" + _suggestion(setting)
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be a mapping of settings; give it some, or remove it"
    return plain(problem)


def plain(problem: ErrorDetails) -> str:
    """Return the message without pydantic's own words: users write lists, never tuples."""
    match problem["type"]:
        case "tuple_type":
            return "should be a list"
        case "value_error":
            return str(problem["ctx"]["error"])
    return problem["msg"].replace("Input should", "should").replace("String should", "should")


def _suggestion(setting: Location) -> str:
    names = _names(setting[:-1])
    close = difflib.get_close_matches(str(setting[-1]), names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known here: {', '.join(names)}" if names else ""


def _names(group: Location) -> list[str]:
    """Names of the settings in a group."""
    model: type[BaseModel] = PipelineSettings
    for part in group:
        field = model.model_fields.get(str(part))
        kinds = (field.annotation, *get_args(field.annotation)) if field else ()
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not models:
            return []
        model = models[0]
    return list(model.model_fields)
