"""Classes of the errors of a database, and what the sink does about each."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

CAUSES = (
    "deadlock",
    "lock_timeout",
    "statement_timeout",
    "serialization",
    "connection",
    "shutdown",
    "read_only",
    "resources",
    "system",
)
"""Causes of the failures after which an attempt is repeated, for the metric."""


GRANT = "grant the missing right (`skewless sink check` lists all of them)"
NO_TABLE = (
    "restore the table, or delete its offsets in skewless_offsets and create it again (see `skewless sink schema`)"
)
"""Remedies that the dialects share."""


class ErrorClass(Enum):
    """Cause of an error. The value describes the reaction."""

    UNAVAILABLE = "the database is down, restarts, is read-only or full: connect again, with back-off"
    TRANSIENT = "a lock, a deadlock, a serialization failure or a time limit: repeat the transaction"
    VALUE = "the database refuses a value: the row goes to the table of refused rows"
    DUPLICATE = "another process has stored the same key: read the offsets again"
    PERMANENT = "the user has to correct something: the process ends with the message of the server"


class Failure(NamedTuple):
    """An error of a driver, classified."""

    error_class: ErrorClass
    cause: str
    """Short name for the metric: `deadlock`."""
    message: str
    """Message of the server, with the remedy."""

    @property
    def is_final(self) -> bool:
        """Whether the same operation fails again."""
        return self.error_class in {ErrorClass.PERMANENT, ErrorClass.VALUE}
