"""Kafka Streams: its locked jars, and the commands of `StreamsJoin.java` (a left join) and `StreamsCount.java`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from skewless.lab.local import jars, java

LOCK = Path(__file__).with_name("streams_jars.lock")
"""Jars that only the benchmark needs. Their other dependencies are those of the broker."""
JOIN, COUNT = (Path(__file__).with_name(f"Streams{name}.java") for name in ("Join", "Count"))
NO_COMPILER = "the benchmark needs a Java compiler: on Debian and Ubuntu, apt-get install openjdk-17-jdk-headless"


def classpath() -> list[Path]:
    """Return the verified jars of Kafka Streams. Downloads missing ones."""
    required = [jars.Jar(**entry) for entry in json.loads(LOCK.read_text())]
    return [*jars.ensure_all(required, "kafka-streams"), *jars.ensure("kafka")]


def compiled(program: Path, folder: Path) -> Sequence[str]:
    """Compile a program into a folder, and return the command that runs it."""
    compiler = java.find().path.resolve().with_name("javac")
    found = str(compiler) if compiler.is_file() else shutil.which("javac")
    if found is None:
        raise SystemExit(NO_COMPILER)
    path = ":".join(map(str, [folder, *classpath()]))
    subprocess.run([found, "-d", str(folder), "-cp", path, str(program)], check=True)
    return [str(java.find().path), "-Xmx1g", "-cp", path, program.stem]
