"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from skewless.settings import PipelineSettings

pipeline_file = click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The pipeline's YAML file. SKEWLESS__PART__NAME in the environment sets part.name, and wins.",
)


def load_settings(file: Path | None) -> PipelineSettings:
    """Load the settings from the file and this process's environment."""
    from skewless.config import load

    return load(file, os.environ)
