from __future__ import annotations

import numpy as np
import pytest

from skewless.algorithms.windowing.assigner import starts


@pytest.mark.parametrize(
    ("time", "start"),
    [(0, 0), (14_999, 0), (15_000, 15_000), (15_001, 15_000), (-1, -15_000), (-15_000, -15_000), (-15_001, -30_000)],
)
def test_window_assigner_time_belongs_to_the_span_that_contains_it(time: int, start: int) -> None:
    assert starts(np.array([time]), 15_000).tolist() == [start]


def test_window_assigner_panes_of_a_window_share_its_start() -> None:
    assert starts(np.arange(60_000, 120_000, 15_000), 60_000).tolist() == [60_000] * 4
