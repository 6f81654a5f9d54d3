"""Only a version of Java that runs Kafka and Spark is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skewless.errors import ConfigurationError
from skewless.lab.local import java

Install = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    java.find.cache_clear()
    yield
    java.find.cache_clear()


@pytest.fixture
def install(tmp_path: Path) -> Install:
    def make(name: str, version: str, exit_code: int = 0) -> Path:
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        (folder / "java").write_text(
            f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {exit_code}\n"
        )
        (folder / "java").chmod(0o755)
        return folder.parent

    return make


def test_java_search_without_java_raises_one_line_with_a_remedy() -> None:
    with pytest.raises(ConfigurationError, match="install one") as error:
        java.find()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2", "26-ea"])
def test_java_search_finds_java_17_and_newer_on_the_path(
    version: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = install("java", version)
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert java.find() == (home / "bin" / "java", version)


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.23", "16.0.2"])
def test_java_search_older_version_is_rejected(version: str, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(install("java", version) / "bin"))
    with pytest.raises(ConfigurationError):
        java.find()


def test_java_search_without_the_vector_module_is_rejected(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install("lacking", "17.0.15", exit_code=1)))
    with pytest.raises(ConfigurationError):
        java.find()


def test_java_search_suitable_java_home_takes_precedence(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(install("path", "21.0.1") / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(install("home", "17.0.1")))
    assert java.find().version == "17.0.1"
    java.find.cache_clear()
    monkeypatch.setenv("JAVA_HOME", str(install("old", "11.0.1")))
    assert java.find().version == "21.0.1"


def test_java_install_without_a_package_manager_raises() -> None:
    with pytest.raises(ConfigurationError, match="no Java 17 or newer"):
        java.install()


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a package manager that runs the given script on PATH, for root."""

    def make(script: str) -> None:
        folder = tmp_path / "apt"
        folder.mkdir()
        (folder / "apt-get").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "apt-get").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr("os.geteuid", lambda: 0)

    return make


def test_java_install_as_root_uses_the_package_manager(
    apt: Callable[[str], None], install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    home = install("packaged", "17.0.15")
    apt(f'[ "$1" = update ] || /bin/ln -s {home}/bin/java "${{0%/*}}/java"')
    java.main()
    assert java.find().version == "17.0.15"
    assert capsys.readouterr().err == "no Java found: installing it with apt-get\n"


def test_java_install_on_a_release_without_java_17_takes_21(apt: Callable[[str], None], install: Install) -> None:
    home = install("packaged", "21.0.9")
    apt(f"""case "$*" in
        *openjdk-17*) exit 100;;
        *openjdk-21*) /bin/ln -s {home}/bin/java "${{0%/*}}/java";;
    esac""")
    java.main()
    assert java.find().version == "21.0.9"


def test_java_install_failed_package_manager_ends_with_2_and_one_line(
    apt: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    apt('[ "$1" = update ] && exit 0; echo first >&2; echo "E: no such package" >&2; exit 100')
    with pytest.raises(SystemExit) as end:
        java.main()
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[1].endswith("(apt-get install failed: E: no such package)")
