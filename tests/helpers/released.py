"""Released versions of the package, from the history of this clone."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[2]
COMMITS = {"0.2.0": "45a62fde67d74158eb69c9705ad4d9548ad18f55"}
"""Commit of each version. Not every clone has the tags."""


def package_of(version: str, folder: Path) -> Path:
    """Write the package of a version to a folder, and return the path to import it from.

    Skips the test if the clone does not have the commit.
    """
    commit = COMMITS[version]
    archive = subprocess.run(
        ["git", "-C", str(CLONE), "archive", commit, "services"],
        check=False,
        capture_output=True,
    )
    if archive.returncode:
        pytest.skip(f"no commit {commit} of version {version} in {CLONE}: run `git fetch --unshallow` there")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "services"
