"""`skewless stream` killed at named points of its transactions: the results equal a plain count.

Without SKEWLESS_KILLS, each point is hit once.
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
    ("executor", "init"),
    ("executor", "written"),
    ("driver", "before-offsets"),
    ("executor", "in-commit"),
    ("driver", "in-commit"),
    ("executor", "after-commit"),
    ("driver", "after-commit"),
)
"""The process, and the point in its transaction. The driver commits the offsets of the source after all tasks."""
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


def test_stream_killed_at_each_point_equals_a_plain_count(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, aggregator={"aggregates": ["count", "sum"]})
    kills = [*POINTS] * ROUNDS
    records = list(zipf_records(RECORDS * (len(kills) + 1), PARTITIONS, seed=11, keys=500))
    portions = [[records[at] for at in portion] for portion in np.array_split(np.arange(len(records)), len(kills) + 1)]
    for (process, point), portion in zip(kills, portions, strict=False):
        source.send(portion)
        token = tested.arm(process, point, "kill")
        code = run(tested)
        assert not token.exists(), f"{process} did not reach {point}"
        # Spark repeats the task of a process that was killed.
        assert code == (-9 if process == "driver" else 0), (tested.folder / "stream.log").read_text()
    source.send(portions[-1])
    assert run(tested) == 0, (tested.folder / "stream.log").read_text()
    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, expected, ticks=False) == []
    audit = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert audit.exit_code == 0, audit.output
