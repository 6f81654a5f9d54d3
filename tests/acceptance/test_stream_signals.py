"""`skewless stream` runs until a signal: micro-batches by a trigger, idle source partitions, and exit code 0.

The signal is SIGINT. The queries of `test_stream_handover.py` end by SIGTERM, which the same function handles.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers import spark_archive
from helpers.kafka import START_MS, Pipeline, Source, differences, read, truth, zipf_records
from helpers.waiting import until
from skewless.cli.main import main

pytestmark = [pytest.mark.thorough, pytest.mark.broker, pytest.mark.spark]

PARTITIONS = 2
LATENESS_S = 10
END_S = 600.0


def status(tested: Pipeline) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(CliRunner().invoke(main, ["status", "-f", str(tested.file), "--json"]).stdout)
    return report


def test_stream_with_a_trigger_follows_its_source_until_sigint(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(
        broker,
        tmp_path,
        source,
        aggregator={"aggregates": ["count", "sum"], "emit": "final"},
        event_time={"idle_timeout_s": 3},
    )
    log = tested.folder / "stream.log"
    command = [sys.executable, "-m", "skewless", "stream", "-f", str(tested.file), "--trigger", "1s"]
    options = ["--checkpoint", str(tested.folder / "checkpoint"), "--master", "local[2]", "--driver-memory", "1g"]
    options += spark_archive.conf()
    records = list(zipf_records(1_000, PARTITIONS, seed=21, keys=50))
    with log.open("wb") as output:
        running = subprocess.Popen([*command, *options], stdout=output, stderr=output, env=os.environ)
    try:
        source.send(records[:500])
        until(lambda: log.read_text().count("micro-batch") >= 1, limit_s=END_S)
        shown = status(tested)
        assert (shown["state"], shown["engine"], shown["problems"]) == ("running", "spark", [])
        # It is a member of the groups whose offsets it commits.
        assert [stage["processes"] for stage in shown["stages"]] == [["stream"], [], [], ["stream"], ["stream"]]
        stages = CliRunner().invoke(main, ["up", "-f", str(tested.file)])
        assert (stages.exit_code, "is run by `skewless stream`" in stages.output) == (3, True), stages.output
        source.send(records[500:])
        # The other partition becomes idle, so it does not hold these windows open.
        end = START_MS + 3_600_000
        source.send([(0, b'{"key":"last","value":0,"time":%d}' % (end + LATENESS_S * 1000))])
        expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
        until(lambda: differences(tested, expected, ticks=False, closed_to=end) == [], limit_s=END_S, every_s=1.0)
        running.send_signal(signal.SIGINT)
        assert running.wait(END_S) == 0, log.read_text()
    finally:
        running.kill()
    assert status(tested)["problems"] == ["stream: no process runs"]
    assert "Traceback" not in log.read_text()
    assert f"{len(records) + 1:,} records read" in log.read_text()
