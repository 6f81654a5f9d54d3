"""Fixtures: Helm and the tools that check rendered manifests. They need no cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.docs_blocks import ROOT
from helpers.tools import unavailable
from helpers.versions import VERSIONS

CHART = ROOT / "helm" / "skewless"
VERSION = VERSIONS["kubernetes"]
"""Version of the cluster for a Helm that is built from source, which otherwise assumes a very old one."""

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


class StrictLoader(yaml.CSafeLoader):
    """YAML loader that refuses duplicate keys, as Flux and the API server's strict validation do."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: {sorted(key for key in keys if keys.count(key) > 1)}"
        return super().construct_mapping(node, deep)


@pytest.fixture(scope="session")
def tools() -> Path:
    """Return the folder of the tools. `make chart-tools` builds them, because the build takes minutes."""
    script = ROOT / "deploy" / "chart-tools.sh"
    found = subprocess.run([script, "--find"], capture_output=True, text=True, check=False, timeout=60)
    return Path(found.stdout.strip()) if found.returncode == 0 else unavailable(found.stderr.strip())


@pytest.fixture(scope="session")
def helm(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run Helm with a separate home folder; fails with Helm's error message."""
    home = tmp_path_factory.mktemp("home")

    def run(*arguments: str | Path, fails: bool = False) -> str:
        ran = subprocess.run(
            [tools / "helm", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={"HOME": str(home), "PATH": "/usr/bin:/bin", "GOGC": "400"},  # collects garbage less often
        )
        assert (ran.returncode != 0) == fails, ran.stdout + ran.stderr
        return ran.stderr if fails else ran.stdout

    return run


@pytest.fixture(scope="session")
def render(helm: Callable[..., str]) -> Render:
    """Render the chart, or a copy of it, with a values file and single values."""

    def objects(values: Path, *settings: str, chart: Path = CHART, release: str = "clicks") -> Objects:
        single = [part for setting in settings for part in ("--set", setting)]
        text = helm("template", release, chart, "--kube-version", VERSION, "--values", values, *single)
        return [found for found in yaml.load_all(text, Loader=StrictLoader) if found]

    return objects
