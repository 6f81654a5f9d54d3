"""A pipeline that runs already is recognized, and one that was killed is not taken for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.kafka import STAGES, Pipeline, Source
from helpers.terminal import terminal
from helpers.waiting import WAIT_S, until
from skewless.cli.main import main
from skewless.errors import FencedError
from skewless.kafka.admin.groups import GroupReader
from skewless.lab.local.published_processes import read
from skewless.monitoring.settings import MetricsSettings
from skewless.operations.readiness import readiness
from skewless.operations.running_processes import check_not_running

pytestmark = [pytest.mark.broker, pytest.mark.thorough]


@contextmanager
def up(pipeline: Pipeline, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `skewless up` until the end of the block, and wait until its processes have started."""
    command = [sys.executable, "-m", "skewless", "up", "-f", str(pipeline.file), *options]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            until(lambda: b"splitter-0: pid" in log.read_bytes() or process.poll() is not None)
            yield process
        finally:
            process.kill()


def test_up_pipeline_runs_refuses_until_it_is_killed(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1), transport={"session_timeout_s": 120})
    log = tmp_path / "log"
    settings, groups = pipeline.settings, GroupReader(pipeline.settings.kafka)
    with up(pipeline, log) as first:
        # A group whose member is killed within a rebalance waits until the session of the member has ended.
        until(lambda: all(groups.describe(settings.group(stage)).state == "Stable" for stage in STAGES))
        done = CliRunner().invoke(main, ["up", "-f", str(pipeline.file)])
        splitter = f"{settings.name}-splitter-0 of group {settings.name}-splitter (pid {first.pid} on this machine)"
        assert done.exit_code == 3
        assert done.stdout == ""
        assert done.stderr.startswith(f"error: pipeline {settings.name} already runs: {splitter}, "), done.stderr
        assert "and 2 more. This run would replace these processes" in done.stderr
        assert first.poll() is None
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert check_not_running(settings, list(pipeline.processes())) == []
        # It has not waited for the end of the sessions: the broker still takes the killed processes for members.
        assert groups.describe(settings.group("router")).members
        assert read(settings) == {}
    # A process that is replaced while its group rebalances stays a member until the end of its session.
    document = json.loads(pipeline.file.read_text())
    pipeline.file.write_text(json.dumps(document | {"transport": {"session_timeout_s": 20}}))
    with up(pipeline, log) as restarted, up(pipeline, tmp_path / "other", "--take-over"):
        until(lambda: restarted.poll() is not None)
        assert restarted.returncode == 3
    assert "another process has joined with this one's group instance id" in log.read_text()


def test_run_process_answers_at_the_metrics_port_is_refused_on_a_terminal(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    with pipeline.running() as supervisor:
        group = pipeline.settings.group("router")
        until(
            lambda: GroupReader(pipeline.settings.kafka).describe(group).members,
            each=lambda: supervisor.poll(time.monotonic()),
        )
        port = supervisor.processes["router-0"].metrics_port
        at_port = pipeline.settings.model_copy(update={"metrics": MetricsSettings(port=port)})
        until(lambda: readiness(at_port, {"router-0": "127.0.0.1"}))
        assert check_not_running(at_port, ["worker-0", "router-1"]) == [], "what answers at the port is another process"
        with pytest.raises(FencedError, match=rf"already runs: {group}-0 of group {group} \(at 127.0.0.1\)\."):
            check_not_running(at_port, ["router-0"])
        monkeypatch.setenv("SKEWLESS__METRICS__PORT", str(port))
        with terminal(["run", "router", "-f", str(pipeline.file)]) as run:
            run.read_until(b"already runs")
            assert run.process.wait(WAIT_S) == 3
