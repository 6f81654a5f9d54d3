"""Sums over the tuples of runs, from which `evaluation_json` computes the measures.

A row maps column names to values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

Rows = Sequence[Mapping[str, Any]]
RowsBy = Mapping[str, Rows]


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums that Spark has computed. Each row has the name of its `run`; most rows have its `grouping` and `workers`."""

    loads: RowsBy
    """By "tick" and "window": tuples and rows of each worker in each of them, and first and last Kafka timestamp."""
    replicas: RowsBy
    """By "tick", "window" and "run": keys, pairs and max_workers, as in `Replicas`.

    Runs also have `hottest`, the tuples of the hottest key, and `needed`, the (key, worker) pairs of perfect balance.
    """
    hottest: RowsBy
    """By "tick" and "run": the hottest keys with their rank, tuples, and number of workers."""
    latencies: Rows
    """Quantiles of each window, and of all windows (window None)."""
    partials: Rows
    """Number of partial results of each window."""
    state: Rows
    """Size of the largest state of a router, in bytes."""
    completions: Rows
    """`completion` of each run that is whole, and quantiles of the latencies of tuples.

    `latency` is of the tuples that were completed, `waiting_for` of those that still wait; None if there are none.
    """

    def where(self, **values: object) -> Sums:
        """Return the rows of a run, or of a grouping and number of workers. Rows without these columns are included."""
        return Sums(**{field.name: _selected(getattr(self, field.name), values) for field in fields(self)})


def _selected(rows: RowsBy | Rows, values: Mapping[str, object]) -> Any:
    if isinstance(rows, Mapping):
        return {name: _selected(part, values) for name, part in rows.items()}
    return [row for row in rows if all(row.get(name, value) == value for name, value in values.items())]
