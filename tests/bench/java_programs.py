"""The Java programs of the benchmarks with their locked jars: Flink, and a join and an aggregation of Kafka Streams."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from skewless.lab.local import jars, java

HERE = Path(__file__).parent
JOIN, COUNT, FLINK = HERE / "StreamsJoin.java", HERE / "StreamsCount.java", HERE / "FlinkCount.java"
NO_COMPILER = "the benchmark needs a Java compiler: on Debian and Ubuntu, apt-get install openjdk-17-jdk-headless"


def classpath(program: Path) -> Sequence[Path]:
    """Return the verified jars of a program. Downloads missing ones."""
    if program == FLINK:
        return jars.ensure_all(_locked("flink"), "Flink")
    # The other dependencies of Kafka Streams are those of the broker.
    return [*jars.ensure_all(_locked("kafka_streams"), "kafka-streams"), *jars.ensure("kafka")]


def _locked(name: str) -> list[jars.Jar]:
    """Return the jars of a lock file, which only the benchmarks need."""
    return [jars.Jar(**entry) for entry in json.loads((HERE / f"{name}_jars.lock").read_text())]


def compiled(program: Path, folder: Path) -> Sequence[str]:
    """Compile a program into a folder, and return the command that runs it."""
    compiler = java.find().path.resolve().with_name("javac")
    found = str(compiler) if compiler.is_file() else shutil.which("javac")
    if found is None:
        raise SystemExit(NO_COMPILER)
    path = ":".join(map(str, [folder, *classpath(program)]))
    subprocess.run([found, "-d", str(folder), "-cp", path, str(program)], check=True)
    return [str(java.find().path), "-Xmx1g", "-cp", path, program.stem]
