"""`skewless stream` killed at named points of its transactions: the results equal a plain count.

A run is killed in an executor, and then in the driver. Without SKEWLESS_KILLS, each point is hit once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from helpers.kafka import Pipeline, Source, differences, read, truth, zipf_records
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
RUN_S = 180.0


def run(tested: Pipeline) -> int:
    """Run `skewless stream --available-now` with fault points in driver and executors; returns its exit code."""
    paths = os.pathsep.join(filter(None, (str(FAULTS), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths, "SKEWLESS_TEST_FAULTS": str(tested.folder / "driver")}
    of_executor = f"spark.executorEnv.SKEWLESS_TEST_FAULTS={tested.folder / 'executor'}"
    command = [sys.executable, "-m", "skewless", "stream", "-f", str(tested.file), "--available-now", "--checkpoint"]
    options = [str(tested.folder / "checkpoint"), "--master", "local[2,3]", "--driver-memory", "1g"]
    with (tested.folder / "stream.log").open("ab") as log:
        done = subprocess.run(
            [*command, *options, "--conf", of_executor],
            env=environment, stdout=log, stderr=log, timeout=RUN_S, check=False,
        )  # fmt: skip
    return done.returncode


@pytest.mark.usefixtures("spark")
def test_stream_killed_at_each_point_equals_a_plain_count(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, aggregator={"aggregates": ["count", "sum"]})
    kills = [*POINTS] * ROUNDS
    records = list(zipf_records(RECORDS * len(kills), PARTITIONS, seed=11, keys=500))
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
    assert differences(tested, expected, ticks=False) == []
    audit = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert audit.exit_code == 0, audit.output
