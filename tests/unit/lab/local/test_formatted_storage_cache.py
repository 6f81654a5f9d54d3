"""Clusters that are created on this machine: their identifiers, and a first start that fails."""

from __future__ import annotations

import base64
from pathlib import Path
from uuid import UUID

import pytest

from skewless.errors import UnreachableError
from skewless.lab.local import formatted_storage_cache, jars, kafka_process


def test_new_id_that_would_begin_with_a_dash_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [UUID(bytes=bytes([0xF8] + 15 * [1])), UUID(bytes=bytes([0x40] + 15 * [1]))]
    assert base64.urlsafe_b64encode(drawn[0].bytes).startswith(b"-")
    monkeypatch.setattr("uuid.uuid4", lambda: drawn.pop(0))
    assert formatted_storage_cache._new_id() == "QAEBAQEBAQEBAQEBAQEBAQ"
    assert drawn == []


def test_first_start_that_fails_names_its_cause_and_keeps_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = {"kafka.tools.StorageTool": ["true"], "kafka.Kafka": ["sh", "-c", "echo no memory; exit 3"]}
    monkeypatch.setattr(kafka_process, "command", lambda main, *_arguments, **_options: commands[main])
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / formatted_storage_cache.CHECKPOINT).touch()
    created = tmp_path / "created"
    created.mkdir()
    log = tmp_path / "broker.log"
    with pytest.raises(UnreachableError, match=f"ended with exit code 3; its log {log} ends with\nno memory$"):
        formatted_storage_cache._create(tmp_path, created)
    assert log.read_text() == "no memory\n"


def test_template_of_packages_in_two_environments_is_created_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jars, "kafka", lambda: [tmp_path / "kafka.jar"])
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path / "cache"))
    created: list[Path] = []
    monkeypatch.setattr(formatted_storage_cache, "_create", lambda _folder, into: created.append(into))
    for environment in ("one", "other"):
        monkeypatch.setattr(kafka_process, "LOGGING", f"-Dlog4j2.configurationFile=/{environment}/log4j2.properties")
        formatted_storage_cache.template.__wrapped__()
    assert len(created) == 1
