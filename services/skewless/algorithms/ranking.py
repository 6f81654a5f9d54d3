"""Ranks the keys of a window by one of their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skewless.algorithms.aggregates import ResultCondition, ResultField, selected
from skewless.algorithms.windowing.window import Emission


@dataclass(frozen=True, slots=True)
class Ranking:
    """The `n` keys with the largest results, those with equal results in ascending order of their UTF-8 bytes.

    Keys without the result, and those that do not match all conditions, have no rank.
    """

    n: int
    by: ResultField
    conditions: Sequence[ResultCondition] = ()

    def best(self, portions: Iterable[Emission]) -> Emission:
        """Return the rows of a window by rank. The portions, of which there is at least one, have distinct keys."""
        best = [self._best(portion) for portion in portions]
        data = {name: np.concatenate([rows.data[name] for rows in best]) for name in best[0].data}
        return self._best(Emission(best[0].window, pa.concat_arrays([rows.keys for rows in best]), data))

    def _best(self, rows: Emission) -> Emission:
        results = self.by.to_arrow(rows.data)
        has_rank = np.asarray(results.is_valid())
        if self.conditions:
            has_rank = has_rank & selected(self.conditions, rows.data)
        ranked = np.flatnonzero(has_rank)
        table = pa.table({"by": results.take(pa.array(ranked)), "key": rows.keys.take(pa.array(ranked))})
        order = pc.select_k_unstable(table, self.n, [("by", "descending"), ("key", "ascending")])
        best = ranked[np.asarray(order)]
        data = {name: values[best] for name, values in rows.data.items()}
        return Emission(rows.window, rows.keys.take(pa.array(best)), data)
