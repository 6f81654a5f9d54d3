"""Folders of state and caches that cannot be written, and a broker whose machine has set its clock."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import psutil
import pytest

from skewless.errors import ConfigurationError
from skewless.lab.local import broker_daemon
from skewless.lab.local.broker_daemon import State, running
from skewless.lab.local.folders import file_lock


def test_file_lock_in_a_folder_that_cannot_exist_names_the_variables(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigurationError, match=r"state/lock: cannot be written .* XDG_STATE_HOME .* SKEWLESS_CACHE"),
        file_lock(tmp_path / "file" / "state" / "lock"),
    ):
        pass


def test_file_lock_whose_file_belongs_to_another_user_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, _mode: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "open", refuse)  # tests may run as root, who may write each file
    with (
        pytest.raises(ConfigurationError, match=r"p\.lock: cannot be written \(Permission denied\): .*XDG_STATE_HOME"),
        file_lock(tmp_path / "up" / "p.lock"),
    ):
        pass


@pytest.mark.parametrize(("later_s", "runs"), [(0.0, True), (1.0, False)], ids=["same start", "other process"])
def test_broker_is_known_by_the_time_since_the_start_of_the_machine_when_the_clock_was_set(
    later_s: float, *, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own = psutil.Process()
    after_boot = own.create_time() - psutil.boot_time() + later_s
    broker_daemon._write_state(State("127.0.0.1:9092", own.pid, own.create_time() - 3600, "folder", after_boot))
    assert (running() is not None) == runs
