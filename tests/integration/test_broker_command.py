"""`skewless broker` starts one broker per machine, prints its address, and leaves no process running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from helpers.waiting import until
from skewless.errors import ConfigurationError
from skewless.lab.local import broker_daemon, jars
from skewless.lab.local.folders import cache_folder

pytestmark = [pytest.mark.broker, pytest.mark.thorough]
WAIT_S = 90.0
PROGRAM = "from skewless.cli.commands.broker import broker; broker()"
Answer = subprocess.CompletedProcess[str]
Run = Callable[..., Answer]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Use the shared cache, but a separate state folder."""
    paths = os.pathsep.join(path for path in sys.path if path)
    own = {"PYTHONPATH": paths, "SKEWLESS_CACHE": str(cache_folder()), "XDG_STATE_HOME": str(tmp_path / "state")}
    return os.environ | own


@pytest.fixture
def run(environment: dict[str, str]) -> Iterator[Run]:
    def call(*arguments: str) -> Answer:
        command = [sys.executable, "-c", PROGRAM, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S * 2, check=False)

    yield call
    call("stop")


def status(run: Run) -> dict[str, object]:
    answer = run("status", "--json")
    entries: dict[str, object] = json.loads(answer.stdout)
    assert answer.returncode == (0 if entries["running"] else 1)
    return entries


def tree(entries: dict[str, object]) -> list[psutil.Process]:
    """Return the children of the daemon: the server and the cleanup process."""
    return psutil.Process(int(str(entries["pid"]))).children(recursive=True)


def test_broker_command_start_status_and_stop_report_and_end_one_broker(run: Run) -> None:
    assert status(run) == {"running": False}
    address = run("start").stdout.strip()
    entries = status(run)
    assert entries["running"] is True
    assert entries["address"] == address
    children = tree(entries)
    assert "java" in {child.name() for child in children}

    again = run("start")
    assert (again.returncode, again.stdout.strip()) == (0, address)
    assert "already running" in again.stderr

    assert run("stop").returncode == 0
    assert status(run) == {"running": False}
    assert not [child for child in children if child.is_running()]
    assert not Path(str(entries["folder"])).exists()
    assert run("stop").returncode == 0


def test_broker_daemon_with_a_folder_that_kafka_refuses_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], tmp_path: Path
) -> None:
    for name in ("PYTHONPATH", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, environment[name])
    with pytest.raises(ConfigurationError, match=r"a,b: Kafka accepts no folder with a comma in its path"):
        broker_daemon.start_daemon(tmp_path / "a,b", None)


def test_broker_daemon_with_kafka_home_needs_no_other_jars_and_killed_leaves_nothing_behind(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "kafka" / "libs").mkdir(parents=True)
    for jar in jars.ensure("kafka"):
        (tmp_path / "kafka" / "libs" / jar.name).symlink_to(jar)
    environment |= {"KAFKA_HOME": str(tmp_path / "kafka"), "SKEWLESS_CACHE": str(tmp_path / "cache")}
    started = run("start")
    assert started.returncode == 0, started.stderr
    assert not (tmp_path / "cache" / "jars").exists()
    entries = status(run)
    children = tree(entries)
    os.kill(int(str(entries["pid"])), signal.SIGKILL)
    until(lambda: not [child for child in children if child.is_running()], limit_s=WAIT_S)
    assert not Path(str(entries["folder"])).exists()
    assert status(run) == {"running": False}


@pytest.mark.parametrize(("number", "named"), [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_broker_command_foreground_ended_leaves_only_a_named_folder_behind(
    number: signal.Signals, environment: dict[str, str], run: Run, tmp_path: Path, *, named: bool
) -> None:
    data = ["--data", str(tmp_path / "named")] if named else []
    command = [sys.executable, "-c", PROGRAM, "start", "--foreground", *data]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as foreground:
        assert foreground.stdout
        assert foreground.stdout.readline().startswith("127.0.0.1:")
        entries = status(run)
        children = tree(entries)
        foreground.send_signal(number)
    assert foreground.returncode == (-number if number == signal.SIGKILL else 0)
    until(lambda: not [child for child in children if child.is_running()], limit_s=WAIT_S)
    assert Path(str(entries["folder"])).exists() == named
    assert (tmp_path / "named" / "data" / "meta.properties").exists() == named
