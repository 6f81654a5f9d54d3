"""Spark jobs that cannot start print one line and end with the exit code of the cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Write a pipeline's file and its input file. No broker is needed."""
    splitter = {"format": {"name": "csv", "columns": ["k", "t"]}, "key": {"field": "k"}, "time": {"field": "t"}}
    (tmp_path / "pipeline.yaml").write_text(
        json.dumps({"name": "p", "source": {"topic": "absent"}, "splitter": splitter})
    )
    (tmp_path / "lines.csv").write_text("a,1767225600000\n")
    return tmp_path


def batch(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run the command in a separate process, because Spark may already run in this one."""
    command = [sys.executable, "-m", "skewless", "batch", "-f", "pipeline.yaml", "--input", "lines.csv", "--out", "out"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment
    done = subprocess.run(
        [*command, *arguments], env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_batch_command_without_java_ends_with_2_and_a_remedy(lines: Path) -> None:
    code, output = batch(lines, PATH="", JAVA_HOME="")
    assert (code, len(output.splitlines())) == (2, 1)
    assert output.startswith("error: no Java 17 or newer was found in JAVA_HOME or PATH: install one")


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "k8s://https://127.0.0.1:1"])
def test_batch_command_spark_master_without_answer_ends_with_3_and_its_address(lines: Path, master: str) -> None:
    code, output = batch(lines, "--master", master)
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
