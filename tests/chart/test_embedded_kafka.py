"""The embedded Kafka's configuration starts a real Kafka, in which the init containers' commands create all topics."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skewless import topology
from skewless.cli.main import main
from skewless.config.loader import load
from skewless.lab.local import jars, java
from skewless.lab.local.kafka_process import free_ports

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

CHART = Path(__file__).parents[2] / "helm" / "skewless"
HOST = "clicks-skewless-kafka.default.svc"
WAIT_S = 240
Objects = list[dict[str, Any]]


@contextlib.contextmanager
def kafka(folder: Path, properties: str) -> Iterator[None]:
    """Run the two commands of the container, with the jars of the embedded broker."""
    file = folder / "server.properties"
    file.write_text(properties)
    command = [str(java.find().path), "-Xmx512m", "-cp", ":".join(map(str, jars.ensure("kafka")))]
    formatting = ["format", "--ignore-formatted", "--cluster-id", "c2tld2xlc3MtZW1iZWRkZQ", "--config", str(file)]
    subprocess.run([*command, "kafka.tools.StorageTool", *formatting], check=True, capture_output=True, timeout=WAIT_S)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*command, "kafka.Kafka", str(file)], stdout=log, stderr=log)
    try:
        yield
    finally:
        server.kill()
        server.wait(WAIT_S)


def test_embedded_kafka_after_topics_init_has_every_topic(render: Callable[..., Objects], tmp_path: Path) -> None:
    objects = render(CHART / "ci" / "embedded-kafka.yaml", "kafka.connectTimeoutSeconds=120")
    maps = {found["metadata"]["name"]: found["data"] for found in objects if found["kind"] == "ConfigMap"}
    ports = free_ports()

    def here(text: str) -> str:
        changed = text.replace(HOST, "localhost").replace("/var/lib/kafka", str(tmp_path))
        return changed.replace("9092", str(ports.client)).replace("9093", str(ports.controller))

    file = tmp_path / "pipeline.yaml"
    file.write_text(here(maps["clicks-skewless"]["pipeline.yaml"]))
    sets = [found["spec"]["template"]["spec"] for found in objects if found["kind"] == "StatefulSet"]
    steps = next(pod["initContainers"] for pod in sets if "initContainers" in pod)
    (check,) = [
        found["spec"]["containers"][0]
        for found in objects
        if found["kind"] == "Pod" and found["metadata"]["name"].endswith("-test-topics")
    ]
    with kafka(tmp_path, here(maps["clicks-skewless-kafka"]["server.properties"])):
        for step in [*steps, *steps]:  # one argument per stage, in any order
            applied = run(step, file)
        checked = run(check, file)
    topics = topology.needed_topics(load(file, {}))
    assert [line.split()[:2] for line in applied.splitlines()] == [["exists", f"clicks.{row.name}"] for row in topics]
    assert checked == f"all {len(topics)} topics of pipeline clicks are as configured\n"


def run(container: dict[str, Any], file: Path) -> str:
    """Run the command of a container with another file of the pipeline, in this process; returns its output."""
    environment = {each["name"]: each["value"] for each in container["env"]}
    arguments = [each.replace("/etc/skewless/pipeline.yaml", str(file)) for each in container["args"]]
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        ran = CliRunner().invoke(main, arguments, env=environment)
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout
