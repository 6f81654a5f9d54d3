"""The configuration of a pipeline: defaults, then its YAML file, then the environment.

`SKEWLESS__KAFKA__BOOTSTRAP_SERVERS` sets `kafka.bootstrap_servers`: two underscores part the names of a path, which may
be in upper or lower case. Values are YAML (`8`, `null`, `[count, sum]`), or text as it is. In the names of Kafka's
options `_` stands for `.` (`SKEWLESS__KAFKA__OPTIONS__SOCKET_TIMEOUT_MS`), and in those of topics for `-`
(`SKEWLESS__TOPICS__OPTIONS__WORKER_INPUT__RETENTION_MS`). A variable that names no setting is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import SecretStr, ValidationError

from skewless import yaml_file
from skewless.config_problems import FROM_ENVIRONMENT, describe
from skewless.errors import ConfigurationError
from skewless.settings import PipelineSettings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PREFIX = "SKEWLESS__"
HIDDEN = "********"
SECRET_OPTION = re.compile(r"password|passphrase|secret|\.pem$|\.key$|jaas|oauthbearer\.config")
"""librdkafka options whose values must not be shown."""

Variables = dict[tuple[str, ...], str]
"""Path of a setting -> name of the environment variable that sets it."""


def load(path: Path | None, environ: Mapping[str, str]) -> PipelineSettings:
    """Load the settings from a file (None: from the environment alone); the environment wins.

    Raises ConfigurationError with every problem at once, each with file or variable and path.
    """
    document: dict[str, Any] = {} if path is None else yaml_file.read(path)
    variables = _variables(environ)
    for setting, name in variables.items():
        _put(document, setting, value_of(environ[name]))
    result = _validate(document)
    if isinstance(result, list) and (texts := _text_wanted(result, variables)):
        for setting in texts:
            _put(document, setting, environ[variables[setting]])
        result = _validate(document)
    if isinstance(result, list):
        raise ConfigurationError(*describe(result, document, variables, path))
    return result


def placed(problem: str, path: Path | None, environ: Mapping[str, str]) -> str:
    """Put the file, or the variable, before a problem `setting: message` that was found after `load`.

    A variable counts if it sets the setting itself, or a part of it that the message names.
    """
    setting = tuple(problem.partition(": ")[0].split("."))
    if setting[0] not in PipelineSettings.model_fields:
        return problem
    for other, name in _variables(environ).items():
        if other == setting or (other[: len(setting)] == setting and other[-1] in problem):
            return f"{name}: {problem}"
    return f"{path or FROM_ENVIRONMENT}: {problem}"


def _variables(environ: Mapping[str, str]) -> Variables:
    return {_setting(name): name for name in sorted(environ) if name.startswith(PREFIX)}


def _validate(document: dict[str, Any]) -> PipelineSettings | list[ErrorDetails]:
    try:
        return PipelineSettings.model_validate(document)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)


def _text_wanted(problems: list[ErrorDetails], variables: Variables) -> list[tuple[str, ...]]:
    """Find settings that want text where YAML read something else, as in a password of digits."""
    wanted = {problem["loc"] for problem in problems if problem["type"] == "string_type"}
    return [setting for setting in variables if setting in wanted]


def _setting(name: str) -> tuple[str, ...]:
    parts = name.removeprefix(PREFIX).lower().split("__")
    match parts:
        case ["kafka", "options", option]:
            return ("kafka", "options", option.replace("_", "."))
        case ["topics", "options", topic]:
            return ("topics", "options", topic.replace("_", "-"))
        case ["topics", "options", topic, option]:
            return ("topics", "options", topic.replace("_", "-"), option.replace("_", "."))
    return tuple(parts)


def value_of(text: str) -> Any:
    """Read a value from outside a file: YAML, or text as it is."""
    try:
        return yaml_file.parse(text)
    except yaml.YAMLError:
        return text


def _put(document: dict[str, Any], setting: tuple[str, ...], value: Any) -> None:
    group: Any = document
    for part in setting[:-1]:
        if group.get(part) is None:
            group[part] = {}
        group = group[part]
        if not isinstance(group, dict):
            return  # the file has a value where settings belong: that is the problem to report
    group[setting[-1]] = value


def dump(settings: PipelineSettings) -> str:
    """Write the effective configuration as YAML that `load` reads again, in the order of the settings' declaration.

    Secrets are hidden. Of `splitter` only what was set is shown, because it refuses settings that have no effect.
    """
    document = settings.model_dump()
    document["splitter"] = settings.splitter.model_dump(exclude_unset=True) | {"format": settings.splitter.format}
    options = document["kafka"]["options"]
    options |= {name: HIDDEN for name in options if SECRET_OPTION.search(name)}
    return yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    match value:
        case SecretStr():
            return HIDDEN
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
    return value
