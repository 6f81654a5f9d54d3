"""The pipeline's file, read again while a stage runs: W (`router.workers`) is followed, the rest needs a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from skewless import config
from skewless.algorithms import grouping
from skewless.errors import ConfigurationError
from skewless.settings import PipelineSettings
from skewless.shape import differences, shape_of

log = logging.getLogger(__name__)

WORKERS = "router.workers"


class Live:
    """Compares the file's content, not its time stamp: a mounted ConfigMap changes by a link that is swapped."""

    def __init__(self, file: Path, environ: Mapping[str, str], settings: PipelineSettings) -> None:
        self._file = file
        self._environ = environ
        self._settings = settings
        self._workers = settings.router.workers
        self._seen: bytes | None = None
        self._read: bytes | None = None
        self._told: list[str] = []

    def poll(self) -> int | None:
        """Return the new W when it has changed. Call it about once a second.

        What is wrong with the file, and what else has changed, goes to the log once. A content counts when two calls
        have seen it, so that a file that is being written is not taken for the whole.
        """
        content = self._content()
        settled, self._seen = content == self._seen, content
        if not settled or content == self._read:
            return None
        self._read = content
        try:
            return self._take(config.load(self._file, self._environ))
        except Exception as error:  # noqa: BLE001 - whatever is in the file, who follows it must not end of it
            what = error if isinstance(error, ConfigurationError) else repr(error)
            log.warning("the changed file is not followed, %s stays %d: %s", WORKERS, self._workers, what)
            return None

    def _content(self) -> bytes:
        try:
            return self._file.read_bytes()
        except OSError:  # loading will say so
            return b""

    def _take(self, settings: PipelineSettings) -> int | None:
        others = [path for path in _changed("", self._settings.model_dump(), settings.model_dump()) if path != WORKERS]
        if others and others != self._told:
            log.warning("%s: takes effect after a restart: %s", self._file, ", ".join(others))
            if fixed := "; ".join(differences(shape_of(self._settings), shape_of(settings))):
                log.warning("%s: cannot change over existing state, a restart will be refused: %s", self._file, fixed)
        self._told = others
        before, wanted, most = self._workers, settings.router.workers, self._settings.worker_input.max_workers
        if wanted > most:
            raise ConfigurationError(f"{self._file}: {WORKERS}: {wanted} is more than worker-input's {most} partitions")
        # By the settings that this process runs with: what else is in the file takes effect after a restart.
        running = self._settings.router
        if problem := grouping.GROUPINGS[running.grouping].excess(wanted, running):
            raise ConfigurationError(f"{self._file}: {WORKERS}: {problem}, and restart the pipeline")
        self._workers = wanted
        if wanted == before:
            return None
        log.info("%s: %s is %d now, was %d", self._file, WORKERS, wanted, before)
        return wanted


def _changed(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Paths of all settings that differ."""
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changed(f"{path}{name}.", old, new)
        elif old != new:
            yield path + name
