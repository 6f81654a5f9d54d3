"""The Containerfile follows its rules, and each image gets the locked packages. These tests build no image."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.docs_blocks import ROOT
from helpers.source_files import assert_none, place

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
PACKAGES = (DEPLOY / "packages.sh").read_text()
LOCKS = ROOT / "requirements"
ENTRY_POINTS = {"slim": "skewless", "spark": "spark-entrypoint"}
FINAL = tuple(ENTRY_POINTS)


def stages() -> dict[str, tuple[str, str]]:
    """Name -> (base image, text)."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", CONTAINERFILE, flags=re.MULTILINE)[1:]
    return {name: (base, text) for base, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def inherited(name: str) -> str:
    """Text of a stage and of all stages that it is based on."""
    base, text = stages()[name]
    return (inherited(base) if base in stages() else "") + text


def pins(path: Path) -> dict[str, set[str]]:
    """Name, version and marker of each package of a lock -> its checksums."""
    found: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        if match := re.match(r"([a-z0-9-]+==[^\\]*?) *\\?$", line):
            name = match[1]
            found[name] = set()
        elif match := re.search(r"--hash=(sha256:[0-9a-f]{64})", line):
            found[name].add(match[1])
    return found


def test_containerfile_base_image_is_pinned_by_digest() -> None:
    (base,) = re.findall(r"^ARG PYTHON=(.+)$", CONTAINERFILE, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.11\S*@sha256:[0-9a-f]{64}", base)
    assert ":latest" not in CONTAINERFILE
    bases = {base for base, _ in stages().values()}
    assert bases <= {"${PYTHON}", *stages()}


def test_containerfile_default_target_is_slim() -> None:
    assert list(stages())[-1] == "slim"


@pytest.mark.parametrize("name", FINAL)
def test_image_of_each_target_runs_the_command_as_an_unprivileged_user(name: str) -> None:
    text = inherited(name)
    users = re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    assert users
    assert all(int(number) > 10_000 for number in users[-1])
    assert re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[-1] == f'["{ENTRY_POINTS[name]}"]'
    assert text.rindex("USER ") > text.rindex("COPY ")


@pytest.mark.parametrize("name", FINAL)
def test_image_of_each_target_has_labels_and_an_sbom(name: str) -> None:
    labels = set(re.findall(r"org\.opencontainers\.image\.([\w.]+)=", inherited(name)))
    assert labels >= {"title", "description", "licenses", "version", "revision", "base.name"}
    assert "/usr/share/doc/skewless/sbom.cdx.json" in stages()[name][1]


@pytest.mark.parametrize("name", FINAL)
def test_image_of_each_target_installs_packages_from_its_lock_only(name: str) -> None:
    assert f"COPY --from={name}-packages /opt/skewless /opt/skewless" in stages()[name][1]
    assert not re.search(r"^RUN.*\bpip\b(?!\*)", inherited(name), re.MULTILINE)
    lock = "run.txt" if name == "slim" else "spark.txt"
    assert f"RUN deploy/packages.sh locked requirements/{lock}" in stages()[f"{name}-packages"][1]
    assert "--require-hashes" in PACKAGES
    assert "--no-index" in PACKAGES


def test_image_spark_is_the_only_one_with_java_and_pyspark() -> None:
    assert "openjdk-17" in inherited("spark")
    assert "openjdk" not in inherited("slim")
    assert {name for name in pins(LOCKS / "spark.txt") if name.startswith("pyspark==")}
    assert not {name for name in pins(LOCKS / "run.txt") if name.startswith("pyspark==")}


@pytest.mark.parametrize(
    ("extra", "class_path"), [({}, "/spark/jars/*"), ({"SPARK_CLASSPATH": "/opt/x.jar"}, "/opt/x.jar:/spark/jars/*")]
)
def test_image_spark_executor_has_the_jars_of_the_extra_class_path(
    tmp_path: Path, extra: dict[str, str], class_path: str
) -> None:
    (tmp_path / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "java").chmod(0o755)
    script = (DEPLOY / "spark-entrypoint.sh").read_text()
    variables = dict.fromkeys(re.findall(r'"\$(SPARK_\w+)"', script), "1")
    own = {"SPARK_HOME": "/spark", "SPARK_LOCAL_DIRS": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", "-c", script, "spark-entrypoint", "executor"]
    arguments = subprocess.check_output(command, env=variables | own | extra, text=True, timeout=60).splitlines()
    assert arguments[arguments.index("-cp") + 1] == class_path


@pytest.mark.parametrize("name", ["run.txt", "spark.txt"])
def test_image_locks_equal_the_tested_lock(name: str) -> None:
    tested, packed = pins(LOCKS / "lock.txt"), pins(LOCKS / name)
    assert packed
    assert {pin: sums for pin, sums in packed.items() if tested.get(pin) != sums} == {}


def test_image_locks_have_a_checksum_for_every_package() -> None:
    assert [name for lock in LOCKS.glob("*.txt") for name, sums in pins(lock).items() if not sums] == []


def test_dockerignore_admits_the_copied_paths_only() -> None:
    ignore = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    assert ignore[0] == "*"
    copied = {
        path for line in re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE) for path in line.split()
    }
    assert {f"!{path}" for path in copied} == {line for line in ignore if line.startswith("!")}


def test_deploy_scripts_are_valid_shell_and_stop_at_errors() -> None:
    scripts = sorted([*DEPLOY.glob("*.sh"), *DEPLOY.glob("kubernetes/*.sh")])
    assert_none(f"{place(script, 1)}: {problem}" for script in scripts for problem in problems_of(script))


def problems_of(script: Path) -> Iterator[str]:
    ran = subprocess.run(["sh", "-n", script], check=False, capture_output=True, text=True)
    if ran.returncode:
        yield ran.stderr.strip()
    sourced = not script.stat().st_mode & 0o100
    if not sourced and "set -eu" not in script.read_text().splitlines()[:8]:
        yield "no set -eu in the first lines"
