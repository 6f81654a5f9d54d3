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
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from skewless.errors import ConfigurationError

MINIMUM = 17
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
"""Debian's packages, of which a release has one at least. The first one that it has is installed."""
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of Java for processes that run for seconds or have little to do. For these, the optimising compiler and a
parallel garbage collector cost more than they save."""
MISSING = (
    f"no Java {MINIMUM} or newer was found in JAVA_HOME or PATH: install one (on Debian and Ubuntu as root: apt-get "
    f"install {' or '.join(PACKAGES)}), or set JAVA_HOME to it"
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
    sys.stderr.write("no Java found: installing it with apt-get\n")
    failure = _failure([apt, "update", "-qq"])
    if not failure:
        for package in PACKAGES:
            failure = _failure([apt, "install", "-y", "-qq", "--no-install-recommends", package])
            if not failure:
                return
    raise ConfigurationError(f"{MISSING} ({failure})")


def _failure(command: Sequence[str]) -> str:
    """Run a command of apt-get, and return why it failed; empty if it did not."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if not completed.returncode:
        return ""
    reason = (completed.stderr.strip() or "no reason given").splitlines()[-1]
    return f"apt-get {command[1]} failed: {reason}"


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
