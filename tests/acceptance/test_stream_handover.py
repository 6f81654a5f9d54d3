"""A pipeline that stages and a query of Spark run in turn: open windows continue, and each record counts once."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helpers import spark_archive
from helpers.kafka import START_MS, Feed, Pipeline, Sent, Source, Truth, differences, read, truth, zipf_records
from helpers.running_query import run_query
from helpers.stage_hosts import FAULTS, stage_host
from helpers.waiting import until
from skewless import topology
from skewless.cli.main import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local import child_process
from skewless.lab.local.supervisor import Supervisor
from skewless.spark import stream_handover
from skewless.spark.stream_handover import hand_over
from skewless.spark.stream_start import prepare
from skewless.wire.state_schema import Engine

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1800)]

PARTITIONS = 2
LATENESS_S = 10
END_MS = START_MS + 86_400_000
"""Time at which the windows of all records but the closing ones have ended."""
CLOSING = [
    (partition, b'{"key":"last","value":0,"time":%d}' % (END_MS + LATENESS_S * 1000)) for partition in range(PARTITIONS)
]
RUN_S = 240.0


def skewless(command: str, tested: Pipeline, *arguments: str, file: Path | None = None) -> Result:
    return CliRunner().invoke(main, [command, "-f", str(file or tested.file), *arguments])


def impatient(tested: Pipeline) -> Path:
    """Write the settings of commands that are refused: they wait for a short session.

    The processes have a long one, so they stay members when they are late.
    """
    return tested.with_section("transport", session_timeout_s=1)


def status(tested: Pipeline) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(skewless("status", tested, "--json").stdout)
    return report


@contextlib.contextmanager
def running(tested: Pipeline, *, splits: bool = True) -> Iterator[None]:
    """Run the stages until the end of the block. Then the splitter stops first, if it runs.

    The other stages stop when they have processed what it had read.
    """
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

    with contextlib.ExitStack() as stack:
        stack.callback(supervisor.stop)
        supervisor.start()
        with contextlib.ExitStack() as reading:
            if splits:
                reading.callback(child_process.stop, tested.start(topology.SOURCE_STAGE))
            yield
        # Twice, because a stage may commit while the lag of the next one has been read.
        until(lambda: lag() == 0 == lag(), each=lambda: supervisor.poll(time.monotonic()), every_s=0.5)


def process_what_was_read(tested: Pipeline) -> None:
    """Run all stages but the splitter until they have processed what it had read."""
    with running(tested, splits=False):
        pass


def start_by_mistake(tested: Pipeline) -> None:
    """Run the stages that do not refuse the checkpoints of a query until they have reported their watermarks."""
    written = tested.written("partials")
    processes = [tested.start(stage) for stage in ("router", "worker")]
    try:
        until(lambda: tested.written("partials") > written)
    finally:
        for process in processes:
            child_process.stop(process)


def run_stages_for_a_while(tested: Pipeline) -> None:
    """Run the stages until they have continued the windows, and check that no query can start meanwhile or later."""
    written = tested.written("aggregator-changelog")
    with running(tested):
        until(lambda: tested.written("aggregator-changelog") > written + 20)
        refused = skewless("stream", tested, "--take-over", file=impatient(tested))
        assert (refused.exit_code, "splitter-0" in refused.output) == (3, True), refused.output
    refused = skewless("stream", tested, "--available-now")
    assert (refused.exit_code, "--take-over" in refused.output) == (2, True), refused.output


def take_over_for_a_while(tested: Pipeline, checkpoint: Path) -> None:
    """Run a query until it has continued the windows of the stages, and then its own."""
    log = tested.folder / "stream.log"

    def observe() -> None:
        until(lambda: log.read_text().count("micro-batch") >= 2, limit_s=RUN_S)
        back = skewless("stream", tested, "--hand-back", file=impatient(tested))
        assert (back.exit_code, f"{tested.name} runs: stream" in back.output) == (3, True), back.output

    options = ("--take-over", "--trigger", "1s", "--checkpoint", str(checkpoint))
    run_query(log, "-f", str(tested.file), *options, meanwhile=observe)
    assert "continues with a query of Spark" in log.read_text()


def check_exact(tested: Pipeline, closed_to: int | None = None) -> Truth:
    """Compare all results with a plain count, and with the audit. Returns the count."""
    expected = truth(read(tested.bootstrap, tested.source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, expected, ticks=False, closed_to=closed_to) == []
    audit = skewless("audit", tested, "--json")
    assert audit.exit_code == 0, audit.output
    return expected


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("emit", ["updates", "final"])
def test_pipeline_handed_over_repeatedly_under_load_equals_a_plain_count(
    broker: str, tmp_path: Path, emit: str
) -> None:
    """With `final`, the stages continue after the first query. With `updates`, a second query continues after them."""
    source = Source(broker, PARTITIONS)
    tested = Pipeline(
        broker,
        tmp_path,
        source,
        aggregator={"aggregates": ["count", "sum"], "emit": emit},
        # For this time, stages that were stopped stay members, and each command waits.
        transport={"session_timeout_s": 15},
    )
    new = skewless("stream", tested, "--take-over")
    assert (new.exit_code, "has not run yet" in new.output) == (2, True), new.output
    with Feed(source, zipf_records(400_000, PARTITIONS, seed=31, keys=500, span_s=6_000), 200) as feed:
        run_stages_for_a_while(tested)
        take_over_for_a_while(tested, tmp_path / "first")
        start_by_mistake(tested)
        hand_back(tested)
        if emit == "updates":
            run_stages_for_a_while(tested)
            take_over_for_a_while(tested, tmp_path / "second")
        feed.finish()
    source.send(CLOSING)
    if emit == "updates":
        last = ("--available-now", "--take-over", "--checkpoint", str(tmp_path / "second"))
        assert skewless("stream", tested, *last).exit_code == 0
    else:
        tested.drain()
    expected = check_exact(tested, END_MS if emit == "final" else None)
    # The load of both, without gaps and without anything twice. A query leaves the ticks of the closing records open.
    ticks = [json.loads(record.value or b"") for record in tested.read("distribution")]
    still_open = len(CLOSING) if emit == "updates" else 0
    assert sum(sum(tick["tuples_by_worker"]) for tick in ticks) == expected.tuples - still_open
    assert {tick["grouping"] for tick in ticks} <= {"even", "source"}


@pytest.mark.usefixtures("spark")
def test_stream_take_over_of_unprocessed_records_is_refused_and_an_incomplete_micro_batch_too(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skewless.errors import UnreachableError
    from skewless.spark.stream_job import StreamJob

    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, transport={"session_timeout_s": 6})
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


def commit_with_stages(tested: Pipeline, records: Iterable[Sent]) -> None:
    """Let the stages process records without an end, so that windows stay open, and stop them."""
    tested.source.send(records)
    written = tested.written("aggregates")
    with running(tested):
        until(lambda: tested.written("aggregates") > written and status(tested)["stages"][0]["lag_records"] == 0)


def kill_after_take_over(tested: Pipeline, checkpoint: Path, moment: str) -> None:
    """Take over with a query, or continue it, and kill it before its first commit.

    At the moment `opening` it has committed nothing but the handover. At `writing` the first task has an open
    transaction with results, and the others wait for it.
    """
    paths = os.pathsep.join(filter(None, (str(FAULTS), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths, "SKEWLESS_TEST_FAULTS": str(tested.folder / "driver")}
    of_executor = f"spark.executorEnv.SKEWLESS_TEST_FAULTS={tested.folder / 'executor'}"
    if moment == "opening":
        token = tested.arm("driver", "init", "kill")
    else:  # the task ends some time after the driver, and does not commit
        token = tested.arm("executor", "written", "kill", delay_s=120, topic=tested.settings.topic("aggregates"))
    command = [sys.executable, "-m", "skewless", "stream", "-f", str(tested.file), "--take-over", "--available-now"]
    command += ["--checkpoint", str(checkpoint), "--master", "local[1]", "--driver-memory", "1g"]
    command += spark_archive.conf(of_executor)
    log = tested.folder / "killed.log"
    with log.open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        until(lambda: not token.exists() or running.poll() is not None, limit_s=RUN_S)
    finally:
        running.kill()
    assert running.wait() == -9, log.read_text()
    assert re.search("(continues|has already continued) with a query of Spark", log.read_text())


def check_stages_are_refused(tested: Pipeline) -> None:
    up = skewless("up", tested)
    assert (up.exit_code, "--hand-back" in up.output) == (3, True), up.output


def hand_back(tested: Pipeline) -> None:
    back = skewless("stream", tested, "--hand-back")
    assert (back.exit_code, "continues with the stages" in back.output) == (0, True), back.output


@pytest.mark.usefixtures("spark")
def test_stream_killed_between_its_take_over_and_its_first_commit_counts_each_record_once(
    broker: str, tmp_path: Path
) -> None:
    """After a kill while it opens, the query continues, or the stages.

    First it is the query, which is killed again in its first transaction. Then the stages can only continue after the
    query, and they do. After a second take-over and kill, they continue at once.
    """
    # For this time the driver is a member of the splitter's group after its end.
    transport = {"session_timeout_s": 20}
    tested = Pipeline(broker, tmp_path, Source(broker, PARTITIONS), transport=transport)
    records = zipf_records(4_000, PARTITIONS, seed=35, keys=100)
    for then in ("query", "stages"):
        commit_with_stages(tested, itertools.islice(records, 1_000))
        tested.source.send(itertools.islice(records, 1_000))
        written, checkpoint = tested.written("aggregates"), tmp_path / f"then-{then}"
        kill_after_take_over(tested, checkpoint, "opening")
        assert tested.written("aggregates") == written
        check_stages_are_refused(tested)
        if then == "query":
            kill_after_take_over(tested, checkpoint, "writing")
            check_stages_are_refused(tested)
            # The task of the load, which starts first, has committed.
            incomplete = skewless("stream", tested, "--hand-back")
            assert (incomplete.exit_code, "is not complete" in incomplete.output) == (2, True), incomplete.output
            again = skewless("stream", tested, "--available-now", "--checkpoint", str(checkpoint))
            assert again.exit_code == 0, again.output
        hand_back(tested)
    tested.drain()
    check_exact(tested)


def interrupt_hand_over(tested: Pipeline, to: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt a handover after it has changed the first group, and check that neither can start."""
    change, calls = stream_handover._change, iter(range(10))

    def interrupted(*arguments: Any) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        change(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(stream_handover, "_change", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hand_over(tested.settings, to, print)
    with pytest.raises(ConfigurationError, match=r"^pipeline: is run by `skewless stream`, was run by the stages"):
        prepare(tested.settings, print)
    processes = [tested.start(stage) for stage in (topology.SOURCE_STAGE, topology.RESULTS_STAGE)]
    try:
        until(lambda: any(process.poll() == 2 for process in processes))
    finally:
        for process in processes:
            child_process.stop(process)


def test_handover_interrupted_between_two_groups_stops_both_until_it_is_repeated(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = Pipeline(broker, tmp_path, Source(broker, 1), transport={"session_timeout_s": 1})
    tested.source.send(zipf_records(600, 1, seed=37, keys=100))
    tested.drain()
    offsets = OffsetReader(tested.settings.kafka)

    def committed() -> dict[int, int]:
        found = offsets.committed(tested.settings.group(topology.SOURCE_STAGE), tested.source.topic)
        return {partition: each.offset for partition, each in found.items()}

    before = committed()
    interrupt_hand_over(tested, "spark", monkeypatch)
    assert hand_over(tested.settings, "spark", print)
    sources = prepare(tested.settings, print).sources
    assert {source.partition: state.offset for source, state in sources.items()} == before
    interrupt_hand_over(tested, "services", monkeypatch)
    assert hand_over(tested.settings, "services", print)
    tested.source.send(zipf_records(600, 1, seed=38, keys=100))
    tested.drain()
    expected = truth(read(broker, tested.source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, expected, ticks=False) == []
