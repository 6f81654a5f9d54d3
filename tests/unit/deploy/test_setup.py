"""The script of `make setup`, with substitutes for the programs that it runs, and the cache folder of other scripts."""

from __future__ import annotations

import hashlib
import os
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


def test_scripts_with_a_relative_cache_folder_use_that_of_the_working_directory(tmp_path: Path) -> None:
    sources = ROOT / "deploy" / "chart-tools"
    files = ("go.mod", "go.sum", "score/go.mod", "score/go.sum")
    checksum = hashlib.sha256(b"".join((sources / name).read_bytes() for name in files)).hexdigest()
    tools = tmp_path / "cache" / f"chart-tools-{checksum[:16]}"
    tools.mkdir(parents=True)
    for name in ("kubeconform", "helm-docs", "kube-score", "helm", "helm-unittest"):
        (tools / name).touch(mode=0o755)
    for command, folder in {
        f"{ROOT}/deploy/chart-tools.sh --find": tools,
        f". {ROOT}/deploy/kubernetes/folders.sh && echo $CACHE": tmp_path / "cache" / "kubernetes",
    }.items():
        environment = os.environ | {"SKEWLESS_CACHE": "cache"}
        found = subprocess.check_output(["sh", "-c", command], cwd=tmp_path, env=environment, text=True, timeout=60)
        assert found == f"{folder}\n"
