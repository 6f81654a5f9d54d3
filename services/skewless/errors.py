"""Exceptions, grouped by who has to act.

SkewlessError
├── ConfigurationError      invalid usage or settings: the user changes a file, a flag or the environment (exit 2)
├── CheckFailedError        a check that the user requested found a difference (exit 1)
├── UnreachableError        a broker or store did not respond in time (exit 3)
├── BrokerError             the broker responded, and refused an operation permanently (exit 3)
├── StoreError              the database responded, and refused an operation permanently (exit 3)
├── RegistryError           the schema registry responded, and refused an operation permanently (exit 3)
├── JobFailedError          a job started, and its engine could not finish it (exit 3)
├── LimitError              state or a commit exceeds a limit of the settings (exit 3)
├── FencedError             another process uses the same identity (exit 3)
├── CrashedError            a process of a pipeline crashed repeatedly, or a task of a Spark job did (exit 70)
└── RecoverableError        the process recovers by itself and continues
    ├── UnavailableError        a broker, database or registry did not answer an attempt, which is repeated
    ├── UnknownSchemaError      the schema registry has no such schema: its records are written to dead-letters
    ├── TransactionAbortedError what was sent since the last commit is lost: it is sent again
    └── BadRecordError      an input record cannot be parsed: it is written to dead-letters
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

BUG = 70
"""Exit code of an uncaught exception (EX_SOFTWARE of sysexits.h), so that 1 always means a failed check."""


def unknown(kind: str, name: str, known_names: Iterable[str]) -> str:
    """Return the message for a name that does not exist, with the closest known name and a list of all."""
    names = sorted(known_names)
    closest = difflib.get_close_matches(name, names, n=1)
    hint = f", did you mean {closest[0]}?" if closest else ""
    return f"unknown {kind} {name}{hint} (known: {', '.join(names)})"


def how_to_add(extra: str) -> str:
    """Return the remedy for packages that are missing: the extra that has them."""
    return f"install Skewless with its extra `{extra}` (docs/how-to/install.md)"


class SkewlessError(Exception):
    """Base class of all errors, never raised itself. A command that ends with the error returns `exit_code`."""

    exit_code = BUG


class ConfigurationError(SkewlessError):
    """The settings or the command line are invalid. `problems` lists every mistake with its path.

    Correct the settings: a restart without a change fails again.
    """

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class CheckFailedError(SkewlessError):
    """A check completed and found a difference, or had nothing to compare. The report of the check has the details."""

    exit_code = 1


class UnreachableError(SkewlessError):
    """A broker or store did not respond within its time limit.

    Check that it runs, its address, and the network. The same operation may succeed later.
    """

    exit_code = 3


class BrokerError(SkewlessError):
    """The broker refused an operation permanently: a missing topic, a missing permission, a lost partition.

    The message names the remedy. The same operation fails again until the broker or the settings change.
    """

    exit_code = 3


class StoreError(SkewlessError):
    """The database refused an operation permanently: a missing table, a missing right, rows of another pipeline.

    The message has the server's own words and the remedy. The same operation fails again until the database or the
    settings change.
    """

    exit_code = 3


class RegistryError(SkewlessError):
    """The schema registry refused an operation permanently: a wrong login, a missing right, an incompatible schema.

    The message names the remedy. The same operation fails again until the registry or the settings change.
    """

    exit_code = 3


class JobFailedError(SkewlessError):
    """A job started and could not finish: no memory, no disk space, a lost executor.

    The data may still be correct. Give the job what it lacked, and run it again.
    """

    exit_code = 3


class LimitError(SkewlessError):
    """State or a commit exceeds a limit of the settings, so the process exits before it runs out of memory or time.

    Nothing was committed. A restart reads the same records again: first raise the limit, or add processes.
    """

    exit_code = 3


class FencedError(SkewlessError):
    """Another process has the same group instance id: it has joined the consumer group, or ran before this one started.

    The two would fence each other repeatedly, so this process exits: give each process its own `instance` number.
    """

    exit_code = 3


class CrashedError(SkewlessError):
    """A process of a pipeline crashed repeatedly, or it or a task of a Spark job ended with an uncaught exception.

    Its log has the details. Report an uncaught exception to the maintainers.
    """

    exit_code = BUG


class RecoverableError(SkewlessError):
    """Base class of errors that the process handles itself: it retries, resets, or skips a record.

    One that ends a command is a bug.
    """


class UnavailableError(RecoverableError):
    """No broker, database or registry answered this attempt. The caller keeps polling and repeats the attempt."""


class UnknownSchemaError(RecoverableError):
    """The schema registry has no schema with this id, or no such subject or version."""

    REASON: Final = "unknown to the registry"
    """End of the dead-letter reason of a record with such a schema. The registry may have the schema later."""


class TransactionAbortedError(RecoverableError):
    """The open transaction of an output is lost: abort it and reset to the committed offsets.

    `replace_output`: the output is unusable, because it was fenced or the outcome of its last call is unknown.
    `rejoin`: the consumer is unusable, and a new consumer must join the group.
    `membership_lost`: the consumer is no member of its group any more.
    """

    def __init__(
        self, reason: str, *, replace_output: bool = False, rejoin: bool = False, membership_lost: bool = False
    ) -> None:
        super().__init__(reason)
        self.replace_output = replace_output
        self.rejoin = rejoin
        self.membership_lost = membership_lost


class BadRecordError(RecoverableError):
    """A record cannot be converted to tuples. `reason` is a short phrase without any of the record's payload."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
