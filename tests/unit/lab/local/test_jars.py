"""The lock contains every jar once. The server's properties are those of a single node."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from skewless.errors import ConfigurationError
from skewless.lab.local import jars, kafka_process
from skewless.lab.local.folders import cache_folder, state_folder
from skewless.lab.local.lock_jars import KAFKA, SPARK, render


@pytest.mark.parametrize("bundle", get_args(jars.Bundle))
def test_jar_lock_entries_have_coordinates_checksum_and_distinct_names(bundle: jars.Bundle) -> None:
    locked = jars.locked(bundle)
    assert all(re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", jar.jar) for jar in locked)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in locked)
    assert len({jar.file for jar in locked}) == len(locked)


def test_jar_lock_contains_the_coordinates_of_its_source() -> None:
    assert set(KAFKA) <= {jar.jar for jar in jars.locked("kafka")}
    assert set(SPARK) == {jar.jar for jar in jars.locked("spark")}


def test_jar_lock_rendered_again_is_unchanged() -> None:
    assert render({"kafka": jars.locked("kafka"), "spark": jars.locked("spark")}) == jars.LOCK.read_text()


def test_kafka_home_provides_the_jars_and_the_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"KAFKA_HOME: .* is not the folder of a Kafka: libs/kafka-clients"):
        jars.kafka()
    (tmp_path / "libs").mkdir()
    names = ["kafka-clients-4.9.0.jar", "kafka_2.13-4.9.0.jar", "slf4j-api-2.0.17.jar"]
    for name in [*names, "kafka-clients-4.9.0.jar.asc"]:
        (tmp_path / "libs" / name).touch()
    assert jars.kafka() == tuple(tmp_path / "libs" / name for name in names)
    assert jars.kafka_version() == "4.9.0"


def test_missing_jars_without_pyspark_name_the_extra_and_kafka_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigurationError, match=r"PySpark.*is not installed.*`spark`.*, or set KAFKA_HOME") as error:
        jars.ensure.__wrapped__("kafka")
    assert "\n" not in str(error.value)
    assert capsys.readouterr().err == ""


def test_folders_follow_the_environment_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SKEWLESS_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == state_folder() == tmp_path / ".cache" / "skewless"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "skewless"
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert cache_folder() == tmp_path / "own"
    assert state_folder() == tmp_path / "state" / "skewless"


def test_free_ports_are_distinct_and_keep_a_given_client_port() -> None:
    assert len(set(kafka_process.free_ports())) == 3
    assert kafka_process.free_ports(9092).client == 9092


def test_kafka_properties_of_the_user_override_and_keep_backslashes(tmp_path: Path) -> None:
    path = kafka_process.write_properties(
        tmp_path, kafka_process.Ports(1, 2, 3), {"log.retention.ms": "5", "login": r"a\b"}
    )
    lines = path.read_text().splitlines()
    assert "log.retention.ms=5" in lines
    assert r"login=a\\b" in lines
    assert "listeners=CLIENT://127.0.0.1:1,INTERNAL://127.0.0.1:2,CONTROLLER://127.0.0.1:3" in lines


def test_kafka_properties_of_a_folder_with_other_letters_are_ascii(tmp_path: Path) -> None:
    folder = tmp_path / "données 😀"
    folder.mkdir()
    path = kafka_process.write_properties(folder, kafka_process.Ports(1, 2, 3), {})
    assert rf"log.dirs={tmp_path}/donn\u00e9es \ud83d\ude00/data" in path.read_text(encoding="ascii").splitlines()


def test_kafka_properties_of_a_folder_with_a_comma_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a,b: Kafka accepts no folder with a comma in its path: name"):
        kafka_process.write_properties(tmp_path / "a,b", kafka_process.Ports(1, 2, 3), {})
