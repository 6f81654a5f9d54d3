"""Loads the settings of a pipeline: defaults, then its YAML file, then the environment.

`SKEWLESS__KAFKA__BOOTSTRAP_SERVERS` sets `kafka.bootstrap_servers`: two underscores separate the names of a path, in
upper or lower case. Values are YAML (`8`, `null`, `[count, sum]`); text that is not valid YAML is used unchanged.
Secrets are never YAML: they are used unchanged, without a line break at their end. In names of Kafka options except
`log_level`, `_` is read as `.` (`SKEWLESS__KAFKA__OPTIONS__SOCKET_TIMEOUT_MS`), in names of topics as `-`
(`SKEWLESS__TOPICS__OPTIONS__WORKER_INPUT__RETENTION_MS`). A variable that names no setting is an error.
`KAFKA_BOOTSTRAP_SERVERS` is the default of `kafka.bootstrap_servers`.

The folder of the file becomes the last one in which Python finds the module of `splitter.python`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import yaml
from pydantic import BaseModel, SecretStr, ValidationError

from skewless.config import yaml_loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.problems import FROM_ENVIRONMENT, by_setting, describe, models_of, without_tags
from skewless.errors import ConfigurationError
from skewless.kafka.other_cluster import SECTION, of_other_cluster
from skewless.parsing.python_function import add_search_folder

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from skewless.config.problems import Location
    from skewless.parsing.join_side_settings import JoinSideSettings
    from skewless.stages.splitter.settings import SplitterSettings

PREFIX = "SKEWLESS__"
BOOTSTRAP_SERVERS = "KAFKA_BOOTSTRAP_SERVERS"
"""Variable with the addresses of brokers for pipelines that set none."""
SET_BY_OPTIONS = "SKEWLESS_SET_BY_OPTIONS"
"""Variable with the options that have set other variables: a JSON object, variable -> option as the user wrote it.

Messages name the option, also those of the processes that a command starts.
"""
HIDDEN = "********"
SECRET_OPTION = re.compile(r"password|passphrase|secret|\.pem$|\.key$|jaas|oauthbearer\.config")
"""Pattern of librdkafka options whose values are secret."""
MAX_PATH = 8
"""Length of the longest paths in which secrets are looked for. `mirror.kafka.sasl.oauthbearer.client_secret` has 5."""

Variables = dict[tuple[str, ...], str]
"""Path of a setting -> name of the environment variable that sets it, or of the option that has set the variable."""


def load(path: Path | None, environ: Mapping[str, str]) -> PipelineSettings:
    """Load the settings from a file (None: from the environment only). The environment overrides the file.

    Raises ConfigurationError with all invalid settings at once, each with its file or variable and its path. Settings
    are only checked together if each of them is valid.
    """
    in_file: dict[str, Any] = {} if path is None else yaml_loader.read(path)
    document, variables = dict(in_file), _default_variables(environ, in_file) | _variables(environ)
    values = {setting: _value(setting, environ[name]) for setting, name in variables.items()}
    ignored = [setting for setting, value in values.items() if not _put(document, setting, value)]
    result = _validate(document)
    if isinstance(result, list) and (text_settings := _text_settings(result, variables)):
        for setting in text_settings:
            _put(document, setting, environ[variables[setting]])
        result = _validate(document)
    messages = _messages(result, document) if isinstance(result, list) else {}
    for setting in ignored:
        if not any(setting[:length] in messages for length in range(1, len(setting))):
            messages[setting] = "unknown setting, because a part of its path is a value"
    if isinstance(result, list) or messages:
        raise ConfigurationError(*describe(messages, _with_options(variables, environ), path, in_file))
    if result.splitter.python is not None:
        add_search_folder(Path.cwd() if path is None else path.parent)
    return result


def placed(problem: str, path: Path | None, environ: Mapping[str, str]) -> str:
    """Return a problem `setting: message` that was found after `load` with its file or variable as prefix.

    The variable is used if it sets the setting itself, or a part of it that the message names.
    """
    setting = tuple(problem.partition(": ")[0].split("."))
    if setting[0] not in PipelineSettings.model_fields:
        return problem
    for variable_setting, name in _with_options(_variables(environ), environ).items():
        is_named_part = variable_setting[: len(setting)] == setting and variable_setting[-1] in problem
        if variable_setting == setting or is_named_part:
            return f"{name}: {problem}"
    return f"{path or FROM_ENVIRONMENT}: {problem}"


def _variables(environ: Mapping[str, str]) -> Variables:
    return {setting_of(name): name for name in sorted(environ) if name.startswith(PREFIX)}


def _with_options(variables: Variables, environ: Mapping[str, str]) -> Variables:
    """Return the variables with the options in place of those that options have set."""
    options = options_of(environ)
    return {setting: options.get(name, name) for setting, name in variables.items()}


def options_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options that have set variables, by variable; see `SET_BY_OPTIONS`."""
    options: dict[str, str] = json.loads(environ.get(SET_BY_OPTIONS, "{}"))
    return options


def _default_variables(environ: Mapping[str, str], in_file: dict[str, Any]) -> Variables:
    """Return the variables that set defaults of settings which the file does not set."""
    kafka = in_file.get("kafka", {})
    is_unset = isinstance(kafka, dict) and "bootstrap_servers" not in kafka
    return {("kafka", "bootstrap_servers"): BOOTSTRAP_SERVERS} if is_unset and environ.get(BOOTSTRAP_SERVERS) else {}


