"""The tutorial as a user follows it: the test writes its files, runs its commands and compares their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.docs_blocks import ROOT, Block, blocks
from skewless.lab.local.folders import cache_folder

WAIT_S = 240.0
RECORDS = 100_000
ENDED = "#ended "


def tutorial() -> list[Block]:
    return list(blocks(ROOT / "docs" / "tutorial.md"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Put `skewless` and `python` on PATH, and run a separate broker."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, call in {"skewless": " -m skewless", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{call} "$@"\n')
        (programs / name).chmod(0o755)
    own = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "SKEWLESS_CACHE": str(cache_folder()),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("SKEWLESS__")} | own


@pytest.fixture
def answers(tmp_path: Path, environment: dict[str, str]) -> Iterator[list[str]]:
    """Follow the tutorial in an empty folder; returns the output of each shell block."""
    folder = tmp_path / "tutorial"
    folder.mkdir()
    for block in tutorial():
        if block.language in {"yaml", "python"}:
            (folder / block.name).write_text(block.text)
    steps = [block.text for block in tutorial() if block.language == "sh" and not block.name]
    script = "\n".join(f"{step}echo '{ENDED}'" for step in steps)
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield [answer.strip() for answer in done.stdout.split(ENDED.strip())]
    finally:
        stop = [sys.executable, "-m", "skewless", "broker", "stop"]
        subprocess.run(stop, env=environment, capture_output=True, timeout=WAIT_S, check=True)


@pytest.mark.broker
def test_tutorial_commands_as_written_give_the_documented_answers(answers: list[str]) -> None:
    _broker, check, _produce, _topics, up, top, ticks, _stop, _ = answers
    assert check == "pipeline.yaml: pipeline clicks is valid"
    assert up.count("finished, exit code 0") == 5
    shown = next(
        json.loads(block.text) for block in tutorial() if (block.language, block.name) == ("json", "aggregates")
    )
    hottest = [json.loads(line) for line in top.splitlines()]
    assert len(hottest) == 3
    assert hottest[-1] | {"revision": shown["revision"]} == shown
    last = json.loads(ticks.splitlines()[-1])
    assert last["run"]["tuples"] == RECORDS
