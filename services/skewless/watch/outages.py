"""Log lines of librdkafka: one when the connections to a broker begin to fail, and one when they no longer do.

librdkafka logs every failed connection of every client, some 20 a second while a broker is away.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

QUIET_S = 10.0
"""After this long without a line of a kind its next line is logged again. librdkafka tries each second or sooner."""
_LINE = re.compile(r"(?P<facility>[A-Z][A-Z_]+|consumer)(?: \[.*?\])*?: (?P<text>.*)", re.DOTALL)
_BROKER = re.compile(r"(?:^|//|: )((?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d+)(?=[/:])")
_COORDINATOR = re.compile(r"(GroupCoordinator|TxnCoordinator)\b")
_CAME_UP = re.compile(r"after (\d+)ms in state UP")
_SUPPRESSED = re.compile(r"(\d+) identical error\(s\) suppressed")
_CONNECTION = {"FAIL", "ERROR", "consumer"}
"""What begins a line about a connection, if the line names a broker; the last is our consumer's own report."""

Kind = tuple[str, str]
"""("connection", broker), or the facility and the text without its numbers."""


@dataclass(slots=True)
class _State:
    """What was logged of a kind since its last change."""

    first: float
    last: float
    level: int
    """Highest level that was logged."""
    lines: int = 1


class Outages:
    """Decides which lines are news. Pure: times are seconds since the epoch."""

    def __init__(self) -> None:
        self._states: dict[Kind, _State] = {}

    def is_news(self, line: str, level: int, now: float) -> bool:
        """Return whether a line is the first of its kind, the first at a higher level, or the first after a change."""
        found = _LINE.fullmatch(line)
        if found is None:
            return True
        kind, text = _kind(found["facility"], found["text"]), found["text"]
        state = self._states.get(kind)
        if state is None or now - state.last > QUIET_S or _came_up(text, now) > state.first:
            self._states[kind] = _State(now, now, level)
            return True
        repeated = _SUPPRESSED.search(text)
        state.lines += 1 + (int(repeated[1]) if repeated else 0)
        state.last = now
        higher, state.level = level > state.level, max(level, state.level)
        return higher

    def over(self, now: float) -> Iterator[str]:
        """Forget the kinds that are quiet, and yield a line for each broker whose connections had failed."""
        for kind, state in list(self._states.items()):
            if now - state.last <= QUIET_S:
                continue
            del self._states[kind]
            if kind[0] == "connection" and state.level >= logging.WARNING:
                lasted = state.last - state.first
                yield (
                    f"connections to {kind[1]} no longer fail: for {QUIET_S:g} s none did, after {lasted:.0f} s "
                    f"with {state.lines:,} failures"
                )

    @property
    def any(self) -> bool:
        """Whether a kind is not quiet yet."""
        return bool(self._states)


def _kind(facility: str, text: str) -> Kind:
    broker = _BROKER.search(text) or _COORDINATOR.match(text)
    if broker and facility in _CONNECTION:
        return "connection", broker[1]
    return facility, re.sub(r"\d+", "#", text)


def _came_up(text: str, now: float) -> float:
    """Return when the connection that is lost had been made; it was down before."""
    found = _CAME_UP.search(text)
    return now - int(found[1]) / 1000 if found else 0.0


class OutageFilter(logging.Filter):
    """Lets the news of librdkafka pass, and logs the end of an outage by itself."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log
        self._outages = Outages()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """See `Outages.is_news`."""
        with self._lock:
            news = self._outages.is_news(record.getMessage(), record.levelno, record.created)
            self._look_later()
        return news

    def look(self, now: float) -> None:
        """Log the outages that are over at `now`, and look again later if others are left."""
        with self._lock:
            self._timer = None
            over = list(self._outages.over(now))
            self._look_later()
        for line in over:
            self._log.info(line)

    def _look_later(self) -> None:
        if self._timer is None and self._outages.any:
            self._timer = threading.Timer(QUIET_S / 2, lambda: self.look(time.time()))
            self._timer.daemon = True
            self._timer.start()
