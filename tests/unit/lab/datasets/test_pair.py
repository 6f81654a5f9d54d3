"""The pair of streams: which records match, when, and in what order."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from skewless.kafka.producer.bulk import partitions_of
from skewless.lab.datasets import DATASETS, DatasetOptions, take
from skewless.lab.datasets.pair import MAX_DELAY_MS

Records = list[tuple[str, int]]


def ids_and_times(name: str, records: int, **options: int) -> Records:
    batches = take(DATASETS[name].batches(DatasetOptions.model_validate({"encoding": "json", **options})), records)
    rows = [msgspec.json.decode(value) for batch in batches for value in batch.values]
    return [(row["id"], row["time"]) for row in rows]


@pytest.fixture(scope="module")
def pair() -> tuple[Records, Records]:
    return ids_and_times("impressions", 20_000), ids_and_times("clicks", 18_000)


def test_click_pair_clicks_have_impressions_and_nine_in_ten_impressions_a_click(pair: tuple[Records, Records]) -> None:
    left, right = (dict(records) for records in pair)
    assert (len(left), len(right)) == (20_000, 18_000)
    assert right.keys() <= left.keys()


def test_click_pair_clicks_follow_their_impressions_mostly_within_a_second(pair: tuple[Records, Records]) -> None:
    left = dict(pair[0])
    delays = np.array([time - left[name] for name, time in pair[1]])
    assert 0 <= delays.min() <= delays.max() <= MAX_DELAY_MS
    assert (delays < 1000).mean() == pytest.approx(1 - np.exp(-1000 / 300), abs=0.01)


def test_click_pair_streams_are_in_time_order_except_at_group_boundaries(pair: tuple[Records, Records]) -> None:
    left, right = (np.array([time for _, time in records]) for records in pair)
    assert (np.diff(left) >= 0).all()
    assert np.flatnonzero(np.diff(right) < 0).tolist() == [8_999]


def test_click_pair_at_any_sending_rate_is_the_same() -> None:
    assert ids_and_times("clicks", 500, rate=7) == ids_and_times("clicks", 500)


def test_click_pair_with_another_seed_differs() -> None:
    assert ids_and_times("clicks", 500, seed=2) != ids_and_times("clicks", 500)


@pytest.mark.parametrize("encoding", ["raw", "json"])
def test_click_pair_records_have_their_id_as_key_and_the_same_partition_in_both_streams(encoding: str) -> None:
    partitions = {}
    for name in ("impressions", "clicks"):
        (batch,) = take(DATASETS[name].batches(DatasetOptions.model_validate({"encoding": encoding})), 1_000)
        assert batch.keys is not None
        values = batch.values if encoding == "raw" else [b"%b;" % key for key in batch.keys]
        assert [value.partition(b";")[0] for value in values] == batch.keys
        assert batch.part(3, 5).keys == batch.keys[3:5]
        partitions[name] = dict(zip(batch.keys, partitions_of(7, 1_000, 8, batch.keys).tolist(), strict=True))
    shared = partitions["impressions"].keys() & partitions["clicks"].keys()
    assert len(shared) > 500
    assert all(partitions["impressions"][key] == partitions["clicks"][key] for key in shared)
    assert set(partitions["impressions"].values()) == set(range(8))
