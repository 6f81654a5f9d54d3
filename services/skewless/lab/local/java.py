"""Finds a Java for Kafka and Spark: version 17 or newer, with the vector module, which Spark needs to start.

`python -m skewless.lab.local.java` installs it if it is missing and the process may install packages. The module uses
only the standard library, so that the set-up can run it before it downloads anything.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from skewless.errors import ConfigurationError

MINIMUM = 17
PACKAGE = "openjdk-17-jre-headless"
MISSING = (
    f"no Java {MINIMUM} or newer was found in JAVA_HOME or PATH: install one (on Debian and Ubuntu as root: "
    f"apt-get install {PACKAGE}), or set JAVA_HOME to it"
)


class Java(NamedTuple):
    """A Java executable and its version, such as 17.0.15."""

    path: Path
    version: str


@functools.cache
def find() -> Java:
    """Return the first suitable Java of JAVA_HOME and PATH. Raises ConfigurationError that says what to install."""
    for path in _candidates():
        if (version := _version(path)) and int(re.split(r"\D", version)[0]) >= MINIMUM:
            return Java(path, version)
    raise ConfigurationError(MISSING)


def _candidates() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    paths = [str(Path(home) / "bin" / "java")] if home else []
    paths += [path for path in [shutil.which("java")] if path]
    return [Path(path) for path in paths if os.access(path, os.X_OK)]


def _version(java: Path) -> str | None:
    """Return the version, or None if Java does not start or lacks the vector module."""
    command = [str(java), "--add-modules", "jdk.incubator.vector", "-version"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
    match = re.search(r'version "(\d[^"]*)"', completed.stderr)
    return match[1] if match and completed.returncode == 0 else None


def install() -> None:
    """Install Java with apt-get. Raises ConfigurationError if there is no apt-get, this is not root, or it fails."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise ConfigurationError(MISSING)
    sys.stderr.write(f"no Java found: installing {PACKAGE} with apt-get\n")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", PACKAGE]):
        completed = subprocess.run([apt, *step], env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if completed.returncode:
            reason = (completed.stderr.strip() or "no reason given").splitlines()[-1]
            raise ConfigurationError(f"{MISSING} (apt-get {step[0]} failed: {reason})")


def main() -> None:
    """Find Java or install it. If both fail, print one line that says what to install, and exit with code 2."""
    try:
        try:
            find()
        except ConfigurationError:
            install()
            find()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
