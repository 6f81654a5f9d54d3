"""A session starts with the Python and the Java of this installation, whatever the environment names for others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from skewless.lab.local import java
from skewless.lab.local.java import Java
from skewless.spark.spark_session import SparkOptions, _variables_set


@pytest.mark.parametrize(("master", "python"), [("local[2]", sys.executable), ("yarn", "/opt/python")])
def test_spark_options_python_of_the_environment_is_that_of_executors_alone(
    monkeypatch: pytest.MonkeyPatch, master: str, python: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert SparkOptions(master).environment()["PYSPARK_PYTHON"] == python


@pytest.mark.parametrize(("home", "during"), [("/opt/java11", None), ("/opt/java17/", "/opt/java17/"), (None, None)])
def test_spark_session_java_home_that_is_not_suitable_is_removed_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, home: str | None, during: str | None
) -> None:
    monkeypatch.setattr(java, "find", lambda: Java(Path("/opt/java17/bin/java"), "17.0.15"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    with _variables_set(SparkOptions().environment()):
        assert os.environ.get("JAVA_HOME") == during
    assert os.environ.get("JAVA_HOME") == home
