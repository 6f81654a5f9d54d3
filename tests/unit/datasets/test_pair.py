"""The pair of streams: who matches whom, when, and in what order."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from skewless.datasets import DATASETS, DatasetOptions, take
from skewless.datasets.pair import LONGEST_DELAY_MS

Records = list[tuple[str, int]]


def ids_and_times(name: str, records: int, **options: int) -> Records:
    chunks = take(DATASETS[name].chunks(DatasetOptions.model_validate({"form": "json", **options})), records)
    rows = [msgspec.json.decode(value) for chunk in chunks for value in chunk.values]
    return [(row["id"], row["time"]) for row in rows]


@pytest.fixture(scope="module")
def pair() -> tuple[Records, Records]:
    return ids_and_times("impressions", 20_000), ids_and_times("clicks", 18_000)


def test_every_click_has_its_impression_and_nine_of_ten_impressions_have_a_click(pair: tuple[Records, Records]) -> None:
    left, right = (dict(records) for records in pair)
    assert (len(left), len(right)) == (20_000, 18_000)
    assert right.keys() <= left.keys()


def test_a_click_is_not_before_its_impression_and_mostly_within_a_second(pair: tuple[Records, Records]) -> None:
    left = dict(pair[0])
    delays = np.array([time - left[name] for name, time in pair[1]])
    assert 0 <= delays.min() <= delays.max() <= LONGEST_DELAY_MS
    assert (delays < 1000).mean() == pytest.approx(1 - np.exp(-1000 / 300), abs=0.01)


def test_both_are_in_the_order_of_time_but_for_clicks_where_groups_meet(pair: tuple[Records, Records]) -> None:
    left, right = (np.array([time for _, time in records]) for records in pair)
    assert (np.diff(left) >= 0).all()
    assert np.flatnonzero(np.diff(right) < 0).tolist() == [8_999]


def test_the_pair_matches_at_any_rate_of_sending() -> None:
    assert ids_and_times("clicks", 500, rate=7) == ids_and_times("clicks", 500)


def test_another_seed_gives_another_pair() -> None:
    assert ids_and_times("clicks", 500, seed=2) != ids_and_times("clicks", 500)
