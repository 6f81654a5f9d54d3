"""Spark jobs that cannot start print one line and end with the exit code of the cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.tiers import thorough_except


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Write a pipeline's file and its input file. No broker is needed."""
    splitter = {"format": {"name": "csv", "columns": ["k", "t"]}, "key": {"field": "k"}, "time": {"field": "t"}}
    join = {side: {"topic": side, "id": {"field": "id"}, "time": {"field": "time"}} for side in ("left", "right")}
    pipeline = {"name": "p", "source": {"topic": "absent"}, "splitter": splitter, "join": join | {"apart_s": 1}}
    (tmp_path / "pipeline.yaml").write_text(json.dumps(pipeline))
    (tmp_path / "lines.csv").write_text("a,1767225600000\n")
    return tmp_path


COMMANDS = {
    "batch": ["--input", "lines.csv", "--out", "out"],
    "batch --join": ["--out", "out"],
    "audit --join": [],
    "evaluate": [],
    "stream": ["--available-now", "--checkpoint", "c"],
}
"""Commands with their options. They check Spark before the broker, so that a failed start leaves nothing there."""


def run(command: str, folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run a command in a separate process, because Spark may already run in this one."""
    call = [sys.executable, "-m", "skewless", *command.split(), "-f", "pipeline.yaml", *COMMANDS[command], *arguments]
    paths = os.pathsep.join(filter(None, [environment.pop("FIRST", ""), *sys.path]))
    env = os.environ | {"PYTHONPATH": paths, "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"} | environment
    done = subprocess.run(call, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=250)
    assert done.stdout == ""
    return done.returncode, done.stderr


def batch(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    return run("batch", folder, *arguments, **environment)


@pytest.mark.parametrize("command", thorough_except(["batch"], COMMANDS))
def test_command_without_java_ends_with_2_and_a_remedy(lines: Path, command: str) -> None:
    code, output = run(command, lines, PATH="", JAVA_HOME="")
    assert (code, len(output.splitlines())) == (2, 1)
    assert output.startswith("error: no Java 17 or newer was found in JAVA_HOME or PATH: install one")


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("raise ModuleNotFoundError(\"No module named 'pyspark'\")", "PySpark is not installed: "),
        ('__version__ = "3.5.9"', "PySpark 3.5.9 is installed, and Skewless needs version 4: "),
    ],
    ids=["no PySpark", "another version"],
)
@pytest.mark.parametrize("command", thorough_except(["stream", "batch --join"], COMMANDS))
def test_command_without_its_pyspark_ends_with_2_and_the_extra(
    lines: Path, command: str, module: str, problem: str
) -> None:
    (lines / "first").mkdir()
    (lines / "first" / "pyspark.py").write_text(module)
    code, output = run(command, lines, FIRST=str(lines / "first"))
    assert (code, len(output.splitlines())) == (2, 1), output
    assert output.startswith(f"error: {problem}")
    assert "`spark`" in output


@pytest.mark.parametrize("command", thorough_except(["batch"], COMMANDS))
@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "k8s://https://127.0.0.1:1"])
def test_command_spark_master_without_answer_ends_with_3_and_its_address(
    lines: Path, master: str, command: str
) -> None:
    code, output = run(command, lines, "--master", master)
    assert (code, len(output.splitlines())) == (3, 1)
    assert output.startswith(f"error: the Spark master {master} does not answer: 127.0.0.1:1: ")


@pytest.mark.thorough
@pytest.mark.spark
def test_batch_command_spark_job_fails_ends_with_3_and_its_cause(lines: Path) -> None:
    code, output = batch(lines, PYSPARK_PYTHON="/nowhere/python")
    assert (code, len(output.splitlines())) == (3, 1)
    assert output.startswith("error: the Spark job failed: ")
    assert "/nowhere/python" in output


@pytest.mark.thorough
@pytest.mark.spark
def test_batch_command_unknown_spark_master_ends_with_2_and_the_message_of_spark(lines: Path) -> None:
    code, output = batch(lines, "--master", "nonsense")
    assert (code, len(output.splitlines())) == (2, 1)
    assert output.startswith("error: Spark does not start with --master nonsense: Master must ")
