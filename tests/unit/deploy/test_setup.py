"""The script of `make setup`, with substitutes for the programs that it runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from helpers.docs_blocks import ROOT

PROGRAMS = {"python3": 'case "$*" in *venv*) exit 1 ;; esac', "apt-get": '[ "$1" = update ]', "id": "echo 0"}


def test_setup_without_venv_module_that_apt_get_cannot_install_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    script = shutil.copy(ROOT / "deploy" / "setup.sh", tmp_path / "deploy")
    for name, line in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ran = subprocess.run([script], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2
    assert "python3 cannot create a virtual environment: install its venv module" in ran.stderr
