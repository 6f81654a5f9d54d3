"""Watches the settings file of a pipeline while a stage runs.

Only a change of the number of workers (`router.workers`) takes effect. All others need a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from skewless.algorithms import grouping
from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.state_layout import schema_of_stage
from skewless.errors import ConfigurationError
from skewless.wire.state_schema import incompatibilities

log = logging.getLogger(__name__)

WORKERS = "router.workers"


class ConfigWatcher:
    """Reports changes of the number of workers in a settings file. `section` is that of the stage that runs."""

    def __init__(self, file: Path, environ: Mapping[str, str], settings: PipelineSettings, section: str) -> None:
        self._file = file
        self._environ = environ
        self._settings = settings
        self._section = section
        self._workers = settings.router.workers
        self._last_content: bytes | None = None
        self._loaded_content: bytes | None = None
        self._reported_changes: list[str] = []

    def poll(self) -> int | None:
        """Return the new number of workers, or None if it has not changed. Call it about once a second.

        Logs errors and other changes of the file once. A change is used when two calls in a row read the same content,
        so that a partly written file is ignored.
        """
        # The content is compared, not the modification time: a mounted ConfigMap changes by replacing a symbolic link.
        content = self._content()
        is_stable, self._last_content = content == self._last_content, content
        if not is_stable or content == self._loaded_content:
            return None
        self._loaded_content = content
        try:
            return self._apply(loader.load(self._file, self._environ))
        except Exception as error:  # noqa: BLE001 - an invalid file must not stop the watcher
            reason = error if isinstance(error, ConfigurationError) else repr(error)
            log.warning("the changed file is ignored, %s stays %d: %s", WORKERS, self._workers, reason)
            return None

    def _content(self) -> bytes:
        try:
            return self._file.read_bytes()
        except OSError:  # loading reports the error
            return b""

    def _apply(self, settings: PipelineSettings) -> int | None:
        if settings.worker_input.max_workers is None:  # then it is that of the topic, as it was at the start
            settings = settings.with_max_workers(self._settings.worker_input.max_workers)
        changes = _changed_paths("", self._settings.model_dump(), settings.model_dump())
        other_changes = [path for path in changes if path != WORKERS]
        if other_changes and other_changes != self._reported_changes:
            log.warning("%s: takes effect after a restart: %s", self._file, ", ".join(other_changes))
            before, after = (schema_of_stage(each, self._section) for each in (self._settings, settings))
            if lines := list(incompatibilities(before, after)):
                log.warning(
                    "%s: incompatible with existing state, a restart will fail: %s", self._file, "; ".join(lines)
                )
        self._reported_changes = other_changes
        previous, workers = self._workers, settings.router.workers
        max_workers = self._settings.worker_input.partitions
        if workers > max_workers:
            raise ConfigurationError(
                f"{self._file}: {WORKERS}: {workers} is more than worker-input's {max_workers} partitions"
            )
        # The limit follows from the settings of this process, because other changes take effect after a restart.
        running = self._settings.router
        if problem := grouping.GROUPINGS[running.grouping].excess(workers, running):
            raise ConfigurationError(f"{self._file}: {WORKERS}: {problem}, and restart the pipeline")
        self._workers = workers
        if workers == previous:
            return None
        log.info("%s: %s is %d now, was %d", self._file, WORKERS, workers, previous)
        return workers


def _changed_paths(prefix: str, previous: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of all settings that differ."""
    for name in {**previous, **current}:
        old, new = previous.get(name), current.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changed_paths(f"{prefix}{name}.", old, new)
        elif old != new:
            yield prefix + name
