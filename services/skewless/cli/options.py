"""Click options and parameter types that several commands share."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from skewless.cli.main import PROBLEM_LOCATOR
from skewless.errors import ConfigurationError
from skewless.lab.local.folders import create_named
from skewless.times import FORM, parse_duration

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.kafka.settings import KafkaSettings
    from skewless.schema_registry.settings import RegistrySettings

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_FILE = Path("pipeline.yaml")
REGISTRY_URL = "registry.url"


def default_file() -> Path | None:
    """Return the pipeline file of a command without -f: that of $SKEWLESS_FILE, else pipeline.yaml if it exists."""
    if named := os.environ.get("SKEWLESS_FILE"):
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def _default_file(_ctx: click.Context, _param: click.Parameter, file: Path | None) -> Path | None:
    return file or default_file()


def _set_variables(ctx: click.Context, _param: click.Parameter, assignments: Sequence[str]) -> None:
    """Set the environment variable of each assignment until the command ends.

    Processes that the command starts and files that it reads again need the assignments too.
    """
    from skewless.config.loader import secrets_of, setting_of, variable_of

    options: dict[str, str] = {}
    values: dict[str, str] = {}
    for assignment in assignments:
        setting, equals, value = assignment.partition("=")
        if not equals or not all(setting.split(".")):
            raise click.BadParameter(f"{assignment!r} is not NAME=VALUE, such as router.workers=8.")
        variable = variable_of(setting)
        for path in secrets_of(setting_of(variable), value):
            name = ".".join(path)
            remedy = f"set {variable_of(name)} instead"
            raise click.BadParameter(f"{name} is a secret, and command lines are visible: {remedy}.")
        options[variable] = f"--set {setting}"
        values[variable] = value
    _set_until_closed(ctx, values, options)


def _set_registry(ctx: click.Context, _param: click.Parameter, url: str | None) -> None:
    from skewless.config.loader import variable_of

    if url is not None:
        variable = variable_of(REGISTRY_URL)
        _set_until_closed(ctx, {variable: url}, {variable: "--registry"})


def _set_until_closed(ctx: click.Context, values: Mapping[str, str], options: Mapping[str, str]) -> None:
    from skewless.config.loader import SET_BY_OPTIONS, options_of

    if not values:
        return
    values = {**values, SET_BY_OPTIONS: json.dumps(options_of(os.environ) | dict(options))}
    before = {name: os.environ.get(name) for name in values}
    ctx.call_on_close(lambda: _restore(before))
    os.environ.update(values)


def _restore(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


_OVERRIDES = "The environment variable SKEWLESS__PART__NAME overrides part.name."
_set_option = click.option(
    "--set",
    multiple=True,
    expose_value=False,
    callback=_set_variables,
    metavar="NAME=VALUE",
    help="Override a setting of the pipeline, such as router.workers=8; repeatable.",
)


def pipeline_file(command: Command) -> Command:
    """Add the options of a command that needs a pipeline: -f, which has a default, and --set."""
    default = "Default: $SKEWLESS_FILE, else pipeline.yaml if it exists. "
    return _pipeline_options(command, default, _default_file)


def optional_pipeline_file(command: Command) -> Command:
    """Add the options of a command that works without a pipeline too: -f and --set."""
    return _pipeline_options(command)


def _pipeline_options(command: Command, default: str = "", callback: Callable[..., Any] | None = None) -> Command:
    text = f"The pipeline's YAML file. {default}{_OVERRIDES}"
    file = click.option("-f", "--file", type=click.Path(path_type=Path), callback=callback, metavar="FILE", help=text)
    return file(_set_option(command))


registry_option = click.option(
    "--registry",
    metavar="URL",
    expose_value=False,
    callback=_set_registry,
    help="Address of the schema registry, if records have schema ids. Its login is read from the environment, such as "
    "SKEWLESS__REGISTRY__USERNAME and SKEWLESS__REGISTRY__PASSWORD.",
)


def _hide_progress(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value:
        from skewless.lab import progress

        ctx.call_on_close(progress.hide())


no_progress = click.option(
    "-q",
    "--no-progress",
    is_flag=True,
    expose_value=False,
    callback=_hide_progress,
    help="Print no progress of long work.",
)


take_over = click.option(
    "--take-over",
    is_flag=True,
    help="Replace processes of the pipeline that run already. They end with exit code 3.",
)


class FiniteFloat(click.FloatRange):
    """Parameter type of a finite number between bounds; rejects `nan` and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; fail if it is not finite or outside the bounds."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Duration(click.ParamType):
    """Parameter type of a duration such as 30s, 5m, 1h or 2d, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in seconds; fail if it is not one."""
        seconds = parse_duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not {FORM}.", param, ctx)
        return seconds


def load_settings(file: Path | None) -> PipelineSettings:
    """Load the settings from the file and the environment of this process, which --set has changed."""
    from skewless.config.loader import PREFIX, load, placed

    if file is None and f"{PREFIX}NAME" not in os.environ:
        raise ConfigurationError(
            f"no pipeline file: name it with -f FILE or $SKEWLESS_FILE, or write {DEFAULT_FILE}, as `skewless init "
            "TOPIC` does"
        )
    settings = load(file, os.environ)
    if context := click.get_current_context(silent=True):
        # If several files are loaded, the file that causes a later problem is unknown.
        has_other_file = PROBLEM_LOCATOR in context.meta
        environ = dict(os.environ)  # --set has ended when the problem is printed
        context.meta[PROBLEM_LOCATOR] = str if has_other_file else lambda problem: placed(problem, file, environ)
    return settings


