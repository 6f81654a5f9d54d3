"""Fault points in the transactions of a database.

In the order of a transaction: before-offset (before the statement that moves an offset), between-rows (when half of the
rows are stored), before-commit, after-commit (the process does not know yet that it happened).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chaos.faults.fault_points import Points
from skewless.sql.database import Database
from skewless.sql.rows import Row

POINTS = ("before-offset", "between-rows", "before-commit", "after-commit")


def install(base: type[Database], points: Points) -> type[Database]:
    """Return a database with fault points."""

    class FaultyDatabase(base):  # type: ignore[misc, valid-type]
        """A database that passes the points of a transaction."""

        def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
            if statement.startswith(("INSERT INTO skewless_offsets", "UPDATE skewless_offsets")):
                points.pass_by("before-offset")
            hit: int = super().execute(statement, parameters)
            return hit

        def upsert(self, rows: Sequence[Row]) -> None:
            half = len(rows) // 2
            if half:
                super().upsert(rows[:half])
            points.pass_by("between-rows")
            super().upsert(rows[half:])

        def commit(self) -> None:
            points.pass_by("before-commit")
            super().commit()
            points.pass_by("after-commit")

    return FaultyDatabase
