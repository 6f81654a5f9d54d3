"""The recorded session of the page about `skewless inspect`, typed again: from any topic to results in two minutes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.cost import used_cpu_s
from helpers.docs_blocks import ROOT, blocks
from helpers.stage_hosts import share_host
from skewless.cli.main import main

pytestmark = pytest.mark.broker
LIMIT_S = 120.0
PROMPT = "$ skewless "


def recorded() -> list[tuple[list[str], str]]:
    """Return the commands of the session with their output."""
    page = ROOT / "docs" / "how-to" / "inspect-a-topic.md"
    (session,) = (block.text for block in blocks(page) if block.name == "session")
    parts = [part.partition("\n") for part in session.split(PROMPT)[1:]]
    return [(shlex.split(command), output) for command, _, output in parts]


def test_recorded_session_as_written_leads_from_a_topic_to_results(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = ["produce", "zipf", "--topic", "clicks", "-b", broker, "--partitions", "4", "--records", "100000", "-q"]
    assert CliRunner().invoke(main, fill).exit_code == 0
    share_host(monkeypatch)
    monkeypatch.setenv("SKEWLESS__KAFKA__BOOTSTRAP_SERVERS", broker)
    monkeypatch.chdir(tmp_path)
    session = recorded()
    assert [command[0] for command, _ in session] == ["inspect", "init", "up", "status", "results"]
    outputs, before = [], used_cpu_s()  # not the duration, because a busy machine takes longer
    for command, _ in session:
        ran = CliRunner().invoke(main, command)
        assert ran.exit_code == 0, ran.output
        outputs.append(ran.stdout)
    assert used_cpu_s() - before < LIMIT_S
    # The records have a seed. Ports, processes and times differ between runs, and loads with the order of reading.
    assert hottest_keys(outputs[0]) == hottest_keys(session[0][1])
    for number in (1, 4):
        assert outputs[number].strip() == session[number][1].strip()


def hottest_keys(text: str) -> str:
    return text.partition("Hottest keys of key")[2].partition("Load balance")[0].strip()
