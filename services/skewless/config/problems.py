"""Formats pydantic errors for users: the path of the setting and the remedy.

Messages never contain values, because these may be secrets.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from skewless.config.pipeline_settings import PipelineSettings
from skewless.settings_base import InvalidSettingsError, plain, without_consequences

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
"""Path of a setting; elements of lists have numbers."""

_TAGGED = re.compile(r"(splitter|join\.\w+|enrich(\.tables\.\d+)?)\.format|splitter\.envelope|source\.topics")
"""Settings of several kinds. Of each kind, pydantic validates another class, whose tag follows in the path."""
FROM_ENVIRONMENT = "environment (no -f FILE)"


def by_setting(
    problems: Sequence[ErrorDetails], document: Any, model: type[BaseModel] = PipelineSettings
) -> dict[Location, str]:
    """Return the messages of problems by the path of their setting in the document, which `model` describes."""
    messages: dict[Location, str] = {}
    for problem in without_consequences(problems):
        for setting, message in _by_setting(_in_document(problem["loc"], document), problem, model).items():
            # A setting with several allowed types has one error for each of them.
            messages[setting] = f"{messages[setting]}, or {message}" if setting in messages else message
    return messages


def describe(
    messages: Mapping[Location, str], variables: Mapping[tuple[str, ...], str], file: Path | None, in_file: Any
) -> list[str]:
    """Return one line for each setting: `file: path: message`, or `VARIABLE: message` if the environment set it.

    `in_file` is the document of the file, without the environment. The line of a variable contains the path if it is
    not that of the variable.
    """
    lines = []
    for setting, message in messages.items():
        path = tuple(map(str, setting))
        found = _variable_path(path, message, variables, in_file)
        location = [str(file or FROM_ENVIRONMENT) if found is None else variables[found]]
        if path != found:
            location += _path(setting)
        lines.append(": ".join([*location, message]))
    return lines


def _variable_path(
    setting: tuple[str, ...], message: str, variables: Mapping[tuple[str, ...], str], in_file: Any
) -> tuple[str, ...] | None:
    """Return the path of the variable that causes a problem of a setting; None if the file causes it."""
    for length in range(len(setting), 0, -1):
        if setting[:length] in variables:
            return setting[:length]
    is_in_file = _contains(in_file, setting)
    parts = (path for path in variables if setting and path[: len(setting)] == setting)
    return next((path for path in parts if not is_in_file or path[-1] in message), None)


def _contains(document: Any, setting: tuple[str, ...]) -> bool:
    """Return whether a document contains a setting."""
    for part in setting:
        if not isinstance(document, dict) or part not in document:
            return False
        document = document[part]
    return True


def _path(setting: Location) -> list[str]:
    return [".".join(map(str, setting))] if setting else []


def _by_setting(group: Location, problem: ErrorDetails, model: type[BaseModel]) -> dict[Location, str]:
    """Return the messages of a problem by setting: a validator of a group may find several, in members of the group.

    Members are named; those of a list have numbers.
    """
    error = problem.get("ctx", {}).get("error")
    messages = error.problems if isinstance(error, InvalidSettingsError) else (_message(problem, group, model),)
    names, lines = _names(group, model), dict[Location, str]()
    for message in messages:
        member, colon, detail = message.partition(": ")
        names_a_member = colon and (member.split(".")[0] in names or member.isdigit())
        setting, line = ((*group, *member.split(".")), detail) if names_a_member else (group, message)
        lines[setting] = f"{lines[setting]}; {line}" if setting in lines else line
    return lines


def without_tags(location: Location) -> Location:
    """Remove the tag that pydantic adds to the path of settings of several kinds: formats, envelopes, source topics."""
    for depth in range(2, len(location)):
        if _TAGGED.fullmatch(".".join(map(str, location[:depth]))):
            return location[:depth] + location[depth + 1 :]
    return location


def _in_document(location: Location, document: Any) -> Location:
    """Remove what pydantic appends to the path of a setting: the member of a union that it tried."""
    location = without_tags(location)
    for depth, part in enumerate(location):
        if isinstance(document, dict):
            document = document.get(part)
        elif isinstance(document, list) and isinstance(part, int):
            document = document[part]
        else:
            return location[:depth]
    return location


def _message(problem: ErrorDetails, setting: Location, model: type[BaseModel]) -> str:
    match problem["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "unknown setting" + _suggestion(setting, model)
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be a mapping of settings; add settings, or remove it"
    return plain(problem)


def _suggestion(setting: Location, model: type[BaseModel]) -> str:
    names = _names(setting[:-1], model)
    close = difflib.get_close_matches(str(setting[-1]), names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known settings: {', '.join(names)}" if names else ""


def _names(group: Location, model: type[BaseModel]) -> list[str]:
    """Return the names of the settings in a group."""
    for part in group:
        if isinstance(part, int):  # an element of a list, whose settings class was found already
            continue
        field = model.model_fields.get(str(part))
        models = list(models_of(field.annotation)) if field else []
        if len(models) != 1:
            return list(dict.fromkeys(name for member in models for name in _setting_names(member)))
        model = models[0]
    return _setting_names(model)


def _setting_names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the settings classes in a type, which may be a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_of(argument)
