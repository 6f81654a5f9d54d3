"""The helper of the tests that installs Debian packages waits for other processes that install some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import debian

NAME = "skewless-test-program"
MAKE = f'if [ "$3" = install ]; then cp "$0" "${{0%/*}}/{NAME}"; fi'
"""Command of a script that installs a program: a copy of itself."""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Replace apt-get by a script. Returns the file with its commands, one per line."""
    monkeypatch.setattr(debian, "ROOT", True)
    monkeypatch.setattr(debian, "EVERY_S", 0.01)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    calls = tmp_path / "calls"

    def script(text: str) -> Path:
        program = tmp_path / "apt-get"
        program.write_text(f'#!/bin/sh\necho "$3" >> {calls}\n{text}\n')
        program.chmod(0o755)
        return calls

    return script


def test_find_program_missing_is_installed_once(apt: Callable[[str], Path], tmp_path: Path) -> None:
    calls = apt(MAKE)
    assert [debian.find_program(NAME, "package") for _ in range(2)] == [str(tmp_path / NAME)] * 2
    assert calls.read_text().split() == ["install"]


def test_find_program_apt_is_locked_waits(apt: Callable[[str], Path], tmp_path: Path) -> None:
    locked = "echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1' >&2; exit 100"
    calls = apt(f'[ "$(wc -l < {tmp_path}/calls)" -lt 3 ] && {{ {locked}; }}\n{MAKE}')
    assert debian.find_program(NAME, "package") == str(tmp_path / NAME)
    assert calls.read_text().split() == ["install"] * 3


def test_find_program_without_package_lists_updates_them(apt: Callable[[str], Path], tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    calls = apt(f'[ "$3" = update ] && touch {lists}\n[ -e {lists} ] || exit 100\n{MAKE}\nexit 0')
    assert debian.find_program(NAME, "package") == str(tmp_path / NAME)
    assert calls.read_text().split() == ["install", "update", "install"]


def test_find_program_that_no_package_has_names_package_and_reason(apt: Callable[[str], Path]) -> None:
    apt("echo 'E: Unable to locate package nothing' >&2; exit 100")
    with pytest.raises(FileNotFoundError, match=r"install the Debian package nothing \(E: Unable to locate"):
        debian.find_program(NAME, "nothing")