def is_given(name: str) -> bool:
    """Return whether the user has set a parameter of the running command that has a default."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def topic_of(option: str, name: str) -> str:
    """Return the name of a topic; ConfigurationError if it is not a valid name in Kafka."""
    from pydantic import ValidationError

    from skewless.config.pipeline_settings import SourceSettings
    from skewless.settings_base import plain

    try:
        SourceSettings.model_validate({"topic": name})
    except ValidationError as error:
        raise ConfigurationError(f"{option}: {plain(error.errors()[0])}") from None
    return name


def bootstrap_servers_option(default: str = "") -> Callable[[Command], Command]:
    """Return the option -b. `default`: addresses that come before the general default, such as `those of -f, else `."""
    return click.option(
        "-b",
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help=f"Brokers, separated by commas. Default: {default}$KAFKA_BOOTSTRAP_SERVERS, else localhost:9092.",
    )


def kafka_of(servers: str | None) -> KafkaSettings:
    """Return the Kafka settings of the environment. `servers` overrides the address."""
    return with_servers(_sections(None, "kafka").kafka, servers)


def connections_of(file: Path | None, servers: str | None) -> tuple[KafkaSettings, RegistrySettings | None]:
    """Return the settings of Kafka and of the schema registry, of the file or of the environment.

    `servers` overrides the address of Kafka. The registry is None if its address is not set.
    """
    from skewless.config.loader import variable_of

    is_set = variable_of(REGISTRY_URL) in map(str.upper, os.environ)
    settings = _sections(file, "kafka", *(["registry"] if is_set else []))
    return with_servers(settings.kafka, servers), settings.registry


def _sections(file: Path | None, *sections: str) -> PipelineSettings:
    """Return the settings of the file or, without a file, these sections from the environment."""
    from skewless.config.loader import BOOTSTRAP_SERVERS, SET_BY_OPTIONS, load, variable_of

    if file is not None:
        return load_settings(file)
    # Other variables are not read, because those of a pipeline may not be valid without its file.
    prefixes = tuple(f"{variable_of(section)}__" for section in sections)
    others = {BOOTSTRAP_SERVERS, SET_BY_OPTIONS}
    names = [name for name in os.environ if name in others or name.upper().startswith(prefixes)]
    required = {"SKEWLESS__NAME": "topic", "SKEWLESS__SOURCE__TOPIC": "topic"}
    return load(None, {name: os.environ[name] for name in names} | required)


def with_servers(kafka: KafkaSettings, servers: str | None) -> KafkaSettings:
    """Return the settings with the addresses of --bootstrap-servers, if the option is given."""
    from pydantic import ValidationError

    from skewless.kafka.settings import KafkaSettings
    from skewless.settings_base import plain

    if servers is None:
        return kafka
    try:
        return KafkaSettings.model_validate({**dict(kafka), "bootstrap_servers": servers})
    except ValidationError as error:
        raise ConfigurationError(f"--bootstrap-servers: {plain(error.errors()[0])}") from None


def prepare_output_folder(out: Path, files: Sequence[str], subfolders: Sequence[str] = ()) -> None:
    """Create the folder --out for results; ConfigurationError if that fails or would replace files of the user.

    The command writes the `files` and replaces the `subfolders` later. So a subfolder that exists must be the output of
    an earlier run: the first of the files is next to the subfolder, or the subfolder contains marker files of Spark.
    """
    if out.parts and out.parts[0].endswith(":"):
        raise ConfigurationError(f"--out: {out} begins as a URI, which only batch accepts: name a folder")
    writable_folder("--out", out)
    for name in files:
        writable_file("--out", out / name)
    for folder in (out / name for name in subfolders):
        with writing("--out", folder):
            if folder.exists() and not _is_own_output(folder, out / files[0]):
                raise ConfigurationError(
                    f"--out: {folder} is not the output of an earlier run and would be replaced: name another folder"
                )


def writable_folder(option: str, folder: Path) -> None:
    """Create a folder; ConfigurationError if it cannot be created or is not writable.

    Folders that this creates and that are empty when the command ends, as after an error, are removed.
    """
    with contextlib.suppress(OSError):  # the folder cannot be created then
        remove_if_empty(path for path in (folder, *folder.parents) if not path.exists())
    create_named(option, folder)


def writable_file(option: str, file: Path) -> None:
    """Raise ConfigurationError if a file exists and cannot be written. A file that is missing is not created."""
    with writing(option, file), contextlib.suppress(FileNotFoundError):
        file.open("r+b").close()


@contextlib.contextmanager
def writing(option: str, file: Path) -> Iterator[None]:
    """Raise ConfigurationError with the option and the file if opening, writing or closing it fails."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{option}: {file}: cannot be written: {error.strerror}") from None


def remove_if_empty(folders: Iterable[Path]) -> None:
    """Remove folders at the end of the command, innermost first, up to the first one that has content."""
    created = list(folders)

    def remove() -> None:
        with contextlib.suppress(OSError):
            for folder in created:
                folder.rmdir()

    if context := click.get_current_context(silent=True):
        context.call_on_close(remove)


def _is_own_output(folder: Path, report: Path) -> bool:
    return report.exists() or any((folder / marker).exists() for marker in ("_SUCCESS", "_temporary"))
