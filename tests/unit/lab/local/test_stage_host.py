"""Processes that a host forks behave as processes of their own, and never outlive the host or its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import psutil
import pytest

from helpers.waiting import until
from skewless.config.loader import load
from skewless.errors import CrashedError
from skewless.lab.local import child_process
from skewless.lab.local.ports import find_free_ports
from skewless.lab.local.stage_host import HostedProcess, StageHost
from skewless.lab.local.supervisor import Supervisor

WAIT_S = 60.0


@pytest.fixture
def host(tmp_path: Path) -> Iterator[StageHost]:
    made = StageHost(["skewless.cli.commands.run"], log=tmp_path / "host.log")
    yield made
    made.close()


def waits_for_a_broker(folder: Path) -> list[str]:
    """Return the arguments of a stage that waits for a broker."""
    file = folder / "pipeline.json"
    kafka = {"bootstrap_servers": f"127.0.0.1:{find_free_ports(1)[0]}", "connect_timeout_s": 600}
    file.write_text(json.dumps({"name": "p", "source": {"topic": "t"}, "kafka": kafka}))
    return ["run", "worker", "--file", str(file)]


def waiting(host: StageHost, folder: Path, name: str = "worker-0") -> HostedProcess:
    return host.start(name, waits_for_a_broker(folder), os.environ, log=folder / f"{name}.log")


def test_host_ended_process_returns_its_exit_code_and_has_appended_to_its_log(host: StageHost, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    assert host.start("good", ["--version"], os.environ, log=log).wait(WAIT_S) == 0
    assert host.start("bad", ["nope"], os.environ, log=log).wait(WAIT_S) == 2
    before, version, *_, error = log.read_text().splitlines()
    assert (before, version.split()[0]) == ("before", "skewless")
    assert error.startswith("Error: unknown command nope")


def test_host_process_has_the_environment_and_folder_of_its_start(
    host: StageHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ["run", "worker", "--file", "missing.yaml"]
    assert host.start("first", run, os.environ, log=tmp_path / "first").wait(WAIT_S) == 2
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("missing.yaml").write_text("name: p\nsource: {topic: t}\n")
    environment = os.environ | {"SKEWLESS__ROUTER__WORKERS": "many"}
    assert host.start("second", run, environment, log=tmp_path / "second").wait(WAIT_S) == 2
    assert "missing.yaml" in (tmp_path / "first").read_text()
    assert "SKEWLESS__ROUTER__WORKERS" in (tmp_path / "second").read_text()


def test_host_process_has_a_group_and_a_name_of_its_own(host: StageHost, tmp_path: Path) -> None:
    child = waiting(host, tmp_path)
    assert os.getpgid(child.pid) == child.pid
    until(lambda: psutil.Process(child.pid).name() == "worker-0", limit_s=WAIT_S)
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)


def test_host_killed_process_returns_the_signal_and_the_others_run(host: StageHost, tmp_path: Path) -> None:
    killed, other = waiting(host, tmp_path), waiting(host, tmp_path, "worker-1")
    child_process.kill(killed)
    assert killed.returncode == -signal.SIGKILL
    assert not psutil.pid_exists(killed.pid)
    assert other.poll() is None
    other.send_signal(signal.SIGTERM)
    assert other.wait(WAIT_S) == -signal.SIGTERM
    other.send_signal(signal.SIGTERM)


def test_host_that_is_killed_ends_its_processes_and_is_started_again(host: StageHost, tmp_path: Path) -> None:
    child = waiting(host, tmp_path)
    psutil.Process(child.pid).parent().kill()  # type: ignore[union-attr] # it has one
    assert child.wait(WAIT_S) == -signal.SIGKILL
    until(lambda: not psutil.pid_exists(child.pid), limit_s=WAIT_S)
    assert host.start("good", ["--version"], os.environ, log=tmp_path / "log").wait(WAIT_S) == 0


def test_host_close_ends_its_processes(host: StageHost, tmp_path: Path) -> None:
    child = waiting(host, tmp_path)
    host.close()
    assert child.poll() == -signal.SIGKILL
    until(lambda: not psutil.pid_exists(child.pid), limit_s=WAIT_S)


@pytest.fixture
def exhausted(tmp_path: Path) -> Iterator[StageHost]:
    """Return a host whose machine has no process id left at the first start."""
    lines = (
        "import os",
        "fork = os.fork",
        "def refuse():",
        " os.fork = fork",
        " raise BlockingIOError(11, '')",
        "os.fork = refuse",
    )
    (tmp_path / "exhausting.py").write_text("\n".join(lines))
    path = os.pathsep.join([str(tmp_path), *sys.path])
    made = StageHost(["exhausting"], log=tmp_path / "host.log", environment=os.environ | {"PYTHONPATH": path})
    yield made
    made.close()


def test_host_machine_without_a_process_id_raises_and_starts_the_next_process(
    exhausted: StageHost, tmp_path: Path
) -> None:
    with pytest.raises(BlockingIOError):
        exhausted.start("first", ["--version"], os.environ, log=tmp_path / "log")
    assert exhausted.start("second", ["--version"], os.environ, log=tmp_path / "log").wait(WAIT_S) == 0


def test_supervisor_machine_without_a_process_id_starts_the_process_again(exhausted: StageHost, tmp_path: Path) -> None:
    waits_for_a_broker(tmp_path)
    file = tmp_path / "pipeline.json"
    supervisor = Supervisor(file, load(file, {}), drain=False, logs=tmp_path / "logs", host=exhausted)
    name = next(iter(supervisor.processes))
    try:
        first = [event.detail for event in supervisor.start() if event.name == name]
        assert first == [
            "could not be started, because this machine has no memory or no process id left, restarts at once"
        ]
        supervisor.poll(monotonic())
        assert all(replica.pid for replica in supervisor.processes.values())
    finally:
        supervisor.stop()


def test_host_with_a_missing_module_names_its_log(tmp_path: Path) -> None:
    log = tmp_path / "host.log"
    host = StageHost(["skewless.no_such_module"], log=log)
    with pytest.raises(CrashedError, match=str(log)):
        host.start("good", ["--version"], os.environ, log=tmp_path / "log")
    assert "No module named 'skewless.no_such_module'" in log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_host_parent_killed_ends_with_its_processes(tmp_path: Path) -> None:
    arguments = waits_for_a_broker(tmp_path)
    program = f"""
import os, time
from pathlib import Path
from skewless.lab.local.stage_host import StageHost
folder = Path({str(tmp_path)!r})
host = StageHost([], log=folder / "host.log")
print(host.start("worker-0", {arguments}, os.environ, log=folder / "log").pid, flush=True)
time.sleep(60)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        host = psutil.Process(pid).parent()
        assert host
        parent.kill()
    until(lambda: not psutil.pid_exists(pid) and not host.is_running(), limit_s=WAIT_S)
