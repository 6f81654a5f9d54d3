"""The lock names every jar once; the server's properties are what a single node needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from skewless.local import jars, server
from skewless.local.folders import cache_folder, state_folder
from skewless.local.lock_jars import KAFKA, SPARK, render


@pytest.mark.parametrize("bundle", get_args(jars.Bundle))
def test_every_locked_jar_has_coordinates_a_checksum_and_a_name_of_its_own(bundle: jars.Bundle) -> None:
    locked = jars.locked(bundle)
    assert all(re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", jar.jar) for jar in locked)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in locked)
    assert len({jar.file for jar in locked}) == len(locked)


def test_the_lock_holds_the_coordinates_that_it_was_made_from() -> None:
    assert set(KAFKA) <= {jar.jar for jar in jars.locked("kafka")}
    assert set(SPARK) == {jar.jar for jar in jars.locked("spark")}


def test_the_lock_is_written_as_it_is_read() -> None:
    assert render({"kafka": jars.locked("kafka"), "spark": jars.locked("spark")}) == jars.LOCK.read_text()


def test_the_folders_follow_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SKEWLESS_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == state_folder() == tmp_path / ".cache" / "skewless"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "skewless"
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert cache_folder() == tmp_path / "own"
    assert state_folder() == tmp_path / "state" / "skewless"


def test_free_ports_differ_and_the_clients_can_be_fixed() -> None:
    assert len(set(server.free_ports())) == 3
    assert server.free_ports(9092).client == 9092


def test_given_properties_win_and_backslashes_survive(tmp_path: Path) -> None:
    path = server.write_properties(tmp_path, server.Ports(1, 2, 3), {"log.retention.ms": "5", "login": r"a\b"})
    lines = path.read_text().splitlines()
    assert "log.retention.ms=5" in lines
    assert r"login=a\\b" in lines
    assert "listeners=CLIENT://127.0.0.1:1,INTERNAL://127.0.0.1:2,CONTROLLER://127.0.0.1:3" in lines
