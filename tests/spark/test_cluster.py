"""The commands with Spark on executors of their own, whose Python has no packages."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from helpers import spark_archive
from helpers.kafka import Pipeline, Source, differences, read, truth, zipf_records
from helpers.recorded_runs import INVALID, TUPLES, recorded
from helpers.source_files import PACKAGE
from helpers.spark_archive import HOME
from helpers.spark_cluster import WORKERS, Cluster, bare_python, standalone
from helpers.spark_driver import LIMIT_S, Done, Driver
from skewless.lab.local.jars import ensure
from skewless.spark.failures import CONNECTOR

pytestmark = [pytest.mark.thorough, pytest.mark.spark]

MAIN = PACKAGE / "spark" / "__main__.py"
COMMANDS = ("batch", "audit", "evaluate", "plan")
SUBMITTED = "audit"
"""Command that spark-submit runs. The tasks of a command do not depend on what has started it, so each runs once."""
ONE_EXECUTOR = ("--conf", "spark.cores.max=1")


@pytest.fixture(scope="module")
def drained(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Run a pipeline to its end, with late and invalid records."""
    return next(recorded(broker, tmp_path_factory.mktemp("recorded")))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of the executors."""
    return bare_python(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def driver(python: Path) -> Iterator[Driver]:
    """Driver of the commands that succeed on executors of the cluster. They share one application."""
    running = Driver(environment_of(python))
    yield running
    running.close()


def environment_of(python: Path) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, sys.path))
    return {"PYTHONPATH": paths, "PYSPARK_PYTHON": str(python)}


def submit(command: str, pipeline: Pipeline, python: Path, *arguments: str, options: Sequence[str]) -> Done:
    """Run a command of the pipeline as an application of spark-submit, which merges its outputs into one."""
    jars = ",".join(map(str, ensure("spark")))
    call = [str(HOME / "bin" / "spark-submit"), "--jars", jars, *options, str(MAIN), command]
    env = os.environ | environment_of(python)
    env |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    call += ["-f", str(pipeline.file), *arguments]
    return subprocess.run(call, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def few() -> list[str]:
    """Return the options of jobs with few records."""
    return spark_archive.conf(f"spark.executor.extraJavaOptions={spark_archive.options()}")


def targets(folder: Path) -> dict[str, list[str]]:
    """Return the arguments of the commands with folders for their results."""
    out = {name: ["--out", str(folder / name)] for name in COMMANDS}
    out["batch"] += ["--format", "json"]
    return {name: [*arguments, *few(), "--json"] for name, arguments in out.items()}


def shipped(cluster: Cluster) -> list[str]:
    """Return the options of the commands that share an application, with an executor on each worker."""
    return ["--master", cluster.master, "--ship", "--conf", f"spark.cores.max={WORKERS}"]


def check(command: str, done: Done, pipeline: Pipeline, folder: Path) -> None:
    """Compare the report of a command with the results of the pipeline."""
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    last, _ = pipeline.results()
    if command == "batch":
        rows = [
            json.loads(line) for part in (folder / "batch").glob("*.json") for line in part.read_text().splitlines()
        ]
        found = {(row["window_start"], row["key"]): (row["count"], row["sum"]) for row in rows}
        assert found == {at: (entry["count"], entry["sum"]) for at, entry in last.items()}
    elif command == "audit":
        assert (report["compared"], report["differences"]) == (len(last), 0)
        assert report["records"] == TUPLES + len(INVALID)
    elif command == "evaluate":
        (evaluated,) = report["runs"]
        assert evaluated["tuples"] == sum(entry["count"] for entry in last.values())
        assert evaluated["keys"] == len({key for _, key in last})
    else:
        assert report["stream"]["tuples"] == sum(entry["count"] for entry in last.values())


def commands_of_tasks(cluster: Cluster) -> set[str]:
    """Return the programs of the processes that run tasks for the executors of the cluster."""
    folder = os.path.realpath(cluster.folder)
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "pyspark.daemon" in process.cmdline() and process.cwd().startswith(folder):
                found.add(process.cmdline()[0])
    return found


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != SUBMITTED])
def test_command_with_ship_on_bare_executors_of_a_standalone_cluster_gives_the_results_of_the_pipeline(  # noqa: PLR0913, PLR0917 - fixtures
    command: str, drained: Pipeline, cluster: Cluster, driver: Driver, python: Path, tmp_path: Path
) -> None:
    done = driver.run(command, "-f", str(drained.file), *shipped(cluster), *targets(tmp_path)[command])
    check(command, done, drained, tmp_path)
    unpacked = [cluster.folder.glob(f"worker-{number}/app-*/*/skewless/bin/python") for number in range(WORKERS)]
    assert all(map(any, unpacked))
    # They run in the Python that PYSPARK_PYTHON names, not in another one of this machine.
    assert commands_of_tasks(cluster) == {str(python)}


def test_stream_with_ship_on_bare_executors_of_a_standalone_cluster_equals_a_plain_count(
    broker: str, cluster: Cluster, driver: Driver, tmp_path: Path
) -> None:
    source = Source(broker, 2)
    source.send(zipf_records(2_000, 2, seed=5, keys=100))
    streamed = Pipeline(broker, tmp_path, source, topics={"aggregator_partitions": 2})
    options = ["--available-now", "--checkpoint", str(tmp_path / "checkpoint")]
    done = driver.run("stream", "-f", str(streamed.file), *shipped(cluster), *few(), *options)
    assert done.returncode == 0, done.stderr
    expected = truth(read(broker, source.topic), lateness_ms=10_000)
    assert differences(streamed, expected, ticks=False) == []


def test_batch_on_executors_without_the_packages_ends_with_3_and_the_next_step(
    drained: Pipeline, cluster: Cluster, driver: Driver, python: Path, tmp_path: Path
) -> None:
    # Its tasks run in the bare Python itself, instead of the one of --ship. So it needs no application of its own.
    arguments = ["-f", str(drained.file), *shipped(cluster), *targets(tmp_path)["batch"]]
    done = driver.run("batch", *arguments, python=python)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1), done.stderr
    assert done.stderr.startswith("error: the Spark job failed: an executor's Python has no package ")
    assert done.stderr.endswith(": install it there, because --ship has not sent it\n")


def test_stream_on_executors_without_the_packages_ends_with_3_and_the_next_step(
    broker: str, cluster: Cluster, driver: Driver, python: Path, tmp_path: Path
) -> None:
    source = Source(broker, 1)
    source.send(zipf_records(100, 1, seed=6, keys=10))
    streamed = Pipeline(broker, tmp_path, source)
    options = ["--available-now", "--checkpoint", str(tmp_path / "checkpoint")]
    done = driver.run("stream", "-f", str(streamed.file), *shipped(cluster), *few(), *options, python=python)
    *notes, error = done.stderr.splitlines()
    assert (done.returncode, notes) == (3, ["note: only the stages use router"]), done.stderr
    assert error.startswith("error: the Spark job failed: an executor's Python has no package ")


def test_stream_of_spark_submit_without_the_connector_ends_with_3_and_the_next_step(
    broker: str, python: Path, tmp_path: Path
) -> None:
    streamed = Pipeline(broker, tmp_path, Source(broker, 1))
    command = [str(HOME / "bin" / "spark-submit"), "--master", "local[1]", str(MAIN), "stream", "--available-now"]
    command += ["-f", str(streamed.file), "--checkpoint", str(tmp_path / "checkpoint")]
    env = os.environ | environment_of(python) | {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 3, done.stdout
    assert f"error: the Spark job failed: Spark has no connector for Kafka: add --packages {CONNECTOR}" in done.stdout


def test_command_on_executors_without_the_python_ends_with_3_and_the_next_step(
    drained: Pipeline, cluster: Cluster, driver: Driver, tmp_path: Path
) -> None:
    arguments = ["-f", str(drained.file), *shipped(cluster), *targets(tmp_path)["batch"]]
    done = driver.run("batch", *arguments, own_python="python3.nowhere")
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert done.stderr.splitlines()[-1] == (
        "error: the Spark job failed: the executors have no Python python3.nowhere: name theirs in the environment "
        "variable PYSPARK_PYTHON"
    )


def test_command_of_spark_submit_on_bare_executors_gives_the_results_of_the_pipeline(
    drained: Pipeline, cluster: Cluster, python: Path, tmp_path: Path
) -> None:
    options = ["--master", cluster.master, "--name", "nightly", "--conf", "spark.executor.memory=700m", *ONE_EXECUTOR]
    done = submit(SUBMITTED, drained, python, "--ship", *targets(tmp_path)[SUBMITTED], options=options)
    check(SUBMITTED, done, drained, tmp_path)
    started_by = f"Spark {pyspark.__version__}, master {cluster.master}, application app-"
    assert f"skewless {SUBMITTED}: {started_by}" in done.stdout
