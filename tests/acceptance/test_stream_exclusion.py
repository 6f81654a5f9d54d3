"""A query of Spark and the stages of a pipeline exclude each other, in whichever way a stage is started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.kafka import STAGES, Pipeline, Source
from helpers.tiers import thorough_except
from helpers.waiting import WAIT_S, until
from skewless import topology
from skewless.cli.main import main
from skewless.kafka.admin.groups import GroupReader
from skewless.lab.local import child_process
from skewless.lab.local.child_process import ChildProcess
from skewless.spark.stream_start import members_of, prepare

pytestmark = pytest.mark.broker


def started(tested: Pipeline, stage: str) -> ChildProcess:
    """Start a stage, or all of them in one process, as a container of the chart does."""
    return tested.start(stage, log=tested.folder / f"{stage}.log")


@pytest.fixture(scope="module")
def queried(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Run a pipeline as `skewless stream` does before it starts Spark. `test_stream_signals.py` has a whole query."""
    transport = {"session_timeout_s": 60}
    tested = Pipeline(broker, tmp_path_factory.mktemp("queried"), Source(broker, 1), transport=transport)
    with ExitStack() as memberships:
        for member in [memberships.enter_context(each) for each in members_of(prepare(tested.settings, print))]:
            member.wait_until_joined()
        yield tested


@pytest.mark.parametrize("stage", thorough_except(["router", topology.ALL_STAGES], [*STAGES, topology.ALL_STAGES]))
def test_stage_started_while_a_query_runs_is_refused(queried: Pipeline, stage: str) -> None:
    process = started(queried, stage)
    try:
        until(lambda: process.poll() is not None)
    finally:
        child_process.stop(process)
    output = (queried.folder / f"{stage}.log").read_text()
    assert (process.returncode, "is run by `skewless stream`" in output) == (3, True), output
    assert "skewless stream --hand-back" in output


@pytest.mark.parametrize("option", thorough_except(["--take-over"], ["--verbose", "--take-over", "--drain"]))
def test_up_started_while_a_query_runs_is_refused(queried: Pipeline, option: str) -> None:
    done = CliRunner().invoke(main, ["up", "-f", str(queried.file), option])
    assert (done.exit_code, "is run by `skewless stream`" in done.output) == (3, True), done.output


@pytest.mark.parametrize("stage", thorough_except(["worker"], [*STAGES, topology.ALL_STAGES]))
def test_query_started_while_a_stage_runs_is_refused(broker: str, tmp_path: Path, stage: str) -> None:
    tested = Pipeline(broker, tmp_path, Source(broker, 1), transport={"session_timeout_s": 1})
    groups = GroupReader(tested.settings.kafka)
    # The query waits for the short session. The stage has a long one, so it stays a member when it is late.
    document = json.loads(tested.file.read_text())
    document["transport"]["session_timeout_s"] = 60
    patient = tested.folder / "patient.yaml"
    patient.write_text(json.dumps(document))
    process = tested.start(stage, log=tested.folder / f"{stage}.log", file=patient)
    try:
        members = STAGES if stage == topology.ALL_STAGES else [stage]
        until(lambda: all(groups.describe(tested.settings.group(each)).members for each in members), limit_s=WAIT_S)
        done = CliRunner().invoke(main, ["stream", "-f", str(tested.file), "--available-now"])
    finally:
        child_process.stop(process)
    assert (done.exit_code, "stop these processes first" in done.output) == (3, True), done.output
    assert all(f"{each}-0" in done.output for each in members), done.output
