"""A real Ivy makes the lock of the jars, here from a folder that acts as the repository."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from skewless.errors import UnreachableError
from skewless.lab.local.jars import Jar
from skewless.lab.local.lock_jars import resolve

CONTENT = b"the jar"
COORDINATES = "org.example:thing:1.0"
FILE_RESOLVER = """<ivysettings><settings defaultResolver="central"/><resolvers><filesystem name="central">
<artifact pattern="{}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>"""


def test_lock_entry_of_a_resolved_jar_has_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thing-1.0.jar").write_bytes(CONTENT)
    settings = tmp_path / "settings.xml"
    settings.write_text(FILE_RESOLVER.format(tmp_path))
    monkeypatch.setenv("SKEWLESS_IVY_SETTINGS", str(settings))
    expected = Jar(COORDINATES, hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    assert resolve([COORDINATES], transitive=False) == [expected]


def test_unreachable_repository_is_one_line_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKEWLESS_IVY_SETTINGS", raising=False)
    monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", "http://127.0.0.1:1/maven2")
    with pytest.raises(UnreachableError, match="Connection refused") as error:
        resolve([COORDINATES], transitive=False)
    assert "\n" not in str(error.value)
