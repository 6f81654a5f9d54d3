"""`make release` builds what is published, from a clean commit only, and pushes the chart to any registry."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from helpers.docs_blocks import ROOT
from helpers.oci_registry import registry

VERSION = "9.8.7"
CHANGED = ("services/skewless/version.py", "helm/skewless/Chart.yaml", "CHANGELOG.md")


def git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=clone, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def commit(clone: Path) -> None:
    git(clone, "-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "--all", "--message", "release")


@pytest.fixture
def clone(tools: Path, tmp_path: Path) -> Path:
    """Clone the project, with the files of the working tree, and set the next version in its three files."""
    clone = tmp_path / "clone"
    git(ROOT, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
    for name in git(ROOT, "ls-files", "--modified", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes((ROOT / name).read_bytes())
            (clone / name).chmod((ROOT / name).stat().st_mode)
    git(clone, "add", "--all")
    (clone / ".venv").symlink_to(Path(sys.prefix))
    module, chart, changelog = (clone / name for name in CHANGED)
    module.write_text(re.sub(r'(?m)^VERSION = ".*"$', f'VERSION = "{VERSION}"', module.read_text()))
    chart.write_text(re.sub(r"(?m)^(version|appVersion): .*$", rf"\1: {VERSION}", chart.read_text()))
    changelog.write_text(re.sub(r"(?m)^## .*$", f"## {VERSION} (2031-02-03)", changelog.read_text(), count=1))
    commit(clone)
    return clone


def release(clone: Path, *, fails: bool = False, **environment: str) -> str:
    """Run the script of `make release`; returns what it prints."""
    env = {**os.environ, "GIT_AUTHOR_NAME": "test", "GIT_AUTHOR_EMAIL": "test@example.org", **environment}
    env |= {"GIT_COMMITTER_NAME": "test", "GIT_COMMITTER_EMAIL": "test@example.org"}
    done = subprocess.run(
        ["deploy/release.sh"], cwd=clone, env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == (2 if fails else 0), done.stdout + done.stderr
    return done.stderr


@pytest.mark.thorough
def test_release_of_a_clean_commit_has_wheel_source_chart_checksums_and_tag(clone: Path) -> None:
    release(clone)
    dist = clone / "dist"
    names = {f"skewless-{VERSION}-py3-none-any.whl", f"skewless-{VERSION}.tar.gz", f"skewless-{VERSION}.tgz"}
    sums = dict(line.split("  ")[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert {path.name for path in dist.iterdir()} == names | {"SHA256SUMS"}
    assert sums == {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in names}
    assert git(clone, "rev-parse", f"{VERSION}^{{commit}}") == git(clone, "rev-parse", "HEAD")
    with tarfile.open(dist / f"skewless-{VERSION}.tgz") as chart:
        assert {"skewless/values.schema.json", "skewless/templates/NOTES.txt"} <= set(chart.getnames())
    with zipfile.ZipFile(dist / f"skewless-{VERSION}-py3-none-any.whl") as wheel:
        assert not [name for name in wheel.namelist() if not name.startswith(("skewless/", f"skewless-{VERSION}."))]
    before = (dist / "SHA256SUMS").read_text()
    release(clone)
    after = (dist / "SHA256SUMS").read_text()
    assert [line for line in after.splitlines() if ".tgz" not in line] == [
        line for line in before.splitlines() if ".tgz" not in line
    ], "the wheel and the source distribution of one commit are equal; a chart's archive has the time of packaging"


def test_release_with_a_homepage_has_it_in_the_chart_and_not_in_the_working_tree(clone: Path) -> None:
    release(clone, HOMEPAGE="https://example.org/skewless")
    with tarfile.open(clone / "dist" / f"skewless-{VERSION}.tgz") as chart:
        described = chart.extractfile("skewless/Chart.yaml")
        assert described is not None
        fields = yaml.safe_load(described.read())
    assert (fields["home"], fields["sources"]) == ("https://example.org/skewless", ["https://example.org/skewless"])
    assert git(clone, "status", "--porcelain") == ""


@pytest.mark.thorough
def test_release_pushes_the_chart_to_the_given_registry(clone: Path) -> None:
    with registry() as server:
        release(clone, REGISTRY=f"{server.address}/team", IMAGES="no", HELM_PUSH_OPTIONS="--plain-http")
        archive = (clone / "dist" / f"skewless-{VERSION}.tgz").read_bytes()
        # The slim image is team/skewless:VERSION.
        assert archive in server.layers(f"team/charts/skewless:{VERSION}")


def test_release_without_a_container_engine_names_what_to_install(clone: Path) -> None:
    printed = release(clone, fails=True, REGISTRY="registry.example.org", PATH=_without_engines(clone.parent))
    assert "the images need podman or docker" in printed
    assert not (clone / "dist").exists()
    assert git(clone, "tag", "--list", VERSION) == ""


def _without_engines(folder: Path) -> str:
    """Make a folder with links to all programs of PATH but podman and docker."""
    programs = folder / "programs"
    programs.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            link = programs / program.name
            if program.name not in ("podman", "docker") and not link.is_symlink():
                link.symlink_to(program)
    return str(programs)


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "printed"),
    [
        ("helm/skewless/Chart.yaml", r"(?m)^appVersion: .*$", "appVersion: 1.2.3", "appVersion is 1.2.3, but"),
        ("CHANGELOG.md", rf"(?m)^## {VERSION} .*$", f"## {VERSION} (not released yet)", f"no heading '## {VERSION} ("),
    ],
)
def test_release_of_a_commit_with_another_version_is_refused(
    clone: Path, name: str, pattern: str, replacement: str, printed: str
) -> None:
    path = clone / name
    path.write_text(re.sub(pattern, replacement, path.read_text()))
    commit(clone)
    assert printed in release(clone, fails=True)


def test_release_with_uncommitted_changes_is_refused(clone: Path) -> None:
    (clone / "README.md").write_text("changed")
    assert "the working tree has changes" in release(clone, fails=True)


@pytest.mark.thorough
def test_release_of_a_version_that_another_commit_has_is_refused(clone: Path) -> None:
    release(clone)
    (clone / "README.md").write_text("changed")
    commit(clone)
    assert f"tag {VERSION} is at another commit" in release(clone, fails=True)
