"""Programs that are run, and what they say."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

COMMAND_S = 120.0


class ToolError(Exception):
    """A program ended with another exit code than 0."""


def run(*command: str | Path, stdin: str | None = None, limit_s: float = COMMAND_S) -> str:
    """Run a program to its end and return what it printed; raises ToolError with what it complained of."""
    ran = subprocess.run(
        [*map(str, command)], input=stdin, capture_output=True, text=True, timeout=limit_s, check=False
    )
    if ran.returncode:
        raise ToolError(
            f"{' '.join(map(str, command))}: exit code {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}"
        )
    return ran.stdout


def seconds_until(holds: Callable[[], bool], what: str, limit_s: float) -> float:
    """Poll until something holds and return how long it took; a program that fails says that it does not hold yet."""
    started = time.monotonic()
    problem = ""
    while time.monotonic() - started < limit_s:
        try:
            if holds():
                return time.monotonic() - started
        except ToolError as error:
            problem = f": {error}"
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come about within {limit_s:g} s{problem}")


def write_json(path: Path, document: Mapping[str, Any]) -> Path:
    """Write a document as JSON, which every reader of YAML takes."""
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path
