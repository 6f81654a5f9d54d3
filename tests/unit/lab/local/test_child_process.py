"""Child processes end on request, and never outlive the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from helpers.waiting import until
from skewless.lab.local import child_process

WAIT_S = 20.0
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


def test_child_process_output_is_written_to_the_log_and_its_exit_code_is_returned(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = child_process.start(["sh", "-c", "echo out; echo err >&2; exit 7"], log=log)
    assert child.wait(WAIT_S) == 7
    assert log.read_text() == "out\nerr\n"


def test_child_process_given_environment_is_used(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = child_process.start(["sh", "-c", 'echo "$NAME"'], os.environ | {"NAME": "value"}, log=log)
    child.wait(WAIT_S)
    assert log.read_text() == "value\n"


def test_child_process_runs_the_command_itself_in_its_own_process_group(tmp_path: Path) -> None:
    child = child_process.start(["sleep", "60"], log=tmp_path / "log")
    try:
        assert os.getpgid(child.pid) == child.pid
        until(lambda: psutil.Process(child.pid).name() == "sleep", limit_s=WAIT_S)
    finally:
        child_process.kill(child)


def test_child_process_stop_sends_sigterm_first(tmp_path: Path) -> None:
    child = child_process.start(["sleep", "60"], log=tmp_path / "log")
    child_process.stop(child)
    assert child.returncode == -signal.SIGTERM


def test_child_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = child_process.start([sys.executable, "-c", STUBBORN], log=log)
    until(lambda: "ready" in log.read_text(), limit_s=WAIT_S)
    child_process.stop(child, grace_s=0.1)
    assert child.returncode == -signal.SIGKILL


def test_child_process_stop_after_its_end_leaves_its_exit_code(tmp_path: Path) -> None:
    child = child_process.start(["sh", "-c", "exit 3"], log=tmp_path / "log")
    child.wait(WAIT_S)
    child_process.stop(child)
    assert child.returncode == 3


def test_child_process_missing_command_is_named_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert child_process.start(["/no/such/command"], log=log).wait(WAIT_S) == 1
    assert log.read_text() == "cannot start /no/such/command: No such file or directory\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_child_process_parent_killed_ends_too(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from skewless.lab.local import child_process
folder = Path({str(tmp_path)!r}) / "temporary"
folder.mkdir()
with child_process.temporary_folder(folder):
    print(child_process.start(["sleep", "60"], log=folder / "log").pid, flush=True)
    time.sleep(60)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
    until(lambda: not psutil.pid_exists(pid), limit_s=WAIT_S)
    until(lambda: not (tmp_path / "temporary").exists(), limit_s=WAIT_S)


def test_temporary_folder_after_its_block_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    with child_process.temporary_folder(folder):
        (folder / "file").touch()
    assert not folder.exists()


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_ended_on_failure_block_fails_terminates_its_processes(failure: type[BaseException]) -> None:
    children = []

    def fail() -> None:
        with child_process.ended_on_failure():
            children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
            raise failure

    with pytest.raises(failure):
        fail()
    assert not psutil.pid_exists(children[0].pid)
    children[0].wait(WAIT_S)


def test_ended_on_failure_second_interrupt_kills_a_process_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    children = []
    ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"

    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    def fail() -> None:
        with child_process.ended_on_failure():
            child = subprocess.Popen([sys.executable, "-c", ignoring], stdout=subprocess.PIPE)
            children.append(child)
            assert child.stdout
            child.stdout.readline()
            raise KeyboardInterrupt

    monkeypatch.setattr(psutil, "wait_procs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fail()
    with children[0] as child:
        assert child.wait(WAIT_S) == -signal.SIGKILL


def test_ended_on_failure_block_succeeds_keeps_its_processes() -> None:
    with child_process.ended_on_failure():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        assert child.poll() is None
    finally:
        child.kill()
        child.wait(WAIT_S)
