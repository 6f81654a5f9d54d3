"""Invalid arguments are reported before the first connection: the address of the broker does not listen."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from skewless.cli.main import main

UNREACHABLE = "127.0.0.1:1"
LONG = "n" * 300
"""Name of a file about which the system answers with an error, like a file in a folder that one may not enter."""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["batch", "--out", "o", "--starting-offsets", "yesterday"],
            "--starting-offsets: 'yesterday' must be source.start, earliest, latest",
        ),
        (
            ["batch", "--out", "o", "--ending-offsets", "2026-13-01"],
            "--ending-offsets: '2026-13-01' must be source.start, earliest, latest",
        ),
        (["run", "all", "--instance", "1"], "--instance: one process runs all stages"),
        (["run", "observer", "--instance", "1"], "--instance: observer has one process, so its number is always 0"),
        (["run", "all", "--drain"], "--drain: use `skewless up --drain`"),
        (["stream", "--take-over", "--hand-back"], "--take-over: not with --hand-back, which lets the stages continue"),
        (["batch", "--output-topic", "t", "--overwrite"], "--overwrite: applies only to --out"),
        (["batch", "--output-topic", "t", "--format", "delta"], "--format: applies only to --out"),
        (["stream", "--hand-back", "--available-now"], "--hand-back: not with --available-now or --trigger"),
        (["stream", "--hand-back", "--trigger", "5s"], "--hand-back: not with --available-now or --trigger"),
        (["topics apply", "--keys", "10000", "--key-bytes", "9"], "--keys: only with --rate\nerror: --key-bytes: only"),
        (["topics apply", "--dry-run", "--record-bytes", "9"], "--record-bytes: only with --rate"),
        (["batch"], "give the target of the results: either --out DIR or --output-topic TOPIC"),
        (["plan", "--topic", "a b"], "--topic: must contain only letters without accents, digits, '.', '_' and '-'"),
        (["plan", "--workers", "5,many"], "--workers: 'many' must be an integer from 1 to 1024"),
        (["plan", "--grouping", "nope"], "--grouping: unknown grouping nope (known: all, consistent"),
        (["plan", "--sample", "some"], "--sample: 'some' is neither a number of records nor all"),
        (["plan", "--cost-per-tuple-ms", "nan"], "Invalid value for '--cost-per-tuple-ms'"),
        (["plan", "--headroom", "inf"], "Invalid value for '--headroom'"),
        (["topics apply", "--dry-run", "--rate", "nan"], "Invalid value for '--rate': 'nan' is not a finite number"),
        (["smoke-test", "--timeout", "nan"], "Invalid value for '--timeout': 'nan' is not a finite number"),
        (["audit", "--since", "soon"], "--since: 'soon' must be a time in ISO 8601, or a duration above 0 such as 30s"),
        (["plan", "--grouping", "evem"], "--grouping: unknown grouping evem, did you mean even?"),
        (["plan", "--topic", ".."], "--topic: must not be . or .., because Kafka rejects these topic names"),
        (["produce", "zipf", "--topic", "."], "--topic: must not be . or .., because Kafka rejects these topic names"),
        (["batch", "--output-topic", "t"], "--output-topic: pipeline p reads or writes t; name p.aggregates"),
        (["batch", "--output-topic", "p.tuples"], "--output-topic: pipeline p reads or writes p.tuples; name"),
        (
            ["batch", "--output-topic", ".."],
            "--output-topic: must not be . or .., because Kafka rejects these topic names",
        ),
    ],
)
def test_command_invalid_arguments_with_a_pipeline_end_with_2_before_a_connection(
    arguments: list[str], problem: str, tmp_path: Path
) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(f"{{name: p, source: {{topic: t}}, kafka: {{bootstrap_servers: '{UNREACHABLE}'}}}}")
    command, *others = arguments
    output = CliRunner().invoke(main, [*command.split(), "-f", str(pipeline), *others])
    assert (output.exit_code, output.stdout) == (2, "")
    assert problem in output.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["produce", "auto", "--topic", "t"], "--input: missing; auto detects the data set"),
        (["produce", "zipf", "--topic", "t", "--speed", "nan"], "Invalid value for '--speed'"),
        (["produce", "zipf"], "--topic: missing; name the topic to write to"),
        (["plan"], "--topic: missing; name the topic to plan for"),
        (["init", "t", "-o", "/proc/nowhere/p.yaml"], "-o: /proc/nowhere/p.yaml: cannot be written: No such file"),
        (["init", "t", "-o", "/proc/p.yaml"], "-o: /proc/p.yaml: cannot be written: "),
        (["init", "t", "-o", "/proc/version"], "-o: /proc/version: exists; name another file, or remove it"),
        (["inspect", "t", "--html", f"{LONG}/r.html"], "/r.html: cannot be written: File name too long"),
        (["plan", "--topic", ""], "--topic: should have at least 1 character"),
    ],
)
def test_command_invalid_arguments_without_a_pipeline_end_with_2(arguments: list[str], problem: str) -> None:
    output = CliRunner().invoke(main, [*arguments, "--bootstrap-servers", UNREACHABLE])
    assert (output.exit_code, output.stdout) == (2, "")
    assert problem in output.stderr


def test_demo_file_of_a_report_that_is_skipped_is_refused() -> None:
    output = CliRunner().invoke(main, ["demo", "--no-report", "--report", "skewless-demo.html"])
    assert (output.exit_code, output.stderr) == (2, "error: --report: not with --no-report, leave one out\n")


def test_up_that_does_not_start_leaves_no_folder_of_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kafka = f"kafka: {{bootstrap_servers: '{UNREACHABLE}', connect_timeout_s: 0.1}}"
    (tmp_path / "pipeline.yaml").write_text(f"{{name: p, source: {{topic: t}}, {kafka}}}")
    assert CliRunner().invoke(main, ["up", "-f", str(tmp_path / "pipeline.yaml")]).exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]


@pytest.mark.parametrize(
    ("command", "option"),
    [(["up", "-f"], "--log-dir"), (["audit", "-f"], "--out"), (["broker", "start"], "--data")],
)
def test_command_folder_that_cannot_be_written_to_is_named_with_its_option(
    command: list[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        f"{{name: p, source: {{topic: t}}, kafka: {{bootstrap_servers: '{UNREACHABLE}', connect_timeout_s: 0.1}}}}"
    )
    arguments = [*command, *([str(pipeline)] if "-f" in command else [])]
    if option == "--out":
        monkeypatch.setattr("skewless.cli.commands.audit._check_not_empty", lambda *_: None)
        monkeypatch.setattr("skewless.cli.audit_scope.find", lambda *_: SimpleNamespace(truncated={}))
        monkeypatch.setattr("skewless.kafka.consumer.offsets.OffsetReader", lambda _: None)
    output = CliRunner().invoke(main, [*arguments, option, "/proc/nowhere/deep"])
    assert (output.exit_code, output.stdout) == (2, "")
    assert output.stderr.startswith(f"error: {option}: /proc/nowhere/deep: cannot be created or written to: ")
