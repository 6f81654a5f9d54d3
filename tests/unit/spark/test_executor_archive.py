"""The archive of the packages of executors: its contents, and when it is built again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from helpers.docs_blocks import ROOT
from skewless.errors import ConfigurationError
from skewless.spark import executor_archive
from skewless.spark.spark_session import SparkOptions

LISTED = {*executor_archive.PACKAGES, *executor_archive.EXTRAS}


@pytest.fixture(autouse=True)
def few_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Use a copy of the package and one small other package, and an empty cache folder."""
    own = tmp_path / "services" / "skewless"
    shutil.copytree(executor_archive.OWN_FOLDER / "algorithms", own / "algorithms")
    (own / "__init__.py").write_text("")
    monkeypatch.setattr(executor_archive, "OWN_FOLDER", own)
    monkeypatch.setattr(executor_archive, "PACKAGES", ("msgspec",))
    monkeypatch.setattr(executor_archive, "EXTRAS", ())
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path / "cache"))
    return own


def test_executor_archive_unpacked_runs_a_python_with_its_packages(tmp_path: Path) -> None:
    with tarfile.open(executor_archive.ensure()) as tar:
        tar.extractall(tmp_path / "skewless", filter="tar")
    code = "import json, msgspec, skewless, sys; print(json.dumps([msgspec.__file__, skewless.__file__, sys.argv[1:]]))"
    python, environment = tmp_path / "skewless" / "bin" / "python", {"SKEWLESS_PYTHON": sys.executable, "PATH": "/bin"}
    done = subprocess.run(
        [python, "-S", "-c", code, "a b"], env=environment, capture_output=True, text=True, check=True
    )
    packages = tmp_path / "skewless" / "packages"
    expected = [str(packages / name / "__init__.py") for name in ("msgspec", "skewless")]
    assert json.loads(done.stdout) == [*expected, ["a b"]]


def test_executor_archive_has_the_packages_of_each_extra_that_tasks_import() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = " ".join(text for name in ("msk", "mysql", "postgresql", "registry") for text in extras[name])
    required = dict(re.findall(r"([\w-]+)(?:\[(\w+)\])?>=", texts))
    assert required.keys() <= LISTED
    assert {name: extra for name, extra in required.items() if extra} == executor_archive.EXTRA_OF


def test_executor_archive_is_built_once_and_again_after_a_change(
    few_packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = executor_archive.ensure()
    assert str(first) in capsys.readouterr().err
    assert executor_archive.ensure() == first
    assert capsys.readouterr().err == ""
    (few_packages / "algorithms" / "new.py").write_text("")
    assert executor_archive.ensure() != first


def test_executor_archive_of_many_versions_keeps_those_that_were_used_last(few_packages: Path) -> None:
    used = []
    for version in range(executor_archive.KEPT + 2):
        (few_packages / "algorithms" / "new.py").write_text(f"VERSION = {version}")
        used.append(executor_archive.ensure())
        os.utime(used[-1], (version, version))
    (few_packages / "algorithms" / "new.py").write_text("VERSION = 2")
    again = executor_archive.ensure()
    assert again == used[2]
    assert sorted(again.parent.glob("*.tar.gz")) == sorted(used[-executor_archive.KEPT :])


def test_executor_archive_after_an_interrupted_build_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(tarfile.TarFile, "add", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            executor_archive.ensure()
    with tarfile.open(executor_archive.ensure()) as tar:
        assert "packages/skewless/__init__.py" in tar.getnames()


def test_executor_archive_of_a_package_in_editable_mode_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_archive, "PACKAGES", ("skewless",))
    monkeypatch.setattr(executor_archive, "PRESENT", {"pyspark"})
    with pytest.raises(ConfigurationError, match="--ship: the files of package skewless are unknown"):
        executor_archive.ensure()


def test_spark_options_with_an_archive_keep_the_archives_and_the_python_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    options = SparkOptions("yarn", archive=Path("/cache/a.tar.gz"), settings=[("spark.archives", "mine.zip")])
    assert options.all()["spark.archives"] == "file:///cache/a.tar.gz#skewless,mine.zip"
    assert options.all()["spark.executorEnv.SKEWLESS_PYTHON"] == "/opt/python"
    assert options.environment()["PYSPARK_PYTHON"] == "./skewless/bin/python"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_spark_options_of_a_local_master_have_no_executors(master: str) -> None:
    assert SparkOptions(master).is_local


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://local:7077", "yarn", "k8s://https://local"])
def test_spark_options_of_a_cluster_have_executors(master: str) -> None:
    assert not SparkOptions(master).is_local
