"""A pipeline that stages and a query of Spark run in turn: open windows continue, and each record counts once."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helpers.kafka import Feed, Pipeline, Source, differences, read, truth, zipf_records
from helpers.stage_hosts import stage_host
from helpers.waiting import until
from skewless import topology
from skewless.cli.main import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.lab.local import child_process
from skewless.lab.local.supervisor import Supervisor

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("spark"), pytest.mark.timeout(1800)]

TURNS = 3
PARTITIONS = 2
LATENESS_S = 10
RUN_S = 240.0


def skewless(command: str, tested: Pipeline, *arguments: str) -> Result:
    return CliRunner().invoke(main, [command, "-f", str(tested.file), *arguments])


def status(tested: Pipeline) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(skewless("status", tested, "--json").stdout)
    return report


def process_what_was_read(tested: Pipeline) -> None:
    """Run all stages but the splitter until they have processed what it had read."""
    document = json.loads(tested.file.read_text())
    document["replicas"] = {"splitter": 0}
    file = tested.folder / "without-splitter.yaml"
    file.write_text(json.dumps(document))
    supervisor = Supervisor(
        file, PipelineSettings.model_validate(document), drain=False, logs=tested.folder, host=stage_host()
    )

    def lag() -> int:
        stages = (stage for stage in status(tested)["stages"] if stage["stage"] != topology.SOURCE_STAGE)
        return sum(stage["lag_records"] for stage in stages)

    try:
        supervisor.start()
        until(lambda: lag() == 0, each=lambda: supervisor.poll(time.monotonic()), every_s=0.5)
    finally:
        supervisor.stop()


@contextlib.contextmanager
def streaming(tested: Pipeline, *options: str) -> Iterator[Path]:
    """Run `skewless stream` in a process of its own until the end of the block; yields its log."""
    log = tested.folder / "stream.log"
    command = [sys.executable, "-m", "skewless", "stream", "-f", str(tested.file), "--trigger", "1s", *options]
    more = ["--master", "local[2]", "--driver-memory", "1g"]
    with log.open("wb") as output:
        running = subprocess.Popen([*command, *more], stdout=output, stderr=output, env=os.environ)
    try:
        yield log
        running.terminate()
        assert running.wait(RUN_S) == 0, log.read_text()
    finally:
        running.kill()


def test_pipeline_handed_over_three_times_under_load_equals_a_plain_count(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(
        broker,
        tmp_path,
        source,
        aggregator={"aggregates": ["count", "sum"]},
        transport={"session_timeout_s": 3},
    )
    new = skewless("stream", tested, "--take-over")
    assert (new.exit_code, "has not run yet" in new.output) == (2, True), new.output
    with Feed(source, zipf_records(4_000_000, PARTITIONS, seed=31, keys=500, span_s=60_000), 200) as feed:
        for turn in range(TURNS):
            written = tested.written("aggregator-changelog")
            with tested.running():
                until(lambda: tested.written("aggregator-changelog") > written + 20)  # noqa: B023 - of this turn
                running = skewless("stream", tested, "--take-over")
                assert (running.exit_code, "splitter-0" in running.output) == (3, True), running.output
            refused = skewless("stream", tested, "--available-now")
            assert (refused.exit_code, "--take-over" in refused.output) == (2, True), refused.output
            process_what_was_read(tested)
            with streaming(tested, "--take-over", "--checkpoint", str(tmp_path / f"checkpoint-{turn}")) as log:
                until(lambda: log.read_text().count("micro-batch") >= 3, limit_s=RUN_S)
                back = skewless("stream", tested, "--hand-back")
                assert (back.exit_code, f"{tested.name} runs: stream" in back.output) == (3, True), back.output
            assert "continues with a query of Spark" in log.read_text()
            if turn < TURNS - 1:
                back = skewless("stream", tested, "--hand-back")
                assert (back.exit_code, "continues with the stages" in back.output) == (0, True), back.output
        feed.finish()
    last = ("--available-now", "--take-over", "--checkpoint", str(tmp_path / f"checkpoint-{TURNS - 1}"))
    assert skewless("stream", tested, *last).exit_code == 0
    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, expected, ticks=False) == []
    audit = skewless("audit", tested, "--json")
    assert audit.exit_code == 0, audit.output


def test_stream_take_over_of_unprocessed_records_is_refused_and_an_incomplete_micro_batch_too(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skewless.errors import UnreachableError
    from skewless.spark.stream_job import StreamJob

    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, transport={"session_timeout_s": 3})
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    source.send(zipf_records(300, PARTITIONS, seed=32, keys=30))
    splitter = tested.start("splitter")
    until(lambda: tested.written("tuples") > 0)
    child_process.stop(splitter)
    refused = skewless("stream", tested, "--take-over", *checkpoint)
    assert (refused.exit_code, "router has not processed all records" in refused.output) == (2, True), refused.output
    process_what_was_read(tested)
    source.send(zipf_records(300, PARTITIONS, seed=33, keys=30))

    def failing(_job: StreamJob) -> None:
        raise UnreachableError("injected")

    with monkeypatch.context() as patched:
        patched.setattr(StreamJob, "_commit", failing)
        assert skewless("stream", tested, "--take-over", "--available-now", *checkpoint).exit_code == 3
    incomplete = skewless("stream", tested, "--hand-back", *checkpoint)
    assert (incomplete.exit_code, "is not complete" in incomplete.output) == (2, True), incomplete.output
    assert skewless("stream", tested, "--available-now", *checkpoint).exit_code == 0
    for said in ("continues with the stages", "has already continued with the stages"):
        back = skewless("stream", tested, "--hand-back", *checkpoint)
        assert (back.exit_code, said in back.output) == (0, True), back.output
    source.send(zipf_records(300, PARTITIONS, seed=34, keys=30))
    tested.drain()
    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, expected, ticks=False) == []
