"""A process that spark-submit has started. Its Java runs already, so the options of Java belong to spark-submit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from skewless.errors import ConfigurationError

_PORT = "PYSPARK_GATEWAY_PORT"
"""Environment variable by which spark-submit passes the connection to its Java."""
_OF_JAVA = ("master", "packages", "driver_memory", "ui")
"""Options of commands that Java reads when it starts."""


def is_submitted() -> bool:
    """Return whether spark-submit has started this process."""
    return _PORT in os.environ


def check(command_options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for options that spark-submit must have instead."""
    if given := [name for name in _OF_JAVA if command_options[name]]:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigurationError(f"{options}: spark-submit has started Spark: give it to spark-submit, before the file")