def _validate(document: dict[str, Any]) -> PipelineSettings | list[ErrorDetails]:
    try:
        return PipelineSettings.model_validate(document)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)


def _messages(problems: list[ErrorDetails], document: Any) -> dict[Location, str]:
    """Return the messages of problems by setting. Those of a section that has the settings of `kafka` name its own."""
    messages = by_setting(problems, document)
    is_other = {setting: setting[: len(SECTION)] == SECTION for setting in messages}
    return {setting: of_other_cluster(text) if is_other[setting] else text for setting, text in messages.items()}


def _text_settings(problems: list[ErrorDetails], variables: Variables) -> list[tuple[str, ...]]:
    """Return the variables' settings that require text but were read as another YAML type: a password of digits."""
    settings = {without_tags(problem["loc"]) for problem in problems if problem["type"] == "string_type"}
    return [setting for setting in variables if setting in settings]


def setting_of(name: str) -> tuple[str, ...]:
    """Return the path of the setting of an environment variable."""
    parts = name.removeprefix(PREFIX).lower().split("__")
    match parts:
        case [*_, "kafka", "options", option] if option != "log_level":  # the only one with this character
            return (*parts[:-1], option.replace("_", "."))
        case ["topics", "options", topic]:
            return ("topics", "options", topic.replace("_", "-"))
        case ["topics", "options", topic, option]:
            return ("topics", "options", topic.replace("_", "-"), option.replace("_", "."))
    return tuple(parts)


def variable_of(setting: str) -> str:
    """Return the environment variable of a setting: of `router.workers`, `SKEWLESS__ROUTER__WORKERS`."""
    section, of_kafka, name = setting.partition("kafka.options.")
    parts = f"{section}{of_kafka}{name.replace('.', '_')}".split(".")
    match parts:
        case ["topics", "options", topic, *option] if option:
            parts = ["topics", "options", topic.replace("-", "_"), "_".join(option)]
    return PREFIX + "__".join(parts).upper()


def _value(setting: tuple[str, ...], text: str) -> Any:
    """Return the value of a setting from its text. A secret is the text, without a line break at its end."""
    if not is_secret(setting):
        return value_of(text)
    return re.sub(r"\r?\n\Z", "", text) or None


def is_secret(setting: tuple[str, ...]) -> bool:
    """Return whether a setting is masked in output."""
    if setting[-3:-1] == ("kafka", "options"):
        return SECRET_OPTION.search(setting[-1]) is not None
    models: list[type[BaseModel]] = [PipelineSettings]
    types: list[Any] = []
    for part in setting:
        types = [model.model_fields[part].annotation for model in models if part in model.model_fields]
        models = [model for type_ in types for model in models_of(type_)]
    return any(SecretStr in (type_, *get_args(type_)) for type_ in types)


def secrets_of(setting: tuple[str, ...], text: str) -> Iterator[tuple[str, ...]]:
    """Yield the secrets that a text sets: the setting itself, or settings of the group that it is."""
    settings = [(setting, value_of(text))]
    for path, value in settings:
        if is_secret(path):
            yield path
        # An alias of YAML can make a group a part of itself.
        elif isinstance(value, dict) and len(path) < MAX_PATH:
            settings += [((*path, str(name)), part) for name, part in value.items()]


def value_of(text: str) -> Any:
    """Return a value from a variable or an option: parsed as YAML, or the text itself if it is not valid YAML."""
    try:
        return yaml_loader.parse(text)
    except yaml.YAMLError:
        return text


def _put(document: dict[str, Any], setting: tuple[str, ...], value: Any) -> bool:
    """Set a setting of the document. Return False if a group that contains it has a value instead of settings."""
    group: Any = document
    for part in setting[:-1]:
        section = {} if group.get(part) is None else group[part]
        if not isinstance(section, dict):
            return False
        # A copy: with an anchor of YAML, two sections are one object.
        group[part] = dict(section)
        group = group[part]
    group[setting[-1]] = value
    return True


def dump(settings: PipelineSettings, *, only_set: bool = False) -> str:
    """Return the effective settings as YAML that `load` can read, in the order of their declaration.

    With `only_set`, those that were not set are left out. Secrets are hidden. `splitter` and the sides of `join` never
    contain settings that were not set, because they reject settings without effect.
    """
    document = settings.model_dump(exclude_unset=only_set)
    if not only_set:
        document["splitter"] = _set_settings(settings.splitter)
        for name, side in settings.sides.items():
            document["join"][name] = _set_settings(side)
    for section in (document, document.get("mirror") or {}):
        options = section.get("kafka", {}).get("options", {})
        options |= {name: HIDDEN for name in options if SECRET_OPTION.search(name)}
    return yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True)


def _set_settings(section: SplitterSettings | JoinSideSettings) -> dict[str, Any]:
    """Return the settings that were set, and all settings of the format."""
    return section.model_dump(exclude_unset=True) | {"format": section.format.model_dump()}


def _plain(value: Any) -> Any:
    match value:
        case SecretStr():
            return HIDDEN if value.get_secret_value() else ""
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value
