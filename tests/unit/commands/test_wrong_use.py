"""Mistakes on the command line are told before a broker is asked: here nobody listens where they point."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from skewless.cli import main

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["batch", "--out", "o", "--from", "yesterday"], "--from: 'yesterday' is none of: earliest, latest"),
        (["batch", "--out", "o", "--until", "2026-13-01"], "--until: '2026-13-01' is none of: earliest, latest"),
        (["batch", "--to-topic", "t", "--overwrite"], "--overwrite: is for --out"),
        (["batch"], "say where the results go: --out DIR or --to-topic TOPIC"),
        (["plan", "--topic", "a b"], "--topic: should match pattern"),
        (["plan", "--workers", "5,many"], "--workers: 'many' is no whole number of 1 to 1024"),
        (["plan", "--grouping", "nope"], "--grouping: unknown grouping nope (known: all, consistent"),
        (["plan", "--sample", "some"], "--sample: 'some' is neither a number of records nor all"),
        (["plan", "--cost-ms", "nan"], "Invalid value for '--cost-ms'"),
        (["plan", "--headroom", "inf"], "Invalid value for '--headroom'"),
        (["audit", "--since", "soon"], "--since: 'soon' is none of"),
        (["plan", "--grouping", "evem"], "--grouping: unknown grouping evem, did you mean even?"),
        (["plan", "--topic", ".."], "--topic: Kafka refuses . and .. as names of topics"),
        (["produce", "zipf", "--topic", "."], "--topic: Kafka refuses . and .. as names of topics"),
        (["batch", "--to-topic", ".."], "--to-topic: Kafka refuses . and .. as names of topics"),
    ],
)
def test_a_mistake_ends_with_2_at_once(arguments: list[str], problem: str, tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(f"{{name: p, source: {{topic: t}}, kafka: {{bootstrap_servers: '{NOBODY}'}}}}")
    command, *rest = arguments
    said = CliRunner().invoke(main, [command, "-f", str(pipeline), *rest])
    assert (said.exit_code, said.stdout) == (2, "")
    assert problem in said.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["produce", "auto", "--topic", "t"], "--input: missing; auto looks at the first file"),
        (["produce", "zipf", "--topic", "t", "--speed", "nan"], "Invalid value for '--speed'"),
        (["produce", "zipf"], "--topic: missing; name the topic to write to"),
        (["plan"], "--topic: missing; name the topic to plan for"),
        (["plan", "--topic", ""], "--topic: should have at least 1 character"),
    ],
)
def test_without_a_pipeline_too(arguments: list[str], problem: str) -> None:
    said = CliRunner().invoke(main, [*arguments, "--bootstrap-servers", NOBODY])
    assert (said.exit_code, said.stdout) == (2, "")
    assert problem in said.stderr


@pytest.mark.parametrize(
    ("command", "option"),
    [(["up", "-f"], "--logs"), (["audit", "-f"], "--out"), (["broker", "start"], "--data")],
)
def test_folder_that_cannot_be_written_to_is_named_with_its_option(
    command: list[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(f"{{name: p, source: {{topic: t}}, kafka: {{bootstrap_servers: '{NOBODY}', timeout_s: 0.1}}}}")
    arguments = [*command, *([str(pipeline)] if "-f" in command else [])]
    if option == "--out":
        monkeypatch.setattr("skewless.commands.audit._check_not_empty", lambda *_: None)
        monkeypatch.setattr("skewless.commands.audit_positions.find", lambda *_: SimpleNamespace(lost={}))
        monkeypatch.setattr("skewless.transport.positions.Positions", lambda _: None)
    said = CliRunner().invoke(main, [*arguments, option, "/proc/nowhere/deep"])
    assert (said.exit_code, said.stdout) == (2, "")
    assert said.stderr.startswith(f"error: {option}: /proc/nowhere/deep: cannot be made or written to: ")
