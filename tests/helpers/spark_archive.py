"""An archive of Spark's classes (AppCDS), with which each Java process of Spark starts in half of the CPU time."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from helpers.source_files import PACKAGE
from skewless.lab.local import java
from skewless.lab.local.folders import cache_folder, file_lock

HOME = Path(pyspark.__file__).parent
"""Spark's home, which PySpark contains."""
SHORT = " ".join((*java.QUICK_START, "-XX:ReservedCodeCacheSize=240m"))
"""Options of Java processes that run for seconds. With this one compiler, the code of Spark does not fit into the
default size of 48 MB: Java would throw compiled code away and compile it again."""
FEW_RECORDS = (
    "spark.sql.shuffle.partitions=2",
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
)
"""Settings of jobs whose few records Java interprets with less CPU time than it compiles their code."""
LIMIT_S = 300.0
PIPELINE = {
    "name": "archive",
    "source": {"topic": "source"},
    "splitter": {"key": {"field": "key"}, "value": {"field": "value"}, "time": {"field": "time"}},
}


def conf(*settings: str) -> list[str]:
    """Return the options of a command that set Spark's settings for few records, and these."""
    return [part for setting in (*FEW_RECORDS, *settings) for part in ("--conf", setting)]


def use() -> None:
    """Let Spark's Java processes that start from now on use the archive. Creates it if it is missing."""
    os.environ["SPARK_SUBMIT_OPTS"] = options()


@functools.cache
def options() -> str:
    """Return the options of a Java process that runs for seconds. It ignores the archive if its class path differs."""
    # Java ignores TMPDIR, and leaves its folders when a test kills it.
    return f"{SHORT} -Xlog:disable -XX:SharedArchiveFile={_archive()} -Djava.io.tmpdir={tempfile.gettempdir()}"


def _archive() -> Path:
    inputs = f"{java.find().version} {HOME} {(HOME / 'jars').stat().st_mtime_ns}"
    archive = cache_folder() / f"spark-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}.jsa"
    with file_lock(cache_folder() / "spark.lock"):
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".spark-") as temporary:
                _create(Path(temporary)).rename(archive)
    return archive


def _create(folder: Path) -> Path:
    """Run a batch job, whose Java process writes its classes to an archive when it ends."""
    archive = folder / "classes.jsa"
    (folder / "pipeline.yaml").write_text(json.dumps(PIPELINE))
    records = [{"key": f"k{number % 9}", "value": number, "time": number * 1000} for number in range(1000)]
    (folder / "records.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    submit = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    batch = [str(PACKAGE / "spark" / "__main__.py"), "batch", "-f", "pipeline.yaml", "--input", "records.jsonl"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": f"{SHORT} -Xlog:disable -XX:ArchiveClassesAtExit={archive}",
    }
    command = [*submit, *batch, "--out", "results", "--format", "json"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    return archive
