"""The command line: help, exit codes, errors without tracebacks."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import pkgutil
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import click
import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from helpers.source_files import assert_none, problem_of
from helpers.waiting import WAIT_S, until
from skewless import topology
from skewless.cli import commands, main
from skewless.cli.commands import config as config_commands
from skewless.cli.commands.run import ended_by_sigterm
from skewless.errors import (
    BadRecordError,
    BrokerError,
    CheckFailedError,
    ConfigurationError,
    CrashedError,
    JobFailedError,
    SkewlessError,
    UnreachableError,
)
from skewless.lab.local.ports import find_free_ports
from skewless.version import VERSION

HEAVY = ("pydantic", "numpy", "confluent_kafka", "faust", "pyarrow", "yaml", "rich")


def invoke(*args: str) -> Result:
    return CliRunner().invoke(main.main, args, prog_name="skewless")


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Result:
    def fail(_: Path | None) -> None:
        raise error

    monkeypatch.setattr(config_commands, "load_settings", fail)
    return invoke("config", "check")


def test_main_help_lists_every_command() -> None:
    output = invoke("--help").output
    assert all(f"\n  {name} " in output for name in main.COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_asks_the_program_for_the_words(shell: str) -> None:
    script = invoke("completion", shell)
    assert (script.exit_code, f"_SKEWLESS_COMPLETE={shell}_complete" in script.output) == (0, True)
    current = "insp" if shell == "fish" else "1"  # fish passes the incomplete word, the others its position
    environment = {"_SKEWLESS_COMPLETE": f"{shell}_complete", "COMP_WORDS": "skewless insp", "COMP_CWORD": current}
    program = "from skewless.cli.main import main; main(prog_name='skewless')"
    asked = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "PYTHONPATH": ":".join(sys.path)},
    )
    assert "inspect" in asked.stdout


def test_version_lists_what_skewless_uses_and_with_all_also_kafka_and_java() -> None:
    short, rows = (
        dict(line.split(maxsplit=1) for line in invoke("version", *options).stdout.splitlines())
        for options in ((), ("--all",))
    )
    assert list(short) == ["skewless", "python", "librdkafka", "confluent-kafka", "faust-streaming", "pyspark"]
    assert short["skewless"] == VERSION
    assert short["librdkafka"] == confluent_kafka.libversion()[0]
    assert rows.items() > short.items()
    assert re.fullmatch(r"\d+\.\d+\.\d+ as local broker", rows["kafka"])


def test_main_help_groups_the_commands() -> None:
    output = invoke("--help").output
    positions = [output.index(f"\n{title}:\n") for title in main.GROUPS]
    assert positions == sorted(positions)
    assert output.index("\n  inspect ") < output.index("\nRun:\n") < output.index("\n  up ")


def test_main_unknown_command_names_the_closest() -> None:
    for name, hint in {"insepct": ", did you mean inspect?", "tup": ", did you mean up or top?", "xyzzy": "."}.items():
        result = invoke(name, "clicks")
        assert result.exit_code == 2
        assert result.output.endswith(f"unknown command {name}{hint} `skewless --help` lists all commands.\n")


def imported(modules: Iterable[str], arguments: list[str]) -> str:
    """Return those of the modules that a command imports."""
    program = (
        f"import sys; from skewless.cli.main import main; main({arguments}, standalone_mode=False); "
        f"sys.exit(' '.join(name for name in {[*modules]} if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    return done.stderr.strip()


def test_main_help_imports_no_expensive_module() -> None:
    assert imported(HEAVY, ["--help"]) == ""


def test_command_that_loads_a_pipeline_does_not_import_what_only_spark_and_the_stages_need(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: clicks\nsource: {topic: clicks}\nsplitter: {key: {field: page}}\n")
    assert imported(("faust", "numba", "pandas", "pyspark"), ["config", "check", "-f", str(file)]) == ""


def test_main_version_equals_the_package_version() -> None:
    assert invoke("--version").output == f"skewless {VERSION}\n"


def test_command_of_each_name_exists_and_has_help_with_an_example() -> None:
    def check(name: str) -> None:
        attribute = name.replace("-", "_")
        command = getattr(importlib.import_module(f"{commands.__name__}.{attribute}"), attribute)
        shown = invoke(name, "--help")
        assert shown.exit_code == 0, shown.output
        parts = command.commands.values() if isinstance(command, click.Group) else [command]
        assert any("Example" in f"{part.help} {part.epilog}" for part in parts), "its help has no example"

    assert_none(problem for name in main.COMMANDS for problem in problem_of(name, partial(check, name)))
    modules = {module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__)}
    assert modules == set(main.COMMANDS), "the table of commands and the folder differ"


@pytest.mark.parametrize(
    "args", [["nope"], ["run", "nope"], ["run"], ["run", "router", "--instance", "-1"], ["config", "check", "--nope"]]
)
def test_main_invalid_arguments_end_with_2(args: list[str]) -> None:
    assert invoke(*args).exit_code == 2


def test_run_command_help_lists_the_stages_of_the_topology() -> None:
    output = invoke("run", "--help").output
    assert all(stage.name in output for stage in topology.STAGES)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CheckFailedError("differs"), 1),
        (UnreachableError("no answer"), 3),
        (BrokerError("not allowed"), 3),
        (JobFailedError("no disk"), 3),
        (CrashedError("again and again"), 70),
        (SkewlessError("of no kind"), 70),
    ],
)
def test_main_raised_error_prints_one_line_and_ends_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: SkewlessError, code: int
) -> None:
    result = raising(monkeypatch, error)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"error: {error}\n")


def test_main_configuration_error_prints_a_line_for_each_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    result = raising(monkeypatch, ConfigurationError("a: is wrong", "b: is wrong"))
    assert (result.exit_code, result.stderr) == (2, "error: a: is wrong\nerror: b: is wrong\n")


def test_main_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert raising(monkeypatch, KeyboardInterrupt()).exit_code == 130


def run_config_check(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Python with the arguments of `skewless config check`."""
    command = [sys.executable, "-c", program, "config", "check"]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("module", ["click", "skewless.cli.commands.config"])
