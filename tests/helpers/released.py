"""Released versions of the package, from the history of this clone."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path

import pytest

from skewless.lab.local.folders import cache_folder, file_lock

CLONE = Path(__file__).parents[2]
COMMITS = {
    "0.2.0": "45a62fde67d74158eb69c9705ad4d9548ad18f55",
    "0.5.0": "380b03cffef895dee6204162b76fdbc8cae115c0",
}
"""Commit of each version. Not every clone has the tags."""


def package_of(version: str) -> Path:
    """Return the path to import the package of a version from, in the cache of this machine.

    It keeps what Python and Numba have compiled, which costs as much CPU time as the processes of a test. Skips the
    test if the clone does not have the commit.
    """
    if version == "0.2.0":  # it imports a package that has no wheel for Python 3.14
        pytest.importorskip("datasketches", reason=f"version {version} does not run on this Python")
    folder = cache_folder() / f"released-{COMMITS[version][:12]}"
    with file_lock(cache_folder() / "released.lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".released-") as temporary:
                written = Path(temporary) / "package"
                _write(version, written)
                written.rename(folder)
    return folder / "services"


def _write(version: str, folder: Path) -> None:
    commit = COMMITS[version]
    archive = subprocess.run(
        ["git", "-C", str(CLONE), "archive", commit, "services", "pyproject.toml"],
        check=False,
        capture_output=True,
    )
    if archive.returncode:
        pytest.skip(f"no commit {commit} of version {version} in {CLONE}: run `git fetch --unshallow` there")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    # As an installation does. In 0.2.0, Faust finds the transport by its entry point.
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = folder / "services" / f"skewless-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: skewless\nVersion: {version}\n", encoding="utf-8")
    groups = (
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())])
        for group, entries in project.get("entry-points", {}).items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(groups) + "\n", encoding="utf-8")
