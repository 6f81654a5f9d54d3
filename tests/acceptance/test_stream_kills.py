"""`skewless stream` killed at named points of its transactions: the results equal a plain count.

A run is killed in an executor, and then in the driver. Without SKEWLESS_KILLS, each point is hit once. Kills of the
broker are in `tests/spark/test_stream_faults.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from helpers.kafka import START_MS, Pipeline, Source, differences, read, truth, zipf_records
from helpers.spark_cluster import home_of_its_own
from helpers.stage_hosts import FAULTS
from skewless.cli.main import main

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("SKEWLESS_KILLS", "1"))
POINTS = (
    ("init", "before-offsets"),
    ("written", "in-commit"),
    ("in-commit", "after-commit"),
    ("after-commit", None),
)
"""Points of an executor and of the driver in their transactions, for each run. The driver commits the offsets of the
source after all tasks."""
RECORDS = 1_000
PARTITIONS = 2
LATENESS_S = 10
END_MS = START_MS + 3_600_000
"""Time at which the windows of all records but the last ones have ended."""
RUN_S = 600.0


LOCAL = "local[2,3]"
"""A master that repeats tasks."""


def run(tested: Pipeline, master: str = LOCAL, spark_home: Path | None = None) -> int:
    """Run `skewless stream --available-now` with fault points in driver and executors; returns its exit code."""
    paths = os.pathsep.join(filter(None, (str(FAULTS), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths, "SKEWLESS_TEST_FAULTS": str(tested.folder / "driver")}
    if spark_home is not None:
        environment["SPARK_HOME"] = str(spark_home)
    of_executor = [f"SKEWLESS_TEST_FAULTS={tested.folder / 'executor'}", f"PYTHONPATH={paths}"]
    conf = [part for variable in of_executor for part in ("--conf", f"spark.executorEnv.{variable}")]
    command = [sys.executable, "-m", "skewless", "stream", "-f", str(tested.file), "--available-now", "--checkpoint"]
    options = [str(tested.folder / "checkpoint"), "--master", master, "--driver-memory", "1g"]
    with (tested.folder / "stream.log").open("ab") as log:
        done = subprocess.run(
            [*command, *options, *conf],
            env=environment, stdout=log, stderr=log, timeout=RUN_S, check=False,
        )  # fmt: skip
    return done.returncode


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("emit", ["updates", "final"])
def test_stream_killed_at_each_point_equals_a_plain_count(broker: str, tmp_path: Path, emit: str) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, aggregator={"emit": emit, "aggregates": ["count", "sum"]})
    kills = [*POINTS] * ROUNDS
    records = [*zipf_records(RECORDS * len(kills), PARTITIONS, seed=11, keys=500)]
    closing = b'{"key":"last","value":0,"time":%d}' % (END_MS + LATENESS_S * 1000)
    records += [(partition, closing) for partition in range(PARTITIONS)]
    portions = [[records[at] for at in portion] for portion in np.array_split(np.arange(len(records)), len(kills))]
    for (of_executor, of_driver), portion in zip(kills, portions, strict=True):
        source.send(portion)
        # Armed by the executor: the driver may first commit the micro-batch in which it was killed before.
        then = {"file": str(tested.folder / f"driver.{of_driver}"), "do": "kill"} if of_driver else None
        token = tested.arm("executor", of_executor, "kill", then=then)
        code = run(tested)
        assert not token.exists(), f"no executor reached {of_executor}"
        # Without a kill of the driver the run ends, because Spark repeats the task of an executor's process.
        assert code == (-9 if of_driver else 0), (tested.folder / "stream.log").read_text()
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
    home = home_of_its_own(tmp_path / "spark")
    token = tested.arm("executor", "written", "kill-java")
    assert run(tested, master, home) == code, (tested.folder / "stream.log").read_text()
    assert not token.exists()
    log = (tested.folder / "stream.log").read_text()
    # Before this line, threads of py4j and of PySpark print what they were doing.
    assert code == 0 or log.splitlines()[-1].startswith("error: the Spark job failed: Java has ended, killed by "), log
    assert run(tested) == 0, (tested.folder / "stream.log").read_text()
    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, expected, ticks=False) == []
