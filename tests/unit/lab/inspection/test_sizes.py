"""Distribution of the sizes of records."""

from __future__ import annotations

import numpy as np
import pytest

from skewless.lab.inspection.sizes import LIMIT, STEP, Sizes


@pytest.mark.parametrize("factor", [1, 2_600, 8_000])
def test_sizes_percentiles_equal_those_of_numpy(factor: int) -> None:
    values = [size * factor for size in range(1, 101)]
    sizes = Sizes()
    sizes.add([None, *map(bytes, values[:40])])
    sizes.add([None])
    sizes.add(list(map(bytes, values[40:])))
    found = sizes.to_json()
    for percent in (50, 99):
        exact = int(np.percentile(values, percent, method="inverted_cdf"))
        assert exact <= found[f"p{percent}_bytes"] < exact + (STEP if exact > LIMIT else 1)
    assert (found["mean_bytes"], found["max_bytes"]) == (np.mean(values), values[-1])


def test_sizes_percentile_of_large_values_is_not_above_the_largest() -> None:
    sizes = Sizes()
    sizes.add([bytes(LIMIT + 1)] * 3)
    assert sizes.to_json() == {
        "mean_bytes": LIMIT + 1,
        "p50_bytes": LIMIT + 1,
        "p99_bytes": LIMIT + 1,
        "max_bytes": LIMIT + 1,
    }


def test_sizes_without_values_are_zero() -> None:
    assert Sizes().to_json() == {"mean_bytes": 0, "p50_bytes": 0, "p99_bytes": 0, "max_bytes": 0}
