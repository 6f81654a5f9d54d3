"""Options that several commands share."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.cli import PLACED
from skewless.errors import ConfigurationError

if TYPE_CHECKING:
    from skewless.settings import PipelineSettings
    from skewless.transport.settings import KafkaSettings

pipeline_file = click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The pipeline's YAML file. SKEWLESS__PART__NAME in the environment sets part.name, and wins.",
)


class Finite(click.FloatRange):
    """A number between bounds: what Python also reads as a float, `nan` and `inf`, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what is not a number of these bounds."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def load_settings(file: Path | None) -> PipelineSettings:
    """Load the settings from the file and this process's environment."""
    from skewless.config import load, placed

    settings = load(file, os.environ)
    if context := click.get_current_context(silent=True):
        # With several files, a later problem does not say which of them it is about.
        several = PLACED in context.meta
        context.meta[PLACED] = str if several else lambda problem: placed(problem, file, os.environ)
    return settings


def topic_of(option: str, name: str) -> str:
    """Return the name of a topic; ConfigurationError when Kafka takes no topic of that name."""
    from pydantic import ValidationError

    from skewless.config_problems import plain
    from skewless.settings import SourceSettings

    try:
        return SourceSettings.model_validate({"topic": name}).topic
    except ValidationError as error:
        raise ConfigurationError(f"{option}: {plain(error.errors()[0])}") from None


def broker_of(servers: str | None, kafka: KafkaSettings | None = None) -> KafkaSettings:
    """Tell the broker: --bootstrap-servers, else the pipeline's, else $KAFKA_BOOTSTRAP_SERVERS, else this machine's."""
    from pydantic import ValidationError

    from skewless.config_problems import plain
    from skewless.transport.settings import KafkaSettings

    if kafka is None:
        kafka, servers = KafkaSettings.model_validate({}), servers or os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if not servers:
        return kafka
    try:
        return KafkaSettings.model_validate({**dict(kafka), "bootstrap_servers": servers})
    except ValidationError as error:
        raise ConfigurationError(f"--bootstrap-servers: {plain(error.errors()[0])}") from None


def results_folder(out: Path, of: str = "", parts: Sequence[str] = ()) -> None:
    """Make the folder --out for results; ConfigurationError where that cannot be done.

    `parts` are folders in it that will be replaced. Those that are there must come from a run before, which left the
    file `of`, or marks of Spark in them.
    """
    writable_folder("--out", out)
    for part in (out / name for name in parts):
        if part.exists() and not _is_ours(part, out / of):
            raise ConfigurationError(f"--out: {part} is not of an earlier run and would be replaced: name another")


def writable_folder(option: str, folder: Path) -> None:
    """Make a folder; ConfigurationError where that cannot be done, or nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigurationError(f"{option}: {folder}: cannot be made or written to: {error.strerror}") from None


def _is_ours(part: Path, mark: Path) -> bool:
    return mark.exists() or any((part / left).exists() for left in ("_SUCCESS", "_temporary"))
