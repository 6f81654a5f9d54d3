"""A driver in a pod starts executors with exactly the requests that the Role of the chart permits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import spark_archive
from helpers.docs_blocks import ROOT
from helpers.kubernetes_api import Request, kubernetes_api
from helpers.spark_archive import HOME

pytestmark = [pytest.mark.thorough, pytest.mark.spark]

TEMPLATES = ROOT / "helm" / "skewless" / "templates"


def permitted() -> set[Request]:
    """Return the rules of the Role."""
    text = (TEMPLATES / "spark-kubernetes.yaml").read_text()
    block = re.search(r"^rules:\n(?:  .*\n)+", text, re.MULTILINE)
    assert block is not None
    rules = yaml.safe_load(block[0])["rules"]
    return {Request(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def options(executor: Path) -> list[str]:
    """Return the options of the chart for a driver in a pod, with the values of this machine."""
    values = {
        "$(POD_IP)": "127.0.0.1",
        "bindAddress=0.0.0.0": "bindAddress=127.0.0.1",
        "$(POD_NAME)": "driver",
        "/etc/spark/executor.yaml": str(executor),
        "{{ .Release.Namespace }}": "default",
        "{{ .Values.spark.image.pullPolicy }}": "Never",
    }
    text = (TEMPLATES / "_pod.tpl").read_text()
    found = re.findall(r"^- (--conf=.*)$", text, re.MULTILINE)
    assert len(found) > 5
    for name, value in values.items():
        found = [option.replace(name, value) for option in found]
    # The ports are free on a pod of its own only.
    return [re.sub(r"{{.*}}", "spark", option) for option in found if ".port=" not in option.lower()]


def test_driver_in_a_pod_replaces_a_failed_executor_with_the_requests_of_the_role_alone(tmp_path: Path) -> None:
    (tmp_path / "executor.yaml").write_text("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: executor\n")
    splitter = {"format": {"name": "csv", "columns": ["k", "t"]}, "key": {"field": "k"}, "time": {"field": "t"}}
    pipeline: dict[str, Any] = {"name": "p", "source": {"topic": "absent"}, "splitter": splitter}
    (tmp_path / "pipeline.yaml").write_text(json.dumps(pipeline))
    (tmp_path / "lines.csv").write_text("a,1767225600000\n" * 5)
    (tmp_path / "pods").mkdir()
    command = [sys.executable, "-m", "skewless", "batch", "-f", "pipeline.yaml", "--input", "lines.csv", "--json"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with kubernetes_api(tmp_path / "pods", HOME) as (master, api):
        command += ["--master", master, "--out", "out", *options(tmp_path / "executor.yaml")]
        command += spark_archive.conf(
            "spark.kubernetes.executor.apiPollingInterval=1s",
            "spark.executor.instances=1",
            f"spark.executor.extraJavaOptions={spark_archive.options()}",
        )
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["tuples"], report["results"]) == (5, 1)
        assert len(api.pods) > 1
        containers = [api.objects["pods", name]["spec"]["containers"][0] for name in api.pods]
        assert all("_SPARK_AUTH_SECRET" in {each["name"] for each in container["env"]} for container in containers)
        assert api.requests == permitted()
