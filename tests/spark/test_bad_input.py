"""Spark jobs that cannot start print one line and end with the exit code of the cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from helpers.tiers import thorough_except
from skewless.cli.main import main
from skewless.lab.local import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a pipeline's file and its input file, and use their folder. No broker is needed."""
    splitter = {"format": {"name": "csv", "columns": ["k", "t"]}, "key": {"field": "k"}, "time": {"field": "t"}}
    join = {side: {"topic": side, "id": {"field": "id"}, "time": {"field": "time"}} for side in ("left", "right")}
    pipeline = {"name": "p", "source": {"topic": "absent"}, "splitter": splitter, "join": join | {"apart_s": 1}}
    (tmp_path / "pipeline.yaml").write_text(json.dumps(pipeline))
    (tmp_path / "lines.csv").write_text("a,1767225600000\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    return tmp_path


COMMANDS = {
    "batch": ["--input", "lines.csv", "--out", "out"],
    "batch --join": ["--out", "out"],
    "audit --join": [],
    "evaluate": [],
    "stream": ["--available-now", "--checkpoint", "c"],
}
"""Commands with their options. They check Spark before the broker, so that a failed start leaves nothing there."""


def arguments(command: str, *options: str) -> list[str]:
    return [*command.split(), "-f", "pipeline.yaml", *COMMANDS[command], *options]


def run(*words: str) -> tuple[int, str]:
    """Run a command that ends before it starts Spark, or that uses the session of this process."""
    done = CliRunner().invoke(main, words)
    assert done.stdout == ""
    return done.exit_code, done.stderr


def run_alone(*words: str, paths: Sequence[str] = ()) -> tuple[int, str]:
    """Run a command in a process without Spark, which finds modules in `paths` first."""
    call = [sys.executable, "-m", "skewless", *words]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, *sys.path])}
    done = subprocess.run(call, env=env, capture_output=True, text=True, check=False, timeout=250)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("command", COMMANDS)
def test_command_without_java_ends_with_2_and_a_remedy(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "JAVA_HOME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(java, "find", java.find.__wrapped__)  # this process may have found Java before
    code, output = run(*arguments(command))
    assert (code, len(output.splitlines())) == (2, 1)
    assert output.startswith("error: no Java 17 or newer was found in JAVA_HOME or PATH: install one")


@pytest.mark.parametrize("command", thorough_except(["stream", "batch --join"], COMMANDS))
def test_command_without_pyspark_ends_with_2_and_the_extra(lines: Path, command: str) -> None:
    first = lines / "first"
    first.mkdir()
    (first / "pyspark.py").write_text("raise ModuleNotFoundError(\"No module named 'pyspark'\")")
    code, output = run_alone(*arguments(command), paths=[str(first)])
    assert (code, len(output.splitlines())) == (2, 1), output
    assert output.startswith("error: PySpark is not installed: ")
    assert "`spark`" in output


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("command", COMMANDS)
def test_command_another_version_of_pyspark_ends_with_2_and_the_extra(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.9")
    code, output = run(*arguments(command))
    assert (code, len(output.splitlines())) == (2, 1), output
    assert output.startswith("error: PySpark 3.5.9 is installed, and Skewless needs version 4: ")
    assert "`spark`" in output


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "k8s://https://127.0.0.1:1"])
def test_command_spark_master_without_answer_ends_with_3_and_its_address(master: str, command: str) -> None:
    code, output = run(*arguments(command, "--master", master))
    assert (code, len(output.splitlines())) == (3, 1)
    assert output.startswith(f"error: the Spark master {master} does not answer: 127.0.0.1:1: ")


@pytest.mark.thorough
def test_batch_command_spark_job_fails_ends_with_3_and_its_cause(
    lines: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    # The Java of the session has another working directory.
    paths = ["--input", str(lines / "lines.csv"), "--out", str(lines / "out")]
    code, output = run("batch", "-f", "pipeline.yaml", *paths)
    assert (code, len(output.splitlines())) == (3, 1), output
    assert output.startswith("error: the Spark job failed: ")
    assert "/nowhere/python" in output


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.usefixtures("lines")
def test_batch_command_unknown_spark_master_ends_with_2_and_the_message_of_spark() -> None:
    code, output = run_alone(*arguments("batch", "--master", "nonsense"))
    assert (code, len(output.splitlines())) == (2, 1)
    assert output.startswith("error: Spark does not start with --master nonsense: Master must ")
