"""Jars are fetched by a real Ivy, here from a folder that stands for Maven Central, and verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from skewless.errors import ConfigurationError, UnreachableError
from skewless.local import jars

CONTENT = b"the jar"
FILE_RESOLVER = """<ivysettings><settings defaultResolver="central"/><resolvers><filesystem name="central">
<artifact pattern="{}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>"""
CLOSED_RESOLVER = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false" root="http://127.0.0.1:1/"/></resolvers></ivysettings>"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test an empty cache and a lock of one jar."""
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path / "cache"))
    lock = tmp_path / "jars.lock"
    entry = {"jar": "org.example:thing:1.0", "sha256": hashlib.sha256(CONTENT).hexdigest(), "bytes": len(CONTENT)}
    lock.write_text(json.dumps({"kafka": [entry]}))
    monkeypatch.setattr(jars, "LOCK", lock)
    jars.ensure.cache_clear()
    yield tmp_path / "cache" / "jars"
    jars.ensure.cache_clear()


def use_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "thing-1.0.jar").write_bytes(content)
    use_settings(tmp_path, monkeypatch, FILE_RESOLVER.format(repository))


def use_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str) -> None:
    (tmp_path / "settings.xml").write_text(settings)
    monkeypatch.setenv("SKEWLESS_IVY_SETTINGS", str(tmp_path / "settings.xml"))


def test_a_missing_jar_is_fetched_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_repository(tmp_path, monkeypatch, CONTENT)
    (path,) = jars.ensure("kafka")
    assert path == cache / "thing-1.0.jar"
    assert path.read_bytes() == CONTENT
    jars.ensure.cache_clear()
    monkeypatch.setenv("SKEWLESS_IVY_SETTINGS", "/no/such/file")
    assert jars.ensure("kafka") == (path,)
    assert sorted(path.name for path in cache.iterdir()) == [".lock", "thing-1.0.jar"]


def test_a_damaged_jar_is_fetched_again(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_repository(tmp_path, monkeypatch, CONTENT)
    cache.mkdir(parents=True)
    (cache / "thing-1.0.jar").write_bytes(b"damaged")
    (path,) = jars.ensure("kafka")
    assert path.read_bytes() == CONTENT


def test_another_jar_under_the_same_name_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_repository(tmp_path, monkeypatch, b"another jar")
    with pytest.raises(ConfigurationError, match=r"org\.example:thing:1\.0"):
        jars.ensure("kafka")
    assert not (cache / "thing-1.0.jar").exists()


def test_an_unreachable_registry_is_one_line_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_settings(tmp_path, monkeypatch, CLOSED_RESOLVER)
    with pytest.raises(UnreachableError, match=r"Connection refused.*check the network") as error:
        jars.ensure("kafka")
    assert "\n" not in str(error.value)
