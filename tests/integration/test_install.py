"""The wheel, installed in an empty environment, contains all that the commands need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from helpers.docs_blocks import ROOT
from helpers.kafka import create_topics
from helpers.waiting import WAIT_S
from skewless.version import VERSION

pytestmark = [pytest.mark.broker, pytest.mark.thorough, pytest.mark.usefixtures("patient_commands")]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Install the wheel in a new environment that has the packages of this one, and return a function that runs it."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=300)
    packages = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    # A folder of a .pth file comes after the environment's own folder, and its .pth files are not read. So the packages
    # are found there, and this project, which is installed as editable, is not.
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python"), "install", "--quiet"]
    # Commands compile the modules that they import.
    pip += ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=300)

    def run(*arguments: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [folder / "venv" / "bin" / "skewless", *arguments],
            cwd=folder,
            env=environment | {"XDG_STATE_HOME": str(folder / "state")},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_wheel_in_an_empty_environment_is_that_version(installed: Run) -> None:
    assert installed("--version").split()[-1] == VERSION


def test_wheel_in_an_empty_environment_starts_a_broker_with_the_locked_jars_and_writes_a_pipeline_of_its_topic(
    installed: Run, tmp_path: Path
) -> None:
    broker = installed("broker", "start").strip()
    try:
        topic = "installed-clicks"
        create_topics(broker, {topic: 1})
        producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
        for number in range(1_000):
            value = {"item": "hot" if number % 2 else f"item-{number}", "time": 1_700_000_000_000 + number}
            producer.produce(topic, json.dumps(value))
        assert producer.flush(WAIT_S) == 0
        report = json.loads(installed("inspect", topic, "-b", broker, "--key", "item", "--json"))
        assert report["records"] == 1_000
        file = tmp_path / "pipeline.yaml"
        installed("init", topic, "-b", broker, "--yes", "-o", str(file))
        assert installed("config", "check", "-f", str(file))
    finally:
        installed("broker", "stop")
