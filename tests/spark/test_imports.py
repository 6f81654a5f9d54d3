"""Spark's modules can be imported by themselves, before a session exists."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

from skewless import spark


def test_spark_modules_without_a_session_can_be_imported() -> None:
    names = sorted(module.name for module in pkgutil.walk_packages(spark.__path__, "skewless.spark."))
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    run = [sys.executable, "-c", code, *names]
    done = subprocess.run(run, check=False, capture_output=True, text=True, timeout=120)
    assert names
    assert (done.returncode, done.stderr) == (0, "")


def test_stream_tasks_do_not_import_the_library_of_the_agents() -> None:
    """Each worker of Spark imports the modules of its tasks again, and Faust would be half of that time."""
    code = "import sys, skewless.spark.stream_merge, skewless.spark.stream_source\nassert 'faust' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_daemon_writes_its_port_and_ends_with_its_input() -> None:
    run = [sys.executable, "-m", "skewless.spark.python_daemon", "pyspark.worker"]
    done = subprocess.run(run, input=b"", check=False, capture_output=True, timeout=120)
    assert (done.stderr, len(done.stdout)) == (b"", 4)
