"""What can go wrong, by who has to act.

SkewlessError
├── ConfigurationError      wrong use or settings: the user changes a file, a flag or the environment (exit 2)
├── CheckFailedError        a check that the user asked for found a difference (exit 1)
├── UnreachableError        a broker or store did not answer in time (exit 3)
│   └── BrokerError         the broker answered, and what it said cannot be retried (exit 3)
├── JobFailedError          a job began, and the engine that runs it could not finish it (exit 3)
├── LimitError              state or a commit is larger than a setting allows (exit 3)
├── FencedError             another process took over this one's identity (exit 3)
├── CrashedError            a process of a pipeline crashed again and again (exit 70)
└── BadRecordError          one record of the input cannot be read: it goes to dead-letters, never up
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

BUG = 70
"""Exit code of an uncaught exception (EX_SOFTWARE of sysexits.h), so that 1 only means that a check failed."""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that does not exist: the closest known name, and all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f", did you mean {close[0]}?" if close else ""
    return f"unknown {what} {name}{hint} (known: {', '.join(names)})"


class SkewlessError(Exception):
    """Root of the tree, never raised itself; `exit_code` is what a command returns when it ends with the error."""

    exit_code = BUG


class ConfigurationError(SkewlessError):
    """The settings or the command line are wrong; `problems` lists every mistake, each with its path."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class CheckFailedError(SkewlessError):
    """A check ran to its end and found a difference."""

    exit_code = 1


class UnreachableError(SkewlessError):
    """A broker or store did not answer within its time limit."""

    exit_code = 3


class BrokerError(UnreachableError):
    """The broker refused an operation for good: a missing topic, a missing permission, a lost partition."""


class JobFailedError(SkewlessError):
    """A job began and could not be finished: no memory, no disk, an executor lost. The data may still be right."""

    exit_code = 3


class LimitError(SkewlessError):
    """What a process must hold or commit is more than a setting allows, so it ends before its memory or time does.

    Nothing of it was committed. A restart reads the same records again: first raise the limit, or share the work.
    """

    exit_code = 3


class FencedError(SkewlessError):
    """Another process runs under the same transactional id or group instance id.

    Both would fence each other for ever, so this one stops: give each process its own `instance` number.
    """

    exit_code = 3


class CrashedError(SkewlessError):
    """A process of a pipeline crashed again and again, or an uncaught exception ended it; see its log."""

    exit_code = BUG


class BadRecordError(SkewlessError):
    """One record cannot be turned into tuples; `reason` is a short phrase without any of its payload."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