def test_main_import_that_ctrl_c_interrupts_and_that_goes_on_ends_with_130(module: str) -> None:
    program = f"""
import contextlib, signal, sys
from skewless.__main__ import run
class Interrupted:
    def find_spec(name, *_):
        if name == {module!r}:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupted)
run()
"""
    ended = run_config_check(program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("signal_name", "error", "code"),
    [
        ("SIGINT", 'TypeError("expected configuration property name as type unicode string")', 130),
        ("SIGINT", 'ConfigurationError("kafka.options: librdkafka refuses them: interrupted")', 130),
        ("SIGWINCH", 'TypeError("expected configuration property name as type unicode string")', 70),
        ("SIGWINCH", 'ConfigurationError("kafka.options: librdkafka refuses them: no such property")', 2),
    ],
)
def test_main_client_that_ctrl_c_interrupts_while_it_is_created_is_no_bug(
    signal_name: str, error: str, code: int
) -> None:
    program = f"""
import contextlib, signal
from skewless.cli import main
from skewless.cli.commands import config
from skewless.errors import ConfigurationError
def create_client(_):
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.{signal_name})
    raise {error}
config.load_settings = create_client
main.main()
"""
    ended = run_config_check(program)
    assert ended.returncode == code
    assert (ended.stderr == "", "Traceback" in ended.stderr) == (code == 130, code == 70)


def test_main_uncaught_exception_ends_with_70_and_its_name_in_the_last_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    result = raising(monkeypatch, ZeroDivisionError("no\nway"))
    assert result.exit_code == 70
    assert "test_main.py" in caplog.text
    assert "ZeroDivisionError: no" in caplog.text
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"error: this is a bug in skewless {VERSION}: ZeroDivisionError: no way; report it")


def test_main_uncaught_exception_of_a_package_that_adds_an_aggregate_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = __name__.partition(".")[0]
    added = EntryPoints([EntryPoint("nth", f"{__name__}:NTH", "skewless.aggregates")])
    monkeypatch.setattr(importlib.metadata, "entry_points", added.select)
    result = raising(monkeypatch, IndexError("out of range"))
    assert (result.exit_code, "bug in skewless" in result.stderr) == (70, False)
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"error: the code of {package}, which extends skewless, failed: IndexError: out of range;")


def test_recoverable_error_that_ends_a_command_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    result = raising(monkeypatch, BadRecordError("not JSON"))
    assert (result.exit_code, "this is a bug in skewless" in result.stderr) == (70, True)


@pytest.mark.parametrize(
    ("error", "resource"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/file"),
            "[Errno 28] No space left on device: '/data/file'",
        ),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "[Errno 24] Too many open files"),
        (MemoryError(), "memory"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
    ],
)
def test_main_exhausted_resource_ends_with_3_and_is_not_reported_as_a_bug(
    monkeypatch: pytest.MonkeyPatch, error: Exception, resource: str
) -> None:
    result = raising(monkeypatch, error)
    assert (result.exit_code, result.stderr) == (3, f"error: this machine is out of a resource: {resource}\n")


