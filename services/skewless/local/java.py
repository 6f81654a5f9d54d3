"""Find a Java that runs both Kafka and Spark: version 17 or newer, with the vector module that Spark starts with.

`python -m skewless.local.java` installs it where it is missing and may be. It needs the standard library alone, so that
the set-up can ask before it fetches anything.
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
    """An executable and the version that it reports, such as 17.0.15."""

    path: Path
    version: str


@functools.cache
def find() -> Java:
    """Return the first fitting Java of JAVA_HOME and PATH, or raise ConfigurationError with what to install."""
    for path in _candidates():
        if (version := _version(path)) and int(re.split(r"\D", version)[0]) >= MINIMUM:
            return Java(path, version)
    raise ConfigurationError(MISSING)


def _candidates() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    found = [str(Path(home) / "bin" / "java")] if home else []
    found += [path for path in [shutil.which("java")] if path]
    return [Path(path) for path in found if os.access(path, os.X_OK)]


def _version(java: Path) -> str | None:
    """Return the version, or None where Java does not start or lacks the vector module."""
    command = [str(java), "--add-modules", "jdk.incubator.vector", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
    match = re.search(r'version "(\d[^"]*)"', answer.stderr)
    return match[1] if match and answer.returncode == 0 else None


def install() -> None:
    """Install Java with the system's package manager, where there is one that we may use."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise ConfigurationError(MISSING)
    sys.stderr.write(f"no Java found: installing {PACKAGE} with apt-get\n")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", PACKAGE]):
        answer = subprocess.run([apt, *step], env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if answer.returncode:
            reason = (answer.stderr.strip() or "no reason given").splitlines()[-1]
            raise ConfigurationError(f"{MISSING} (apt-get {step[0]} failed: {reason})")


def main() -> None:
    """Make sure of Java: find it, else install it, else say in one line what to install and exit with code 2."""
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
