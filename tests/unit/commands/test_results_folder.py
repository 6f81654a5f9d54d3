"""Where results go: folders that cannot be made are told before anything is computed, only own ones are replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from skewless.cli import main
from skewless.commands.options import results_folder
from skewless.errors import ConfigurationError

PARTS = ("cells", "keys")


@pytest.mark.parametrize("command", ["audit", "evaluate", "plan"])
def test_a_folder_that_cannot_be_made_is_told(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"--out: .*/file/out: cannot be made or written to: Not a directory"):
        results_folder(tmp_path / "file" / "out")
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text("{name: p, source: {topic: t}}")
    said = CliRunner().invoke(main, [command, "-f", str(pipeline), "--out", str(tmp_path / "file")])
    assert (said.exit_code, "is a file" in said.stderr) == (2, True)


def test_a_folder_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "server.pem").write_text("secret")
    with pytest.raises(ConfigurationError, match=r"--out: .*/keys is not of an earlier run and would be replaced"):
        results_folder(tmp_path, "evaluation.json", PARTS)


@pytest.mark.parametrize("left", ["evaluation.json", "keys/_SUCCESS", "keys/_temporary"])
def test_what_a_run_before_left_is_replaced(left: str, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / left).write_text("")
    results_folder(tmp_path, "evaluation.json", PARTS)


def test_a_folder_with_other_things_is_taken(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    results_folder(tmp_path / "a" / "b", "evaluation.json", PARTS)
    results_folder(tmp_path, "evaluation.json", PARTS)
    assert (tmp_path / "a" / "b").is_dir()
