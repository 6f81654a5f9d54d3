"""The pair of streams: which records match, when, and in what order."""

from __future__ import annotations

import numpy as np
import pytest

from skewless.kafka.producer.bulk import partitions_of
from skewless.lab.datasets import DATASETS, DatasetOptions
from skewless.lab.datasets.pair import MAX_DELAYS

Records = list[tuple[str, int]]


def ids_and_times(name: str, impressions: int, **options: float) -> Records:
    """Generate the records of one stream that belong to the first impressions."""
    options_of_run = DatasetOptions.model_validate({"records": impressions, **options})
    rows = [value.decode().split(";") for batch in DATASETS[name].batches(options_of_run) for value in batch.values]
    return [(row[0], int(row[1])) for row in rows]


def pair_of(impressions: int, **options: float) -> tuple[Records, Records]:
    return ids_and_times("impressions", impressions, **options), ids_and_times("clicks", impressions, **options)


def largest_disorder(records: Records) -> int:
    """Return the largest time by which a record is older than one before it."""
    times = np.array([time for _, time in records])
    return int((np.maximum.accumulate(times) - times).max())


@pytest.fixture(scope="module")
def pair() -> tuple[Records, Records]:
    return pair_of(25_000)


def test_click_pair_clicks_have_impressions_and_nine_in_ten_impressions_a_click(pair: tuple[Records, Records]) -> None:
    left, right = (dict(records) for records in pair)
    assert (len(left), len(right)) == (25_000, 22_500)
    assert right.keys() <= left.keys()


@pytest.mark.parametrize(("matched", "clicks"), [(0, 0), (0.25, 250), (0.333, 333), (1, 1_000)])
def test_click_pair_share_of_clicks_is_exact(matched: float, clicks: int) -> None:
    left, right = pair_of(1_000, matched=matched)
    assert (len(left), len({name for name, _ in right})) == (1_000, clicks)


def test_click_pair_clicks_follow_their_impressions_mostly_within_a_second(pair: tuple[Records, Records]) -> None:
    left = dict(pair[0])
    delays = np.array([time - left[name] for name, time in pair[1]])
    assert 0 <= delays.min() <= delays.max() <= MAX_DELAYS * 300
    assert (delays < 1000).mean() == pytest.approx(1 - np.exp(-1000 / 300), abs=0.01)


def test_click_pair_delay_of_clicks_has_the_chosen_mean() -> None:
    left, right = pair_of(10_000, delay_ms=5_000)
    times = dict(left)
    assert np.mean([time - times[name] for name, time in right]) == pytest.approx(5_000, rel=0.03)


def test_click_pair_streams_are_in_time_order(pair: tuple[Records, Records]) -> None:
    assert [largest_disorder(records) for records in pair] == [0, 0]


def test_click_pair_disorder_is_bounded_and_the_records_are_the_same(pair: tuple[Records, Records]) -> None:
    for plain, mixed in zip(pair, pair_of(25_000, disorder_ms=700), strict=True):
        assert 600 < largest_disorder(mixed) <= 700
        assert sorted(mixed) == sorted(plain)


def test_click_pair_repeated_and_missing_records_of_a_side_leave_the_other_side_as_it_is(
    pair: tuple[Records, Records],
) -> None:
    left, right = pair_of(25_000, duplicates=0.1, missing=0.2)
    assert ids_and_times("clicks", 25_000) == pair[1]
    for whole, sent in zip(pair, (left, right), strict=True):
        assert set(sent) <= set(whole)
        assert len(set(sent)) == pytest.approx(0.8 * len(whole), rel=0.02)
        assert len(sent) == pytest.approx(1.1 * len(set(sent)), rel=0.02)
    # Each side loses records of its own: a pair is complete with the probability of 0.8 * 0.8.
    assert len(set(dict(left)) & set(dict(right))) == pytest.approx(0.64 * len(pair[1]), rel=0.03)


def test_click_pair_at_any_sending_rate_is_the_same() -> None:
    assert ids_and_times("clicks", 500, rate=7) == ids_and_times("clicks", 500)


def test_click_pair_with_another_seed_differs() -> None:
    assert ids_and_times("clicks", 500, seed=2) != ids_and_times("clicks", 500)


def test_click_pair_records_have_their_id_as_key_and_the_same_partition_in_both_streams() -> None:
    partitions = {}
    for name in ("impressions", "clicks"):
        (batch,) = DATASETS[name].batches(DatasetOptions(records=1_000, matched=1))
        assert batch.keys is not None
        assert [value.partition(b";")[0] for value in batch.values] == batch.keys
        assert batch.part(3, 5).keys == batch.keys[3:5]
        partitions[name] = dict(zip(batch.keys, partitions_of(7, 1_000, 8, batch.keys).tolist(), strict=True))
    shared = partitions["impressions"].keys() & partitions["clicks"].keys()
    assert len(shared) > 500
    assert all(partitions["impressions"][key] == partitions["clicks"][key] for key in shared)
    assert set(partitions["impressions"].values()) == set(range(8))
