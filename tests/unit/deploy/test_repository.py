"""The repository contains what people write, and nothing that a command or a test has written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from helpers.docs_blocks import ROOT
from helpers.source_files import assert_none

FOLDERS = {".ci", ".github", "dashboards", "deploy", "docs", "helm", "requirements", "services", "tests"}
MAX_BYTES = 400_000
"""Above the largest picture and lock."""


def offenders() -> Iterator[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for path in filter(None, listed.stdout.decode().split("\0")):
        folder, is_in_folder, _ = path.partition("/")
        if is_in_folder and folder not in FOLDERS:
            yield f"{path}: the repository has no folder {folder}"
        if (ROOT / path).is_file() and (ROOT / path).stat().st_size > MAX_BYTES:
            yield f"{path}: more than {MAX_BYTES:,} bytes"


def test_repository_contains_no_output_of_a_command() -> None:
    assert_none(offenders())
