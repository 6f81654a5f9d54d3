"""Everything that measures of recorded runs are made of: small rows, by the names of their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

Rows = Sequence[Mapping[str, Any]]
RowsBy = Mapping[str, Rows]


@dataclass(frozen=True, slots=True)
class Sums:
    """What Spark has summed up. Rows have the `run` that they belong to, most of them its `grouping` and `workers`."""

    loads: RowsBy
    """By "tick" and "window": tuples of each worker in each of them, and first and last Kafka timestamp."""
    replicas: RowsBy
    """By "tick", "window" and "run": keys, pairs, most workers of a key; of runs also hottest and needed."""
    hottest: RowsBy
    """By "tick" and "run": the hottest keys with their place, tuples, and how many workers held them."""
    latencies: Rows
    """Quantiles of each window, and of all under window None."""
    partials: Rows
    """Partial results of each window."""
    state: Rows
    """Bytes of the largest state of a router."""

    def of(self, run: str) -> Sums:
        """Pick what belongs to one run."""
        return self._picked(lambda row: bool(row["run"] == run))

    def where(self, **wanted: object) -> Sums:
        """Pick what belongs to one grouping and W; rows that do not tell stay."""
        return self._picked(lambda row: all(row.get(name, value) == value for name, value in wanted.items()))

    def _picked(self, wanted: Callable[[Mapping[str, Any]], bool]) -> Sums:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return Sums(**{name: _picked(part, wanted) for name, part in parts.items()})


def _picked(part: RowsBy | Rows, wanted: Callable[[Mapping[str, Any]], bool]) -> Any:
    if isinstance(part, Mapping):
        return {name: _picked(rows, wanted) for name, rows in part.items()}
    return [row for row in part if wanted(row)]
