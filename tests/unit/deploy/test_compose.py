"""The parts of deploy/compose.yaml are consistent. These tests do not need containers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import yaml

from dashboards.generate.files import dashboards
from helpers.docs_blocks import ROOT
from helpers.source_files import assert_none, problem_of
from skewless.cli.main import main
from skewless.config import loader
from skewless.topology import needed_stages

DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
OURS = [
    name
    for name, service in SERVICES.items()
    if service["image"].startswith("skewless") and "entrypoint" not in service
]
"""Services that run a command of Skewless."""
PORT = 9464


def mounts(name: str) -> dict[Path, Path]:
    """Bind mounts of a service: path in the container -> path in the repository."""
    pairs = [volume.split(":") for volume in SERVICES[name]["volumes"]]
    return {Path(pair[1]): (DEPLOY / pair[0]).resolve() for pair in pairs if pair[0].startswith(".")}


def seen(name: str, path: str) -> Path:
    """Return the file in the repository that a service mounts at this path."""
    for inside, here in mounts(name).items():
        if Path(path).is_relative_to(inside):
            return here / Path(path).relative_to(inside)
    raise AssertionError(f"{name} sees nothing at {path}")


PROFILE = {"sink", "postgresql"}
"""Services of profile `sql`."""
STAGES = needed_stages(loader.load(seen("splitter", "/etc/skewless/pipeline.yaml"), {}))


def test_compose_services_run_every_stage() -> None:
    running = {name: SERVICES[name]["command"][1] for name in OURS if SERVICES[name]["command"][0] == "run"}
    assert running == {stage.name: stage.name for stage in STAGES} | {"sink": "sink"}
    assert {name for name, service in SERVICES.items() if service.get("profiles") == ["sql"]} == PROFILE


def test_compose_sink_of_the_profile_adds_a_table_of_the_database() -> None:
    environment = SERVICES["sink"]["environment"]
    settings = loader.load(seen("sink", "/etc/skewless/pipeline.yaml"), environment)
    assert [stage.name for stage in needed_stages(settings)] == [*(stage.name for stage in STAGES), "sink"]
    roles = seen("postgresql", "/docker-entrypoint-initdb.d/postgresql.sql").read_text()
    sink = settings.table_settings
    assert sink.address.host in PROFILE
    assert f"CREATE DATABASE {sink.address.database} OWNER {sink.username};" in roles
    assert f"CREATE ROLE {sink.username} LOGIN PASSWORD '{environment['SKEWLESS__SINK__PASSWORD']}';" in roles


def test_compose_job_of_spark_runs_on_the_cluster_of_its_profile() -> None:
    of_profile = {name for name, service in SERVICES.items() if service.get("profiles") == ["spark"]}
    assert of_profile == {"spark-master", "spark-worker", "audit"}
    assert {SERVICES[name]["image"] for name in of_profile} == {"skewless:local-spark"}
    # Java loads the native libraries of its jars from there.
    assert all(SERVICES[name]["tmpfs"][0].endswith(":exec") for name in of_profile)
    address = f"spark://{SERVICES['spark-master']['command'][-1]}:7077"
    assert SERVICES["spark-worker"]["command"][-1] == SERVICES["audit"]["command"][-1] == address


def test_compose_commands_exist_with_their_options() -> None:
    def check(name: str) -> None:
        arguments = list(SERVICES[name]["command"])
        at = arguments.index("--file") + 1
        arguments[at] = str(seen(name, arguments[at]))
        command: click.Command = main
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), arguments.pop(0))
            assert found is not None, "there is no such command"
            command = found
        command.make_context(name, arguments)

    assert_none(problem for name in OURS for problem in problem_of(name, partial(check, name)))


def test_compose_source_topic_has_only_the_run_that_the_feed_continues() -> None:
    producers = {name: SERVICES[name]["command"] for name in OURS if SERVICES[name]["command"][0] == "produce"}
    assert producers.keys() == {"source", "feed"}
    assert producers["source"][-2:] == ["--records", "0"]
    assert "--resume" in producers["feed"]


def test_compose_pipeline_file_is_valid_and_uses_the_advertised_listener() -> None:
    settings = loader.load(seen("splitter", "/etc/skewless/pipeline.yaml"), {})
    assert settings.kafka.bootstrap_servers == "kafka:9092"
    assert SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"] == "CLIENT://kafka:9092"


def test_compose_mounts_and_dependencies_exist() -> None:
    assert_none(f"{name}: {problem}" for name in SERVICES for problem in missing(name))


def missing(name: str) -> Iterator[str]:
    service = SERVICES[name]
    volumes = service.get("volumes", ())
    yield from (f"no {here}" for here in (mounts(name).values() if volumes else ()) if not here.exists())
    yield from (f"no service {other}" for other in set(service.get("depends_on", ())) - SERVICES.keys())
    named = {volume.split(":")[0] for volume in volumes if not volume.startswith(".")}
    yield from (f"no volume {other}" for other in named - COMPOSE["volumes"].keys())
    image = service["image"]
    if image not in {"skewless:local", "skewless:local-spark"} and not image.rpartition(":")[2][-1].isdigit():
        yield f"{image} has no tag that stays the same"


def test_compose_prometheus_scrapes_the_metrics_port_of_every_stage() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"{stage.name}:{PORT}" for stage in STAGES]}]
    assert job["dns_sd_configs"] == [{"names": ["sink"], "type": "A", "port": PORT}]
    container = (DEPLOY / "Containerfile").read_text()
    assert f"SKEWLESS__METRICS__PORT={PORT}" in container
    assert all(f":{PORT}/readyz" in SERVICES[stage.name]["healthcheck"]["test"][-1] for stage in STAGES)


def test_compose_prometheus_loads_the_rules_and_alerts() -> None:
    (pattern,) = PROMETHEUS["rule_files"]
    folder = Path(pattern).parent
    names = {inside.name for inside in mounts("prometheus") if inside.parent == folder}
    assert names == {"rules.yaml", "alerts.yaml"}


def test_compose_grafana_has_its_data_source_and_all_dashboards() -> None:
    provisioning = seen("grafana", "/etc/grafana/provisioning")
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "skewless.yaml").read_text())["providers"]
    found = sorted(seen("grafana", provider["options"]["path"]).glob("*.json"))
    assert [json.loads(path.read_text())["uid"] for path in found] == [path.stem for path in found]
    assert {path.stem for path in found} == {dashboard.uid for dashboard in dashboards()}
    assert seen("grafana", SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]) in found


def test_compose_grafana_reads_the_results_as_a_user_that_cannot_write() -> None:
    provisioning = seen("grafana", "/etc/grafana/provisioning")
    (source,) = yaml.safe_load((provisioning / "datasources" / "postgresql.yaml").read_text())["datasources"]
    roles = seen("postgresql", "/docker-entrypoint-initdb.d/postgresql.sql").read_text()
    password = source["secureJsonData"]["password"]
    assert f"CREATE ROLE {source['user']} LOGIN PASSWORD '{password}' IN ROLE pg_read_all_data;" in roles
    assert source["url"].partition(":")[0] in PROFILE
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "results.yaml").read_text())["providers"]
    (file,) = seen("grafana", provider["options"]["path"]).glob("*.json")
    dashboard = json.loads(file.read_text())
    assert dashboard["uid"] == file.stem
    queried = {(target["datasource"]["uid"]) for panel in dashboard["panels"] for target in panel["targets"]}
    assert queried == {source["uid"]}


def test_compose_services_listen_on_localhost_only_and_have_no_privileges() -> None:
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", ()))
    assert all(SERVICES[name]["cap_drop"] == ["ALL"] and SERVICES[name]["read_only"] for name in OURS)
    assert "USER 10001:10001" in (DEPLOY / "Containerfile").read_text()
