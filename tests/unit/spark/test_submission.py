"""The file for spark-submit: its command line, and which settings win."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from skewless.cli.main import main
from skewless.errors import ConfigurationError
from skewless.spark import job_runner
from skewless.spark.__main__ import COMMANDS, USAGE, problem
from skewless.spark.spark_session import SparkOptions

NOTHING = {"master": None, "packages": (), "driver_memory": None, "ui": False, "conf": (), "ship": False}


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")


@pytest.mark.parametrize("args", [[], ["up"], ["--help"]])
def test_file_for_spark_submit_other_commands_print_the_usage(args: list[str]) -> None:
    assert problem(args) == USAGE


@pytest.mark.parametrize("command", COMMANDS)
def test_file_for_spark_submit_without_a_master_never_starts_spark_here(command: str) -> None:
    assert problem([command, "-f", "p.yaml"]) == (
        "error: no Spark master: start this with spark-submit, or name one with --master"
    )
    assert problem([command, "--master", "local[2]"]) is None
    assert problem([command, "--master=yarn"]) is None


@pytest.mark.parametrize("command", COMMANDS)
def test_file_for_spark_submit_takes_the_master_of_spark_submit(command: str, submitted: None) -> None:
    assert problem([command]) is None


@pytest.mark.parametrize(
    "options", [["--master", "local[2]"], ["--packages", "a:b:1"], ["--driver-memory", "2g"], ["--ui"]]
)
def test_command_of_spark_submit_with_an_option_of_java_names_it(
    options: list[str], submitted: None, tmp_path: Path
) -> None:
    (tmp_path / "lines.csv").write_text("a\n")
    (tmp_path / "p.yaml").write_text("name: p\nsource:\n  topic: t\n")
    files = ["-f", str(tmp_path / "p.yaml"), "--input", str(tmp_path / "lines.csv"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, ["batch", *files, *options])
    problem = f"error: {options[0]}: spark-submit has started Spark: give it to spark-submit, before the file\n"
    assert (done.exit_code, done.stderr) == (2, problem)


def test_spark_options_of_spark_submit_override_the_defaults_and_conf_overrides_both() -> None:
    submitted = {"spark.sql.session.timeZone": "Europe/Berlin", "spark.executor.cores": "4", "spark.master": "yarn"}
    options = SparkOptions("yarn", submitted=submitted, settings=[("spark.executor.cores", "2")]).all()
    assert options["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert options["spark.executor.cores"] == "2"
    assert options["spark.sql.adaptive.enabled"] == "true"
    assert not [name for name in options if name.startswith(("spark.driver.", "spark.ui.", "spark.jars"))]


def test_spark_options_limit_the_free_memory_of_tasks_unless_set_otherwise() -> None:
    name = "spark.executorEnv.MALLOC_ARENA_MAX"
    assert SparkOptions("local[2]").all()[name] == "2"
    assert SparkOptions("yarn", submitted={name: "4"}).all()[name] == "4"


def test_spark_running_without_spark_submit_has_the_options_of_java() -> None:
    assert {"spark.master", "spark.driver.memory", "spark.ui.enabled"} <= SparkOptions("local[2]").all().keys()


@pytest.mark.parametrize(("master", "variable"), [("sc://spark:15002", None), (None, "sc://spark:15002")])
def test_spark_running_spark_connect_is_refused(
    master: str | None, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("SPARK_REMOTE", variable)
    with (
        pytest.raises(ConfigurationError, match=r"^sc://spark:15002: Spark Connect is not supported: name the master"),
        job_runner.spark_running("batch", NOTHING | {"master": master}),
    ):
        pass


@pytest.mark.parametrize("version", ["3.5.9", "5.0.0"])
def test_spark_running_other_versions_of_pyspark_are_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with (
        pytest.raises(ConfigurationError, match=f"^PySpark {version} is installed, and Skewless needs version 4: "),
        job_runner.spark_running("batch", NOTHING),
    ):
        pass


def test_spark_running_ship_without_executors_is_refused() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"^--ship: local\[2\] has no executors: name a cluster with --master"),
        job_runner.spark_running("batch", NOTHING | {"master": "local[2]", "ship": True}),
    ):
        pass


@pytest.mark.parametrize(("version", "packages"), [("4.0.5", 1), ("4.1.10", 1), ("4.2.0", 0), ("4.10.0", 0)])
def test_connector_of_an_older_pyspark_than_the_locked_one_is_downloaded_with_a_warning(
    version: str, packages: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    assert len(job_runner._connector()) == packages
    assert ("without a locked checksum; PySpark 4.2" in capsys.readouterr().err) == bool(packages)


def test_spark_running_progress_of_java_that_has_ended_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = threading.Event()

    def ended(_spark: object) -> tuple[int, int]:
        asked.set()
        raise ConnectionRefusedError

    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setattr(job_runner, "is_hidden", lambda: False)  # a command with -q may have run in this process
    monkeypatch.setattr(job_runner, "REFRESH_S", 0.001)
    monkeypatch.setattr(job_runner, "_task_counts", ended)
    nothing: Any = None
    with job_runner._progress(nothing, "batch"):
        assert asked.wait(60)
    assert "Traceback" not in capsys.readouterr().err
