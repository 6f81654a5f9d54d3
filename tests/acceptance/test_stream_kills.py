"""`skewless stream` killed at named points of its transactions: the results equal a plain count.

A run is killed in executors, and then in the driver. Without SKEWLESS_KILLS, each point is hit once. Kills of the
broker are in `tests/spark/test_stream_faults.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from helpers import spark_archive
from helpers.kafka import START_MS, Pipeline, Source, differences, read, truth, zipf_records
from helpers.spark_cluster import home_of_its_own
from helpers.stage_hosts import FAULTS
from skewless.cli.main import main

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("SKEWLESS_KILLS", "1"))
POINTS = {
    "updates": ((("init", "in-commit"), "before-offsets"), (("written", "after-commit"), "after-commit")),
    "final": ((("after-commit", "init", "written", "in-commit"), "in-commit"),),
}
"""For each run, the points of executors and the point of the driver in their transactions. The driver commits the
offsets of the source after all tasks.

A run that was killed costs a start of Java. So both modes together hit each point of the driver, and each of them hits
every point of an executor. Three tasks commit, and two of them run at a time. So when a task has committed, another one
has not begun, which then reaches the three other points or leaves them to the repeated ones.
"""
RECORDS = 1_000
PARTITIONS = 2
LATENESS_S = 10
END_MS = START_MS + 3_600_000
"""Time at which the windows of all records but the last ones have ended."""
RUN_S = 600.0
LOCAL = "local[2,5]"
"""A master that repeats tasks, each of them up to four times."""


def run_on(tested: Pipeline) -> None:
    """Run `skewless stream --available-now` to its end in this process, whose session it uses."""
    arguments = ["-f", str(tested.file), "--available-now", "--checkpoint", str(tested.folder / "checkpoint")]
    done = CliRunner().invoke(main, ["stream", *arguments])
    assert done.exit_code == 0, done.output


def run(tested: Pipeline, master: str = LOCAL, spark_home: Path | None = None) -> int:
    """Run `skewless stream --available-now` with fault points in driver and executors; returns its exit code."""
    paths = os.pathsep.join(filter(None, (str(FAULTS), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths, "SKEWLESS_TEST_FAULTS": str(tested.folder / "driver")}
    if spark_home is not None:
        environment["SPARK_HOME"] = str(spark_home)
    of_executor = (f"SKEWLESS_TEST_FAULTS={tested.folder / 'executor'}", f"PYTHONPATH={paths}")
    settings = (f"spark.executorEnv.{variable}" for variable in of_executor)
    conf = spark_archive.conf(f"spark.executor.extraJavaOptions={spark_archive.SHORT}", *settings)
    command = [sys.executable, "-m", "skewless", "stream", "-f", str(tested.file), "--available-now", "--checkpoint"]
    options = [str(tested.folder / "checkpoint"), "--master", master, "--driver-memory", "1g"]
    with (tested.folder / "stream.log").open("ab") as log:
        done = subprocess.run(
            [*command, *options, *conf],
            env=environment, stdout=log, stderr=log, timeout=RUN_S, check=False,
        )  # fmt: skip
    return done.returncode


def arm(tested: Pipeline, of_executors: Sequence[str], of_driver: str) -> None:
    """Arm the first point of an executor. Each one that is hit arms the next one, and the last one that of the driver.

    The driver may first commit the micro-batch in which it was killed before.
    """
    then: dict[str, object] = {"file": str(tested.folder / f"driver.{of_driver}"), "do": "kill"}
    first, *others = of_executors
    for point in reversed(others):
        then = {"file": str(tested.folder / f"executor.{point}"), "do": "kill", "then": then}
    tested.arm("executor", first, "kill", then=then)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("emit", [*POINTS])
def test_stream_killed_at_each_point_equals_a_plain_count(broker: str, tmp_path: Path, emit: str) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, aggregator={"emit": emit, "aggregates": ["count", "sum"]})
    kills = [*POINTS[emit]] * ROUNDS
    portions = len(kills) + 1
    records = [*zipf_records(RECORDS * portions, PARTITIONS, seed=11, keys=500)]
    closing = b'{"key":"last","value":0,"time":%d}' % (END_MS + LATENESS_S * 1000)
    records += [(partition, closing) for partition in range(PARTITIONS)]
    *first, last = ([records[at] for at in portion] for portion in np.array_split(np.arange(len(records)), portions))
    for (of_executors, of_driver), portion in zip(kills, first, strict=True):
        source.send(portion)
        arm(tested, of_executors, of_driver)
        code = run(tested)
        armed = [tested.folder / f"executor.{point}" for point in of_executors]
        assert [token for token in armed if token.exists()] == [], "no executor reached these points"
        # The driver commits only after Spark has repeated the tasks of the executors' processes.
        assert code == -9, (tested.folder / "stream.log").read_text()
    source.send(last)
    run_on(tested)
    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, expected, ticks=False, closed_to=END_MS if emit == "final" else None) == []
    audit = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert audit.exit_code == 0, audit.output


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("master", "code"), [(LOCAL, 3), ("local-cluster[2,1,1024]", 0)])
def test_stream_java_killed_before_a_commit_equals_a_plain_count(
    broker: str, tmp_path: Path, master: str, code: int
) -> None:
    """With a local master it is the Java of the driver. The process of the task survives it, and may still commit."""
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, aggregator={"aggregates": ["count", "sum"]})
    source.send(zipf_records(RECORDS, PARTITIONS, seed=12, keys=500))
    # Java uses the archive of Spark's classes only with the home of PySpark, and a local master writes nothing there.
    home = None if master == LOCAL else home_of_its_own(tmp_path / "spark")
    token = tested.arm("executor", "written", "kill-java")
    assert run(tested, master, home) == code, (tested.folder / "stream.log").read_text()
    assert not token.exists()
    log = (tested.folder / "stream.log").read_text()
    # Before this line, threads of py4j and of PySpark print what they were doing.
    assert code == 0 or log.splitlines()[-1].startswith("error: the Spark job failed: Java has ended, killed by "), log
    run_on(tested)
    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, expected, ticks=False) == []
