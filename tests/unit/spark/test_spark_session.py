"""A session starts with the Python and the Java of this installation, whatever the environment names for others."""

from __future__ import annotations

import sys

import pytest

from skewless.spark.spark_session import SparkOptions


@pytest.mark.parametrize(("master", "python"), [("local[2]", sys.executable), ("yarn", "/opt/python")])
def test_spark_options_python_of_the_environment_is_that_of_executors_alone(
    monkeypatch: pytest.MonkeyPatch, master: str, python: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert SparkOptions(master).environment()["PYSPARK_PYTHON"] == python
