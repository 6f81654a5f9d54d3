"""Time in the comparison of the groupings: it follows the stream, but not faster than the groupings can use."""

from __future__ import annotations

import numpy as np
import pytest

from skewless.lab.inspection.load_comparison import MAX_STEP_MS, LoadComparison


def times(comparison: LoadComparison, *batches: list[int]) -> list[int]:
    return [time for batch in batches for time in comparison._times(np.array(batch, dtype=np.int64)).tolist()]


def test_load_comparison_of_a_fast_stream_has_the_times_of_the_stream() -> None:
    stream = list(range(0, 1000, 10))
    assert times(LoadComparison(1), stream[:30], stream[30:]) == stream


def test_load_comparison_of_several_partitions_has_the_newest_time() -> None:
    assert times(LoadComparison(1), [0, 10, 20], [0, 10, 20], [30]) == [0, 10, 20, 20, 20, 20, 30]


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_load_comparison_of_a_slow_stream_advances_by_the_largest_step(cut: int) -> None:
    day = 86_400_000
    stream = [day * number for number in range(10)]
    expected = [round(MAX_STEP_MS * number) for number in range(10)]
    assert times(LoadComparison(1), stream[:cut], stream[cut:]) == expected
