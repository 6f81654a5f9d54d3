"""Converts the arguments of a pipeline to environment variables of its settings, as the option --set does.

So one loader checks them, whether they are in a file, in the environment or in a program. Problems name the argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import yaml

from skewless.aggregate_registry import name_in
from skewless.config.loader import is_secret, variable_of
from skewless.config.problems import FROM_ENVIRONMENT
from skewless.errors import ConfigurationError
from skewless.times import FORM, parse_duration

Path: TypeAlias = tuple[str, ...]
"""Path of a setting."""

PATHS: Mapping[str, Path] = {
    "key": ("splitter", "key"),
    "time": ("splitter", "time"),
    "format": ("splitter", "format"),
    "values": ("splitter", "values"),
    "window": ("aggregator", "window_s"),
    "aggregates": ("aggregator", "aggregates"),
    "brokers": ("kafka", "bootstrap_servers"),
}
"""Settings of parameters whose name is not that of a setting."""
PATHS_BY_KIND: Mapping[tuple[str, str], Path] = {
    ("source", "field"): ("source", "topic"),
    ("source", "list"): ("source", "topics"),
    ("key", "field"): ("splitter", "key", "field"),
    ("key", "list"): ("splitter", "key", "fields"),
    ("time", "field"): ("splitter", "time", "field"),
    ("window", "mapping"): ("aggregator", "window"),
}
"""Settings of parameters for some kinds of values."""
PARAMETERS: Mapping[str, str] = {
    **{".".join(path): parameter for (parameter, _), path in PATHS_BY_KIND.items()},
    **{".".join(path): parameter for parameter, path in PATHS.items()},
}
"""Parameters of `Pipeline` by the setting that they set; a setting is before those that contain it."""
ORDERED = ("rename_if_contains",)
"""Settings of names whose order counts. Environment variables have none."""
NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
"""Names of settings that an environment variable can contain."""
OPTION_NAME = re.compile(r"[a-z0-9.-]+")
"""Names of topics and options of Kafka that an environment variable can contain."""
VALUE_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def settings_of(parameters: Mapping[str, Any], sections: Mapping[str, Any]) -> dict[Path, Any]:
    """Return the settings that parameters of `Pipeline` and sections of its file set, by path.

    Raises ConfigurationError if a parameter and a section set the same setting.
    """
    settings: dict[Path, Any] = {}
    for name, value in parameters.items():
        settings.update(_flat(_path(name, value), _plain(name, value)))
    problems = []
    for name, section in sections.items():
        for path, value in _flat((name,), section):
            if path in settings:
                problems.append(f"{_parameter('.'.join(path))}: {'.'.join(path)} is set as well, remove one of them")
            settings[path] = value
    if problems:
        raise ConfigurationError(*problems)
    return settings


def variables_of(settings: Mapping[Path, Any]) -> dict[str, str]:
    """Return the settings as environment variables. Raises ConfigurationError for an object that is not YAML."""
    variables, problems = {}, []
    for path, value in settings.items():
        if is_secret(path) and isinstance(value, str | None):
            variables[variable_of(".".join(path))] = value or ""  # secrets are not read as YAML
            continue
        try:
            text = yaml.safe_dump(value, default_flow_style=True, width=2**31, sort_keys=False)
        except yaml.YAMLError:
            problems.append(f"{_parameter('.'.join(path))}: {type(value).__name__} is not a value of a setting")
        else:
            variables[variable_of(".".join(path))] = text.removesuffix("...\n").rstrip("\n")
    if problems:
        raise ConfigurationError(*problems)
    return variables


def by_argument(problem: str, settings: Mapping[Path, Any]) -> str:
    """Return a problem of the loader with the argument in place of its variable, or of its setting."""
    location, _, message = problem.partition(": ")
    if location == FROM_ENVIRONMENT:
        return _parameter(message)
    path = next((".".join(path) for path in settings if variable_of(".".join(path)) == location), None)
    if path is None:
        return problem
    return _parameter(message) if message.startswith(f"{path}.") else f"{_parameter(path)}: {message}"


def elements_of(aggregates: Any) -> list[Any]:
    """Return the elements of the argument `aggregates`. Raises ConfigurationError if it is not a list of them."""
    if isinstance(aggregates, str | Mapping) or not isinstance(aggregates, Iterable):
        raise ConfigurationError(f"aggregates: must be a list of elements, not {aggregates!r}: use [{aggregates!r}]")
    return list(aggregates)


def values_of(aggregates: Sequence[Any], values: Any, splitter: Any) -> dict[str, Any]:
    """Return the settings of the values that the aggregates name. The default is the field with the name of the value.

    Values of section `splitter` are left out. Raises ConfigurationError for the path of a field in place of a name.
    """
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"values: must be a mapping from names to fields, not {values!r}")
    own = splitter.get("values") if isinstance(splitter, Mapping) else None
    named = [element.get(name_in(element)) for element in aggregates if isinstance(element, Mapping)]
    found = dict(values)
    for value in named:
        if not isinstance(value, str) or value in found or (isinstance(own, Mapping) and value in own):
            continue
        if not VALUE_NAME.fullmatch(value):
            short = re.sub(r"[^a-z0-9_]+", "_", value.rpartition(".")[2].lower()).strip("_") or "amount"
            raise ConfigurationError(
                f"aggregates: {value!r} is not the name of a value: add values={{{short!r}: {value!r}}}, and name "
                f"{short!r} in the aggregate"
            )
        found[value] = value
    return {name: _as_field(value) for name, value in found.items()}


def _path(name: str, value: Any) -> Path:
    """Return the path of the setting that a parameter with this value sets."""
    kind = "field" if _is_field(value) else "list" if isinstance(value, list | tuple) else "other"
    kind = "mapping" if isinstance(value, Mapping) else kind
    return PATHS_BY_KIND.get((name, kind)) or PATHS.get(name, (name,))


def _plain(name: str, value: Any) -> Any:
    """Return the value of the setting."""
    match name:
        case "window" if isinstance(value, timedelta):
            return value.total_seconds()
        case "window" if isinstance(value, str):
            seconds = parse_duration(value)
            if seconds is None:
                raise ConfigurationError(f"window: {value!r} is not {FORM}, a number of seconds, or a mapping")
            return seconds
        case "key" if isinstance(value, list | tuple):
            return [_as_field(part) for part in value]
        case "brokers" if isinstance(value, list | tuple):
            return ",".join(map(str, value))
    return value


def _is_field(value: Any) -> bool:
    """Return whether a value is a field: its name, or the number of a column."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def _as_field(value: Any) -> Any:
    """Return settings with a field."""
    return {"field": value} if _is_field(value) else value


def _flat(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the settings in a group by path, so that others of the group keep their values."""
    names = OPTION_NAME if path[1:2] == ("options",) else NAME
    is_group = isinstance(value, Mapping) and value and path[-1] not in ORDERED
    if is_group and all(isinstance(name, str) and names.fullmatch(name) for name in value):
        for name, part in value.items():
            yield from _flat((*path, name), part)
    else:
        yield path, dict(value) if isinstance(value, Mapping) else value


def _parameter(text: str) -> str:
    """Return a path, or a problem that begins with one, with the parameter in place of its setting."""
    for setting, parameter in PARAMETERS.items():
        if text == setting or text.startswith((f"{setting}.", f"{setting}: ")):
            return parameter + text[len(setting) :]
    return text
