"""The workflow of a public CI and the hooks of pre-commit run what the Makefile and the lock have."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from helpers.databases import MariadbServer
from helpers.docs_blocks import ROOT
from helpers.versions import VERSIONS

WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())


def commands(job: str) -> list[str]:
    return [step["run"] for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


def test_workflow_commands_are_targets_of_the_makefile_or_the_script_of_ci() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    words = [command.split() for job in WORKFLOW["jobs"] for command in commands(job)]
    assert {word for program, *names in words if program == "make" for word in names} <= targets
    assert {program for program, *_ in words if program != "make"} == {"sudo", ".ci/run"}


def test_workflow_installs_what_tests_need_before_they_run() -> None:
    assert {"kcat", "prometheus", *MariadbServer.packages} == set(WORKFLOW["env"]["PACKAGES"].split())
    for job in WORKFLOW["jobs"]:
        assert commands(job)[0].endswith(" $PACKAGES")
    assert "make setup chart-tools" in commands("test")  # the target of `make test` builds none


def test_workflow_runs_every_python_version_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: 3."
    versions = [f"3.{line.removeprefix(prefix)}" for line in project["classifiers"] if line.startswith(prefix)]
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == versions
    assert versions[0] == VERSIONS["python"]


def test_workflow_java_is_the_oldest_supported() -> None:
    settings = [step["with"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "with" in step]
    assert {entry["java-version"] for entry in settings if "java-version" in entry} == {VERSIONS["java"]}


def test_hooks_run_programs_of_the_lock() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"].split()[0] for repo in hooks for hook in repo["hooks"]]
    locked = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/lock.txt").read_text(), re.MULTILINE)
    assert entries
    assert {entry.removeprefix(".venv/bin/") for entry in entries} <= set(locked)
