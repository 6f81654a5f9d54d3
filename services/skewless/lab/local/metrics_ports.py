"""Publishes the metrics ports of the processes of `skewless up`, for commands of the same user on this machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from skewless.config.pipeline_settings import PipelineSettings
from skewless.lab.local.folders import state_folder


@contextlib.contextmanager
def published(settings: PipelineSettings, ports: Mapping[str, int]) -> Iterator[None]:
    """Publish the ports of a pipeline's processes, such as `router-0`, until the end of the block."""
    file = _file(settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"bootstrap_servers": settings.kafka.bootstrap_servers, "ports": dict(ports)}))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def read(settings: PipelineSettings) -> Mapping[str, int]:
    """Return the published ports of a pipeline. The processes may have ended without taking them back."""
    try:
        found = json.loads(_file(settings).read_text())
        of_cluster = found["bootstrap_servers"] == settings.kafka.bootstrap_servers
        return {str(name): int(port) for name, port in found["ports"].items()} if of_cluster else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _file(settings: PipelineSettings) -> Path:
    return state_folder() / "up" / f"{settings.full_name}.json"
