"""Results of an aggregate over many groups, from partials that were merged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates.result_field import ResultField
from skewless.algorithms.partials import merge_partials, to_partials

CUTS = 20
"""Number of batches."""


def result_of_groups(field: ResultField, groups: NDArray[np.int64], values: pa.Array) -> list[float]:
    """Compute the results of groups 0, 1, ... from several batches. `groups` has the group of each value."""
    columns = field.columns
    tables = [
        to_partials(
            [
                pa.record_batch(
                    {
                        "key": pa.array(groups[part].astype(str)).dictionary_encode(),
                        "value": values.take(pa.array(part)),
                        "time": pa.array(np.zeros(len(part), np.int64)),
                    }
                )
            ],
            1,
            columns,
        )
        for part in np.array_split(np.arange(len(groups)), CUTS)
    ]
    merged = merge_partials(tables, ["key"], columns)
    found = field.to_python({column.name: column.from_arrow(merged[column.name]) for column in columns})
    by_group = dict(zip(map(int, merged["key"].to_pylist()), found, strict=True))
    return [by_group[group] for group in sorted(by_group)]
