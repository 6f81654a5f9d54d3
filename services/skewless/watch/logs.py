"""How a stage logs: one JSON object per line for machines, one readable line for people."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from pythonjsonlogger.json import JsonFormatter

from skewless.settings import LogSettings
from skewless.watch.outages import OutageFilter

log = logging.getLogger("skewless")

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LIBRDKAFKA = "skewless.librdkafka"
ABOUT_BROKERS = (LIBRDKAFKA, "skewless.transport.consumer")
"""Loggers that repeat themselves while a broker is away."""
CHATTY = ("skewless.transport.app", "skewless.transport.driver")
"""Faust tells of its services' every start and stop under the name of the class, which is ours."""


class LineFormatter(JsonFormatter):
    """Fields time (ISO 8601, UTC), level, logger and message, then who logs, then what is given as `extra`."""

    def __init__(self, who: Mapping[str, object]) -> None:
        super().__init__(
            ["asctime", "levelname", "name", "message"],
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "exception"},
            static_fields=dict(who),
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's names
        """Write the time to the millisecond."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Write the level as the setting spells it."""
        return {**log_data, "level": log_data["level"].lower()}


def set_up(settings: LogSettings, who: Mapping[str, object], stream: TextIO | None = None) -> None:
    """Log to stderr, or `stream`; `who` names pipeline, stage and instance.

    Our own loggers follow `log.level`; libraries speak from warnings on, and as we do at level debug.
    """
    stream = stream or sys.stderr
    as_text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(TEXT) if as_text else LineFormatter(who))
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
