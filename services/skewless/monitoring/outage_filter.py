"""Log filter for librdkafka: one line when the connections to a broker start to fail, one per minute, one at the end.

librdkafka logs every failed connection of every client, about 20 per second while a broker is unavailable.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

QUIET_S = 40.0
"""Time without a line of a kind after which the next one is logged. While a broker is unavailable, librdkafka logs the
same error of a connection every 30 s, although it reconnects at least once per second."""
CHECK_S = 5.0
"""Maximum time after which the state of the outages is checked."""
REPORT_S = 60.0
"""Minimum time from a line to a failure that is logged in the same outage."""
_LINE = re.compile(r"(?P<facility>[A-Z][A-Z_]+|consumer)(?: \[.*?\])*?: (?P<text>.*)", re.DOTALL)
_BROKER = re.compile(r"(?:^|//|: )((?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d+)(?=[/:])")
_COORDINATOR = re.compile(r"(GroupCoordinator|TxnCoordinator)\b")
_TIME_UP = re.compile(r"after (\d+)ms in state UP")
_SUPPRESSED = re.compile(r"(\d+) identical error\(s\) suppressed")
_CONNECTION = {"FAIL", "ERROR", "consumer"}
"""Facilities of lines about a connection, if the line names a broker. `consumer` is the report of our own consumer."""

Kind = tuple[str, str]
"""("connection", broker), or the facility and the text with its numbers replaced."""


@dataclass(slots=True)
class _State:
    """Lines of one kind since its first line, which was logged."""

    first: float
    last: float
    level: int
    """Highest level so far."""
    lines: int = 1
    reported: float = 0.0
    """Time of the last line that was logged."""


class Outages:
    """Decides which lines to log. Pure: times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._states: dict[Kind, _State] = {}

    def is_news(self, line: str, level: int, now: float) -> bool:
        """Return whether a line is the first of its kind, the first at a higher level, or follows a recovery."""
        match = _LINE.fullmatch(line)
        if match is None:
            return True
        kind, text = _kind(match["facility"], match["text"]), match["text"]
        state = self._states.get(kind)
        if state is None or now - state.last > QUIET_S or _connected_at(text, now) > state.first:
            self._states[kind] = _State(now, now, level, reported=now)
            return True
        suppressed = _SUPPRESSED.search(text)
        state.lines += 1 + (int(suppressed[1]) if suppressed else 0)
        state.last = now
        is_higher, state.level = level > state.level, max(level, state.level)
        return is_higher

    def reports(self, now: float) -> Iterator[tuple[int, str]]:
        """Yield level and message for each broker whose connections no longer fail, or have failed for another minute.

        Removes the kinds without recent lines.
        """
        for kind, state in list(self._states.items()):
            has_ended = now - state.last > QUIET_S
            if has_ended:
                del self._states[kind]
            if kind[0] != "connection" or state.level < logging.WARNING:
                continue
            failures = f"{state.lines:,} failures in {state.last - state.first:.0f} s"
            if has_ended:
                yield (
                    logging.INFO,
                    f"connections to {kind[1]} no longer fail: no failure for {QUIET_S:g} s, after {failures}",
                )
            elif state.last - state.reported >= REPORT_S:
                state.reported = now
                yield logging.WARNING, f"connections to {kind[1]} still fail: {failures}"

    @property
    def has_active(self) -> bool:
        """Whether a kind has not expired yet."""
        return bool(self._states)


def _kind(facility: str, text: str) -> Kind:
    broker = _BROKER.search(text) or _COORDINATOR.match(text)
    if broker and facility in _CONNECTION:
        return "connection", broker[1]
    return facility, re.sub(r"\d+", "#", text)


def _connected_at(text: str, now: float) -> float:
    """Return when the lost connection was established; 0 if the line does not report it."""
    match = _TIME_UP.search(text)
    return now - int(match[1]) / 1000 if match else 0.0


class OutageFilter(logging.Filter):
    """Drops repeated lines of librdkafka, and logs the duration of an outage every minute and at its end."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log
        self._outages = Outages()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return `Outages.is_news` of the record."""
        with self._lock:
            is_news = self._outages.is_news(record.getMessage(), record.levelno, time.monotonic())
            self._start_timer()
        return is_news

    def log_reports(self, now: float) -> None:
        """Log `Outages.reports`, and again later if some outages have not ended."""
        with self._lock:
            self._timer = None
            reports = list(self._outages.reports(now))
            self._start_timer()
        for level, message in reports:
            self._log.log(level, message)

    def _start_timer(self) -> None:
        if self._timer is None and self._outages.has_active:
            self._timer = threading.Timer(min(CHECK_S, QUIET_S / 2), lambda: self.log_reports(time.monotonic()))
            self._timer.daemon = True
            self._timer.start()
