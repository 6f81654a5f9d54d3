"""Configures the log of a process: JSON lines for machines, or readable text lines for people."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from pythonjsonlogger.json import JsonFormatter

from skewless import topology
from skewless.kafka.clients import LIBRDKAFKA
from skewless.monitoring.outage_filter import OutageFilter
from skewless.monitoring.settings import LogSettings

log = logging.getLogger("skewless")

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TEXT_OF_STAGES = "%(asctime)s %(levelname)s %(stage)s %(name)s: %(message)s"
"""Format of a process that runs several stages."""
ABOUT_BROKERS = (LIBRDKAFKA, "skewless.engine.consumer_loop")
"""Loggers that repeat their messages while a broker is unavailable."""
CHATTY = ("skewless.engine.app",)
"""Loggers to which Faust writes each start and stop of a service: it uses the module of the class, which is ours."""

_current_stage: ContextVar[str] = ContextVar("current_stage", default=topology.ALL_STAGES)


@contextmanager
def log_lines_of(stage: str) -> Iterator[None]:
    """Name this stage in the log lines of the block and of the tasks that it creates, if the process runs several."""
    token = _current_stage.set(stage)
    try:
        yield
    finally:
        _current_stage.reset(token)


class LineFormatter(JsonFormatter):
    """Formats a record as JSON: time (ISO 8601, UTC), level, logger and message, then `identity`, then `extra`."""

    def __init__(self, identity: Mapping[str, object]) -> None:
        super().__init__(
            ["asctime", "levelname", "name", "message"],
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "exception"},
            static_fields=dict(identity),
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's names
        """Return the time with milliseconds."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with the level in lower case, as in the setting."""
        return {**log_data, "level": log_data["level"].lower()}


def set_up(settings: LogSettings, identity: Mapping[str, object], stream: TextIO | None = None) -> None:
    """Configure logging to stderr or `stream`; `identity` holds pipeline, stage and instance.

    If the stage is ALL_STAGES, each line names its own stage. The loggers of Skewless use `log.level`. Libraries log
    from level warning on, at level debug everything.
    """
    stream = stream or sys.stderr
    as_text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    text = TEXT
    if identity["stage"] == topology.ALL_STAGES:
        text = TEXT_OF_STAGES
        handler.addFilter(_add_stage)
    handler.setFormatter(logging.Formatter(text) if as_text else LineFormatter(identity))
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    libraries = level if level == logging.DEBUG else max(level, logging.WARNING)
    logging.basicConfig(level=libraries, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    log.setLevel(level)
    for name in CHATTY:
        logging.getLogger(name).setLevel(libraries)
    outages = OutageFilter(logging.getLogger(LIBRDKAFKA))
    for name in ABOUT_BROKERS:
        logging.getLogger(name).filters[:] = [outages]


def _add_stage(record: logging.LogRecord) -> bool:
    record.stage = _current_stage.get()
    return True
