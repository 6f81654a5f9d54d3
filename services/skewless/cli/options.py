"""Click options and parameter types that several commands share."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.cli.main import PROBLEM_LOCATOR
from skewless.errors import ConfigurationError

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.kafka.settings import KafkaSettings

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")

pipeline_file = click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The pipeline's YAML file. The environment variable SKEWLESS__PART__NAME overrides part.name.",
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
        match = _DURATION.fullmatch(str(value))
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is not a duration such as 30s, 5m, 1h or 2d.", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


def load_settings(file: Path | None) -> PipelineSettings:
    """Load the settings from the file and the environment of this process."""
    from skewless.config.loader import load, placed

    settings = load(file, os.environ)
    if context := click.get_current_context(silent=True):
        # If several files are loaded, the file that causes a later problem is unknown.
        has_other_file = PROBLEM_LOCATOR in context.meta
        context.meta[PROBLEM_LOCATOR] = str if has_other_file else lambda problem: placed(problem, file, os.environ)
    return settings


def topic_of(option: str, name: str) -> str:
    """Return the name of a topic; ConfigurationError if it is not a valid name in Kafka."""
    from pydantic import ValidationError

    from skewless.config.pipeline_settings import SourceSettings
    from skewless.config.problems import plain

    try:
        return SourceSettings.model_validate({"topic": name}).topic
    except ValidationError as error:
        raise ConfigurationError(f"{option}: {plain(error.errors()[0])}") from None


def broker_of(servers: str | None, kafka: KafkaSettings | None = None) -> KafkaSettings:
    """Return the Kafka settings of a command that has the option --bootstrap-servers.

    The address is that of the option, else of the pipeline `kafka`, else $KAFKA_BOOTSTRAP_SERVERS, else localhost:9092.
    """
    from pydantic import ValidationError

    from skewless.config.problems import plain
    from skewless.kafka.settings import KafkaSettings

    if kafka is None:
        kafka, servers = KafkaSettings.model_validate({}), servers or os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if not servers:
        return kafka
    try:
        return KafkaSettings.model_validate({**dict(kafka), "bootstrap_servers": servers})
    except ValidationError as error:
        raise ConfigurationError(f"--bootstrap-servers: {plain(error.errors()[0])}") from None


def kafka_of(file: Path | None, servers: str | None) -> KafkaSettings:
    """Return the Kafka settings of a command that needs only a topic.

    They are the section `kafka` of the file or, without a file, of the environment. `servers` overrides the address.
    """
    from skewless.config.loader import load

    if file is not None:
        return broker_of(servers, load_settings(file).kafka)
    only_kafka = {name: value for name, value in os.environ.items() if name.upper().startswith("SKEWLESS__KAFKA__")}
    if not only_kafka:
        return broker_of(servers)
    required = {"SKEWLESS__NAME": "topic", "SKEWLESS__SOURCE__TOPIC": "topic"}
    return broker_of(servers, load(None, only_kafka | required).kafka)


def prepare_output_folder(out: Path, report: str = "", subfolders: Sequence[str] = ()) -> None:
    """Create the folder --out for results; ConfigurationError if that fails or would replace files of the user.

    The command replaces the `subfolders` later. So a subfolder that exists must be the output of an earlier run: the
    file `report` is next to the subfolder, or the subfolder contains marker files of Spark.
    """
    writable_folder("--out", out)
    for folder in (out / name for name in subfolders):
        if folder.exists() and not _is_own_output(folder, out / report):
            raise ConfigurationError(
                f"--out: {folder} is not the output of an earlier run and would be replaced: name another folder"
            )


def writable_folder(option: str, folder: Path) -> None:
    """Create a folder; ConfigurationError if it cannot be created or is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigurationError(f"{option}: {folder}: cannot be created or written to: {error.strerror}") from None


def _is_own_output(folder: Path, report: Path) -> bool:
    return report.exists() or any((folder / marker).exists() for marker in ("_SUCCESS", "_temporary"))
