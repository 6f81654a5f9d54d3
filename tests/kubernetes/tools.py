"""Runs external programs and returns their output."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helpers.waiting import until

COMMAND_S = 120.0


class ToolError(Exception):
    """A program ended with an exit code other than 0."""


def run(*command: str | Path, stdin: str | None = None, limit_s: float = COMMAND_S) -> str:
    """Run a program to its end and return its standard output. Raises ToolError with its standard error."""
    ran = subprocess.run(
        [*map(str, command)], input=stdin, capture_output=True, text=True, timeout=limit_s, check=False
    )
    if ran.returncode:
        raise ToolError(
            f"{' '.join(map(str, command))}: exit code {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}"
        )
    return ran.stdout


def seconds_until(holds: Callable[[], bool], what: str, limit_s: float) -> float:
    """Poll until a condition holds and return the seconds. If a program fails, the condition does not hold yet."""
    started = time.monotonic()
    problems: list[ToolError] = []

    def succeeds() -> bool:
        try:
            return holds()
        except ToolError as error:
            problems.append(error)
            return False

    try:
        until(succeeds, limit_s=limit_s, every_s=0.1)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}", *problems[-1:]) from None
    return time.monotonic() - started


def write_json(path: Path, document: Mapping[str, Any]) -> Path:
    """Write a document as JSON, which is valid YAML."""
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path
