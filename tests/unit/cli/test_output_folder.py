"""Output folders: errors are reported before the computation, and only folders of earlier results are replaced."""

from __future__ import annotations

import errno
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from skewless.cli.main import main
from skewless.cli.options import prepare_output_folder
from skewless.errors import ConfigurationError

FILES, PARTS = ("evaluation.json", "report.html"), ("cells", "keys")


@pytest.mark.parametrize("command", ["audit", "evaluate", "plan"])
def test_output_folder_that_cannot_be_created_is_refused_before_any_work(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"--out: .*/file/out: cannot be created or written to: Not a dir"):
        prepare_output_folder(tmp_path / "file" / "out", FILES)
    with click.Context(main), pytest.raises(ConfigurationError, match="cannot be created or written to: File name too"):
        prepare_output_folder(tmp_path / ("n" * 300), FILES)
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text("{name: p, source: {topic: t}}")
    output = CliRunner().invoke(main, [command, "-f", str(pipeline), "--out", str(tmp_path / "file")])
    assert (output.exit_code, "is a file" in output.stderr) == (2, True)


def test_output_folder_that_begins_as_a_uri_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"--out: s3a:/bucket/audit begins as a URI, which only batch accepts"):
        prepare_output_folder(Path("s3a://bucket/audit"), FILES)
    assert not list(tmp_path.iterdir())


def test_output_folder_with_foreign_parts_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "server.pem").write_text("secret")
    with pytest.raises(ConfigurationError, match=r"--out: .*/keys is not the output of an earlier run"):
        prepare_output_folder(tmp_path, FILES, PARTS)


def test_output_folder_with_a_part_that_the_user_may_not_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").mkdir()
    exists = Path.exists

    def is_there(path: Path) -> bool:
        if path.parent.name == "keys":
            raise PermissionError(errno.EACCES, "Permission denied")
        return exists(path)

    monkeypatch.setattr(Path, "exists", is_there)
    with pytest.raises(ConfigurationError, match=r"--out: .*/keys: cannot be written: Permission denied"):
        prepare_output_folder(tmp_path, FILES, PARTS)


@pytest.mark.parametrize("name", FILES)
def test_output_folder_with_a_file_that_cannot_be_written_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigurationError, match=rf"--out: .*/{name}: cannot be written: Is a directory"):
        prepare_output_folder(tmp_path, FILES)


@pytest.mark.parametrize("log", ["router-0.log", "host.log"])
def test_log_folder_with_a_log_that_cannot_be_written_is_refused_before_the_start(log: str, tmp_path: Path) -> None:
    (tmp_path / log).mkdir()
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text("{name: p, source: {topic: t}}")
    result = CliRunner().invoke(main, ["up", "-f", str(pipeline), "--log-dir", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: --log-dir: {tmp_path / log}: cannot be written: Is a directory\n",
    )


@pytest.mark.parametrize("left", ["evaluation.json", "keys/_SUCCESS", "keys/_temporary"])
def test_output_folder_of_an_earlier_run_is_replaced(left: str, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / left).write_text("")
    prepare_output_folder(tmp_path, FILES, PARTS)


def test_output_folder_with_other_files_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    prepare_output_folder(tmp_path / "a" / "b", FILES, PARTS)
    prepare_output_folder(tmp_path, FILES, PARTS)
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize(("prefix", "error"), [("test.", "cannot be written"), ("prod.", "have the same topics")])
def test_evaluate_of_pipelines_with_one_name_compares_those_of_different_prefixes(
    prefix: str, error: str, tmp_path: Path
) -> None:
    (tmp_path / "evaluation.json").mkdir()
    options = ["--out", str(tmp_path)]
    for number, each in enumerate(["prod.", prefix]):
        file = tmp_path / f"{number}.yaml"
        file.write_text(f"{{name: p, source: {{topic: t}}, topics: {{prefix: {each}}}}}")
        options += ["-f", str(file)]
    result = CliRunner().invoke(main, ["evaluate", *options])
    assert (result.exit_code, error in result.stderr) == (2, True), result.output


def test_output_folder_that_is_still_empty_at_the_end_of_the_command_is_removed(tmp_path: Path) -> None:
    with click.Context(main):
        prepare_output_folder(tmp_path / "new" / "folder" / "out", FILES)
        prepare_output_folder(tmp_path / "new" / "report", FILES)
        (tmp_path / "new" / "report" / "plan.json").write_text("{}")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == [
        "new",
        "new/report",
        "new/report/plan.json",
    ]


def test_output_folder_of_the_user_that_is_empty_is_not_removed(tmp_path: Path) -> None:
    with click.Context(main):
        prepare_output_folder(tmp_path, FILES)
    assert tmp_path.is_dir()
