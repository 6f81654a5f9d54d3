"""Compiles Java without a JDK, because a Java that only runs programs is enough for everything else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from helpers.spark_archive import SHORT
from helpers.waiting import WAIT_S
from skewless.lab.local import jars
from skewless.lab.local.java import find

COMPILER = jars.Jar(
    "org.eclipse.jdt:ecj:3.39.0", "01f5a92ac19bb2b3bf85e295a68f2c73c264369109158b566ce9b490af982948", 3_296_560
)


def compile_java(programs: Sequence[Path], folder: Path, path: Sequence[Path], release: int = 17) -> None:
    """Compile programs into a folder, with the jars of `path`. Warnings are errors."""
    (compiler,) = jars.ensure_all([COMPILER], "the Java compiler")
    command = [str(find().path), *SHORT.split(), "-jar", str(compiler), "--release", str(release), "-failOnWarning"]
    command += ["-cp", os.pathsep.join(map(str, path)), "-d", str(folder), *map(str, programs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
