"""The command line: help, exit codes, errors without tracebacks."""

from __future__ import annotations

import errno
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from skewless import __version__, cli, topology
from skewless.commands import config as config_commands
from skewless.errors import (
    CheckFailedError,
    ConfigurationError,
    CrashedError,
    JobFailedError,
    SkewlessError,
    UnreachableError,
)

HEAVY = ("pydantic", "numpy", "confluent_kafka", "faust", "pyarrow", "yaml", "rich")


def invoke(*args: str) -> Result:
    return CliRunner().invoke(cli.main, args, prog_name="skewless")


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Result:
    def fail(_: Path | None) -> None:
        raise error

    monkeypatch.setattr(config_commands, "load_settings", fail)
    return invoke("config", "check")


def test_help_lists_every_command_and_how_to_complete_them() -> None:
    output = invoke("--help").output
    assert all(f"\n  {name} " in output for name in cli.COMMANDS)
    assert "_SKEWLESS_COMPLETE" in output


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from skewless.cli import main; main(['--help'], standalone_mode=False); "
        f"sys.exit(' '.join(name for name in {HEAVY} if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stderr.strip() == ""


def test_the_version_is_the_packages() -> None:
    assert invoke("--version").output == f"skewless {__version__}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_exists_and_has_help_with_an_example(name: str) -> None:
    module, attribute = cli.COMMANDS[name].target.split(":")
    command = getattr(importlib.import_module(module), attribute)
    assert invoke(name, "--help").exit_code == 0
    parts = command.commands.values() if isinstance(command, click.Group) else [command]
    assert any("Example" in f"{part.help} {part.epilog}" for part in parts)


@pytest.mark.parametrize(
    "args", [["nope"], ["run", "nope"], ["run"], ["run", "router", "--instance", "-1"], ["config", "check", "--nope"]]
)
def test_wrong_use_ends_with_2(args: list[str]) -> None:
    assert invoke(*args).exit_code == 2


def test_run_offers_the_stages_of_the_topology() -> None:
    output = invoke("run", "--help").output
    assert all(stage.name in output for stage in topology.STAGES)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CheckFailedError("differs"), 1),
        (UnreachableError("no answer"), 3),
        (JobFailedError("no disk"), 3),
        (CrashedError("again and again"), 70),
        (SkewlessError("of no kind"), 70),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: SkewlessError, code: int
) -> None:
    result = raising(monkeypatch, error)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"error: {error}\n")


def test_mistakes_of_configuration_have_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    result = raising(monkeypatch, ConfigurationError("a: is wrong", "b: is wrong"))
    assert (result.exit_code, result.stderr) == (2, "error: a: is wrong\nerror: b: is wrong\n")


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert raising(monkeypatch, KeyboardInterrupt()).exit_code == 130


def test_uncaught_exception_ends_with_70_a_traceback_and_a_last_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    result = raising(monkeypatch, ZeroDivisionError("no\nway"))
    assert result.exit_code == 70
    assert "test_cli.py" in caplog.text
    assert "ZeroDivisionError: no" in caplog.text
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"error: this is a bug in skewless {__version__}: ZeroDivisionError: no way; report it")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_full_disk_is_a_failed_store_and_not_a_bug(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    result = raising(monkeypatch, OSError(number, os.strerror(number), "/data/file"))
    assert (result.exit_code, result.stderr.startswith("error: this machine has not enough for it: ")) == (3, True)
    assert "/data/file" in result.stderr


def test_abort_at_a_prompt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert raising(monkeypatch, click.Abort()).exit_code == 130


def test_only_failed_checks_end_with_1() -> None:
    def tree(root: type[SkewlessError]) -> list[type[SkewlessError]]:
        return [root, *(each for child in root.__subclasses__() for each in tree(child))]

    assert {kind.__name__ for kind in tree(SkewlessError) if kind.exit_code == 1} == {"CheckFailedError"}


def test_root_of_the_errors_is_never_raised() -> None:
    services = Path(cli.__file__).parent
    bare = re.compile(r"(?<!class )\bSkewlessError\(")
    found = [str(file) for file in services.rglob("*.py") if bare.search(file.read_text())]
    assert found == []


def test_closed_pipe_is_not_taken_for_a_failed_check() -> None:
    command = f"{sys.executable} -m skewless --help | true; echo ${{PIPESTATUS[0]}}"
    # `true` may end before or after the write: only the former fails it, and neither may end with 1.
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in {"0", "141"}


def test_closed_stdout_ends_with_141_and_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    result = raising(monkeypatch, BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert (result.exit_code, result.stderr) == (141, "")


ABANDONED = """
import sys, time
import skewless.runner
from skewless.errors import UnreachableError
from skewless.observer.run import Run
from skewless.transport.bounded import returns_in_time

def run_stage(*_args, **_options):
    run = Run()
    def hang():
        time.sleep(600)
        run.save()
    assert not returns_in_time(hang, 0.05)
    raise UnreachableError("no answer from Kafka")

skewless.runner.run_stage = run_stage
from skewless.cli import main
main(prog_name="skewless")
"""


def test_error_of_a_stage_is_the_last_line_when_a_call_into_librdkafka_never_returns() -> None:
    environment = {"PYTHONPATH": ":".join(sys.path), "SKEWLESS__NAME": "p", "SKEWLESS__SOURCE__TOPIC": "t"}
    done = subprocess.run(
        [sys.executable, "-c", ABANDONED, "run", "observer"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, "error: no answer from Kafka\n")


def test_check_and_dump_read_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: words\nsource: {topic: text}\n")
    monkeypatch.setenv("SKEWLESS__ROUTER__WORKERS", "5")
    assert invoke("config", "check", "-f", str(file)).output == f"{file}: pipeline words is valid\n"
    assert "\n  workers: 5\n" in invoke("config", "dump", "--file", str(file)).output


def test_a_file_that_is_not_there_ends_with_2() -> None:
    result = invoke("config", "check", "-f", "/nowhere.yaml")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: /nowhere.yaml: cannot be read")
