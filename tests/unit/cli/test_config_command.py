"""`config check` reports errors that only librdkafka detects."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from skewless.cli.main import main

PIPELINE = "name: p\nsource: {topic: t}\nkafka: {bootstrap_servers: 'nowhere:1', options: {%s}}\n"
MIRRORED = "name: p\nsource: {topic: t}\nmirror: {kafka: {bootstrap_servers: 'nowhere:1', %s}}\n"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("linger.ms: 20", 0, "pipeline p is valid"),
        ("message.timeout.ms: 60000", 2, "pipeline.yaml: kafka.options: librdkafka refuses them: "),
        ("lingr.ms: 5", 2, "pipeline.yaml: kafka.options: librdkafka refuses them: "),
    ],
)
def test_config_check_librdkafka_options_are_tried_offline(
    tmp_path: Path, options: str, code: int, message: str
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE % options)
    found = CliRunner().invoke(main, ["config", "check", "-f", str(file)])
    assert (found.exit_code, message in found.output) == (code, True), found.output


@pytest.mark.parametrize(
    ("setting", "code", "message"),
    [
        ("options: {linger.ms: 20}", 0, "pipeline p is valid"),
        ("options: {lingr.ms: 5}", 2, "pipeline.yaml: mirror.kafka.options: librdkafka refuses them: "),
        ("security_protocol: SSL, tls: {ca: /none}", 2, "pipeline.yaml: mirror.kafka.tls.ca: /none: cannot be read"),
        (
            "options: {sasl.mechanism: PLAIN}",
            2,
            "mirror.kafka.options: sasl.mechanism: use mirror.kafka.sasl.mechanism",
        ),
    ],
)
def test_config_check_settings_of_the_other_cluster_are_tried_and_named(
    tmp_path: Path, setting: str, code: int, message: str
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(MIRRORED % setting)
    found = CliRunner().invoke(main, ["config", "check", "-f", str(file)])
    assert (found.exit_code, message in found.output) == (code, True), found.output


def test_config_check_other_cluster_of_an_at_least_once_pipeline_has_the_options_of_transactions(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(MIRRORED % "options: {message.timeout.ms: 60000}" + "transport: {guarantee: at_least_once}\n")
    found = CliRunner().invoke(main, ["config", "check", "-f", str(file)])
    assert (found.exit_code, "mirror.kafka.options: " in found.output) == (2, True), found.output


@pytest.mark.parametrize(("setting", "warned"), [("", True), ("worker_input: {max_workers: 20}\n", False)])
def test_config_check_workers_above_the_default_maximum_name_the_setting(
    tmp_path: Path, setting: str, *, warned: bool
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nsource: {topic: t}\nrouter: {workers: 20}\n" + setting)
    found = CliRunner().invoke(main, ["config", "check", "-f", str(file)])
    assert found.exit_code == 0
    assert ("20 is more than the default of worker_input.max_workers, 16; set" in found.stderr) == warned


@pytest.mark.parametrize("url", ["mysql://db.example.com/shop", "sqlite:///folder/x.db"])
def test_config_check_login_of_a_database_without_tls_is_a_warning(tmp_path: Path, url: str) -> None:
    file = tmp_path / "pipeline.yaml"
    login = ", username: u" if url.startswith("mysql") else ""
    file.write_text(f"name: p\nsource: {{topic: t}}\nsink: {{url: '{url}'{login}}}\n")
    found = CliRunner().invoke(main, ["config", "check", "-f", str(file)])
    assert found.exit_code == 0
    assert ("sink.url: the login may be sent to db.example.com unencrypted" in found.stderr) == bool(login)


def test_config_schema_accepts_a_pipeline_and_rejects_an_unknown_setting() -> None:
    schema = json.loads(CliRunner().invoke(main, ["config", "schema"]).output)
    pipeline = {"name": "p", "source": {"topic": "t"}, "splitter": {"format": "json", "key": {"field": "k"}}}
    jsonschema.validate(pipeline, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(pipeline | {"rooter": {}}, schema)


OPEN = Path.open


def refusing(path: Path, *args: Any, **options: Any) -> Any:
    if path.name == "bad.pem":
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return OPEN(path, *args, **options)


@pytest.mark.parametrize("command", [["config", "check"], ["run", "router"]])
@pytest.mark.parametrize(
    ("setting", "made"),
    [
        *((setting, made) for setting in ("ca", "certificate", "key") for made in ("missing", "unreadable")),
        *((setting, "folder") for setting in ("certificate", "key")),  # a folder of authorities is a valid `ca`
        *((setting, "junk") for setting in ("ca", "certificate")),  # librdkafka reads the key last
    ],
)
def test_config_check_unusable_certificate_file_is_named_with_its_setting(
    tmp_path: Path, setting: str, made: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    invalid = tmp_path / "bad.pem"
    if made == "folder":
        invalid.mkdir()
    elif made != "missing":
        invalid.write_text("this is not PEM")
    if made == "unreadable":  # with a patch, because root may read every file
        monkeypatch.setattr(Path, "open", refusing)
    tls = {setting: str(invalid)} | ({} if setting == "ca" else {"certificate": str(invalid), "key": str(invalid)})
    document = {
        "name": "p",
        "source": {"topic": "t"},
        "kafka": {"bootstrap_servers": "127.0.0.1:1", "connect_timeout_s": 1, "security_protocol": "SSL", "tls": tls},
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(document))
    found = CliRunner().invoke(main, [*command, "-f", str(file)])
    assert found.exit_code == 2, found.output
    assert f"error: {file}: kafka.tls.{setting}: {invalid}: cannot be " in found.stderr