def test_main_abort_at_a_prompt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert raising(monkeypatch, click.Abort()).exit_code == 130


def test_error_classes_with_exit_code_1_are_failed_checks_only() -> None:
    def tree(root: type[SkewlessError]) -> list[type[SkewlessError]]:
        return [root, *(each for child in root.__subclasses__() for each in tree(child))]

    assert {kind.__name__ for kind in tree(SkewlessError) if kind.exit_code == 1} == {"CheckFailedError"}


def test_error_base_class_is_never_raised() -> None:
    services = Path(main.__file__).parent
    bare = re.compile(r"(?<!class )\bSkewlessError\(")
    found = [str(file) for file in services.rglob("*.py") if bare.search(file.read_text())]
    assert found == []


def test_main_closed_pipe_does_not_end_as_a_failed_check() -> None:
    command = f"{sys.executable} -m skewless --help | true; echo ${{PIPESTATUS[0]}}"
    # `true` may end before or after the write. The write fails only if it ends before, and neither case may end with 1.
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in {"0", "141"}


def test_main_closed_stdout_ends_with_141_and_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result = raising(monkeypatch, BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert (result.exit_code, result.stderr) == (141, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_main_stream_that_the_caller_has_closed_is_empty(closed: str, tmp_path: Path) -> None:
    tuples = tmp_path / "tuples.tsv"
    tuples.write_text("1\ta\n")
    options = f"--input {tuples} --grouping even --workers 2"
    command = f"{sys.executable} -m skewless simulate {options} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("1 tuple" in done.stdout) == (closed != ">&-")


ABANDONED = """
import sys, time
import skewless.service
from skewless.errors import UnreachableError
from skewless.stages.observer.run_statistics import RunStatistics
from skewless.kafka.call_with_timeout import TimedCalls

def run_stages(*_args, **_options):
    run = RunStatistics()
    def hang():
        time.sleep(600)
        run.save()
    assert not TimedCalls().call(hang, 0.05)
    raise UnreachableError("no answer from Kafka")

skewless.service.run_stages = run_stages
from skewless.cli.main import main
from skewless.version import VERSION
main(prog_name="skewless")
"""


def test_run_command_librdkafka_call_never_returns_ends_with_the_error_as_last_line() -> None:
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


@pytest.mark.parametrize(
    ("options", "received", "code"),
    [((), signal.SIGTERM, 0), (("--drain",), signal.SIGTERM, 143), ((), signal.SIGINT, 130)],
)
def test_run_command_that_a_signal_ends_has_finished_only_by_sigterm_without_a_bound(
    options: tuple[str, ...], received: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEWLESS__NAME", "p")
    monkeypatch.setenv("SKEWLESS__SOURCE__TOPIC", "t")
    monkeypatch.setattr("skewless.service.run_stages", lambda *_, **__: received)
    previous = signal.getsignal(signal.SIGTERM)
    try:
        assert invoke("run", "observer", *options).exit_code == code
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_config_check_and_dump_read_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: words\nsource: {topic: text}\n")
    monkeypatch.setenv("SKEWLESS__ROUTER__WORKERS", "5")
    assert invoke("config", "check", "-f", str(file)).output == f"{file}: pipeline words is valid\n"
    assert "\n  workers: 5\n" in invoke("config", "dump", "--file", str(file)).output


def test_config_check_missing_file_ends_with_2() -> None:
    result = invoke("config", "check", "-f", "/nowhere.yaml")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: /nowhere.yaml: cannot be read")


def test_run_before_kafka_answers_is_ended_by_sigterm(tmp_path: Path) -> None:
    (port,) = find_free_ports(1)
    kafka = f"kafka: {{bootstrap_servers: '127.0.0.1:{find_free_ports(1)[0]}', connect_timeout_s: 120}}"
    (tmp_path / "pipeline.yaml").write_text(f"{{name: p, source: {{topic: t}}, metrics: {{port: {port}}}, {kafka}}}")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "skewless", "run", "splitter", "-f", "pipeline.yaml"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL) as process:
        until(lambda: _answers(port))
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(("is_interrupted", "ends_with"), [(True, SystemExit), (False, TypeError)])
def test_run_client_that_sigterm_interrupts_while_it_is_created_is_no_bug(
    *, is_interrupted: bool, ends_with: type[BaseException]
) -> None:
    def create_client() -> None:
        if is_interrupted:
            with contextlib.suppress(SystemExit):
                signal.raise_signal(signal.SIGTERM)
        raise TypeError("expected configuration property name as type unicode string")

    previous = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(ends_with), ended_by_sigterm(143):
            create_client()
    finally:
        signal.signal(signal.SIGTERM, previous)


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
