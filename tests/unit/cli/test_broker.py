"""`skewless broker` while a broker runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from skewless.cli.main import main
from skewless.lab.local import broker_daemon
from skewless.lab.local.broker_daemon import State


@pytest.fixture(autouse=True)
def _running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    state = State("127.0.0.1:9092", 1, 0.0, str(tmp_path / "kept"))
    monkeypatch.setattr(broker_daemon, "running", lambda: state)


@pytest.mark.parametrize("options", [["--data", "other"], ["--port", "9093"], ["--foreground"]])
def test_broker_start_other_options_than_those_of_the_running_broker_are_refused(
    tmp_path: Path, options: list[str]
) -> None:
    ran = CliRunner().invoke(main, ["broker", "start", *options])
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert f"a broker with its data in {tmp_path / 'kept'} runs at 127.0.0.1:9092: stop it first" in ran.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("options", [[], ["--data", "kept", "--port", "9092"]])
def test_broker_start_options_of_the_running_broker_print_its_address(options: list[str]) -> None:
    ran = CliRunner().invoke(main, ["broker", "start", *options])
    assert (ran.exit_code, ran.stdout) == (0, "127.0.0.1:9092\n")


def test_broker_status_shows_address_process_and_folder_only(tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["broker", "status", "--json"])
    shown = {"running": True, "address": "127.0.0.1:9092", "pid": 1, "folder": str(tmp_path / "kept")}
    assert json.loads(ran.stdout) == shown
