"""The module of a user's function is sent to executors as a file or as an archive, unless it is installed."""

from __future__ import annotations

import atexit
import importlib
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from skewless.spark.user_module import file_of, modules_with


def test_module_of_a_function_is_a_file_or_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    removals: list[Callable[[], None]] = []
    monkeypatch.setattr(
        atexit, "register", lambda remove, folder, **how: removals.append(partial(remove, folder, **how))
    )
    (tmp_path / "sent_alone.py").write_text("")
    package = tmp_path / "sent_package"
    (package / "__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "shop.py", "rates.csv", "__pycache__/shop.pyc"):
        (package / name).write_text("")
    (tmp_path / "without_init").mkdir()
    (tmp_path / "without_init" / "shop.py").write_text("")
    assert file_of("sent_alone", "app-1") == tmp_path / "sent_alone.py"
    archive = file_of("sent_package", "app-1")
    assert archive is not None
    assert file_of("sent_package", "app-1") == archive
    names = [f"sent_package/{name}" for name in ("__init__.py", "rates.csv", "shop.py")]
    assert (archive.suffix, zipfile.ZipFile(archive).namelist()) == (".zip", names)
    removals[0]()
    assert not archive.parent.exists()
    archive = file_of("without_init", "app-1")
    assert archive is not None
    assert zipfile.ZipFile(archive).namelist() == ["without_init/shop.py"]
    removals[1]()
    assert [file_of(name, "app-1") for name in ("numpy", "no_such_module")] == [None, None]


def test_archive_of_a_package_in_another_application_has_the_changed_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    module = tmp_path / "changed_package" / "__init__.py"
    module.parent.mkdir()
    sent = []
    for application, code in (("app-1", "FACTOR = 1"), ("app-2", "FACTOR = 2")):
        module.write_text(code)
        archive = file_of("changed_package", application)
        assert archive is not None
        sent.append(zipfile.ZipFile(archive).read("changed_package/__init__.py").decode())
    assert sent == ["FACTOR = 1", "FACTOR = 2"]


def test_modules_with_that_of_a_function_are_the_imported_ones_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "beside_package").mkdir()
    (tmp_path / "beside_package" / "rates.py").write_text("")
    (tmp_path / "beside_rules.py").write_text("import beside_lookup, beside_package.rates, numpy, turtledemo")
    for name in ("beside_lookup", "beside_other", "turtledemo"):  # the last one is also a name in Python's library
        (tmp_path / f"{name}.py").write_text("")
    importlib.import_module("beside_rules")
    assert {*modules_with("beside_rules")} == {"beside_rules", "beside_lookup", "beside_package", "turtledemo"}
    assert [modules_with(name) for name in ("numpy", "json")] == [[], []]
