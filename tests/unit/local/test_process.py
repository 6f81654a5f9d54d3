"""Children end when told, and never outlive the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from skewless.local import process

WAIT_S = 20.0
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_output_goes_to_the_log_and_the_exit_code_comes_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = process.start(["sh", "-c", "echo out; echo err >&2; exit 7"], log=log)
    assert child.wait(WAIT_S) == 7
    assert log.read_text() == "out\nerr\n"


def test_the_given_environment_is_the_childs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = process.start(["sh", "-c", 'echo "$NAME"'], os.environ | {"NAME": "value"}, log=log)
    child.wait(WAIT_S)
    assert log.read_text() == "value\n"


def test_the_child_is_the_command_itself_in_a_group_of_its_own(tmp_path: Path) -> None:
    child = process.start(["sleep", "60"], log=tmp_path / "log")
    try:
        assert os.getpgid(child.pid) == child.pid
        assert eventually(lambda: psutil.Process(child.pid).name() == "sleep")
    finally:
        process.kill(child)


def test_stopping_is_polite_first(tmp_path: Path) -> None:
    child = process.start(["sleep", "60"], log=tmp_path / "log")
    assert process.stop(child) == -signal.SIGTERM


def test_a_child_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = process.start([sys.executable, "-c", STUBBORN], log=log)
    assert eventually(lambda: "ready" in log.read_text())
    assert process.stop(child, grace_s=0.1) == -signal.SIGKILL


def test_stopping_what_has_ended_returns_its_exit_code(tmp_path: Path) -> None:
    child = process.start(["sh", "-c", "exit 3"], log=tmp_path / "log")
    child.wait(WAIT_S)
    assert process.stop(child) == 3


def test_a_command_that_does_not_exist_is_named_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert process.start(["/no/such/command"], log=log).wait(WAIT_S) == 1
    assert log.read_text() == "cannot start /no/such/command: No such file or directory\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_a_killed_parent_takes_its_children_along(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from skewless.local import process
folder = Path({str(tmp_path)!r}) / "temporary"
folder.mkdir()
with process.removed_afterwards(folder):
    print(process.start(["sleep", "60"], log=folder / "log").pid, flush=True)
    time.sleep(60)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
    assert eventually(lambda: not psutil.pid_exists(pid))
    assert eventually(lambda: not (tmp_path / "temporary").exists())


def test_a_folder_is_removed_when_its_block_ends(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    with process.removed_afterwards(folder):
        (folder / "file").touch()
    assert not folder.exists()


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_processes_of_a_block_that_fails_are_ended(failure: type[BaseException]) -> None:
    children = []

    def fail() -> None:
        with process.ended_on_failure():
            children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
            raise failure

    with pytest.raises(failure):
        fail()
    assert not psutil.pid_exists(children[0].pid)
    children[0].wait(10)


def test_processes_of_a_block_that_does_not_fail_keep_running() -> None:
    with process.ended_on_failure():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        assert child.poll() is None
    finally:
        child.kill()
        child.wait(10)
