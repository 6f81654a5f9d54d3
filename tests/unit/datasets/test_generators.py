"""Generated streams: reproducible by seed, of the shares that they promise, with event time at a fixed rate."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from skewless.datasets import DATASETS, Chunk, DatasetOptions, find_dataset, take
from skewless.datasets.base import START_MS, FixedRate
from skewless.datasets.country import HOT, SECOND, countries
from skewless.datasets.zipf import cumulative
from skewless.errors import ConfigurationError
from skewless.splitter.formats import create_format

GENERATORS = [name for name, dataset in DATASETS.items() if dataset.generate and dataset.generated]


def stream(name: str, records: int, **options: Any) -> list[Chunk]:
    return list(take(find_dataset(name).chunks(DatasetOptions.model_validate(options)), records))


def values(name: str, records: int, **options: Any) -> list[bytes]:
    return [value for chunk in stream(name, records, **options) for value in chunk.values]


def shares(name: str, field: str, records: int = 100_000, **options: Any) -> dict[str, float]:
    counts = Counter(json.loads(value)[field] for value in values(name, records, **options))
    return {key: count / records for key, count in counts.most_common()}


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_seed_gives_the_same_records_and_another_one_does_not(name: str) -> None:
    assert values(name, 500, seed=7) == values(name, 500, seed=7)
    assert values(name, 500, seed=7) != values(name, 500, seed=8)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_shorter_run_is_the_beginning_of_a_longer_one(name: str) -> None:
    assert values(name, 12_345) == values(name, 25_000)[:12_345]


@pytest.mark.parametrize("name", GENERATORS)
def test_all_records_of_a_chunk_can_be_read_at_the_time_they_are_sent_with(name: str) -> None:
    parser = create_format(DATASETS[name].splitter())
    for chunk in stream(name, 10_500, event_rate=7):
        parsed = parser.parse(chunk.values, chunk.times)
        assert parsed.bad == []
        assert np.array_equal(parsed.times, chunk.times)


@pytest.mark.parametrize(
    ("name", "hot", "share"),
    [
        ("ticker", "T0000", 0.10),
        ("election", "ElectionDay", 0.33),
        ("pages", "Page_0", 0.083),
        ("edits", "#en.wikipedia", 0.29),
    ],
)
def test_synthetic_streams_are_as_skewed_as_they_say(name: str, hot: str, share: float) -> None:
    parser = create_format(DATASETS[name].splitter())
    counts: Counter[str] = Counter()
    for chunk in stream(name, 30_000):
        parsed = parser.parse(chunk.values, chunk.times)
        counts.update(parsed.keys)
    assert counts[hot] / counts.total() == pytest.approx(share, abs=0.015)


@pytest.mark.parametrize(("skew", "hot"), [(0, 1 / 204), (50, 0.5 + 0.5 / 204), (100, 1.0)])
def test_country_skew_gives_its_percentage_to_one_and_the_rest_to_all(skew: float, hot: float) -> None:
    found = shares("country-skew", "country", skew=skew)
    assert found[HOT] == pytest.approx(hot, abs=0.01)
    assert len(found) == (1 if skew == 100 else 204)
    others = [share for name, share in found.items() if name != HOT]
    assert max(others, default=0) == pytest.approx((1 - skew / 100) / 204, abs=0.002)


@pytest.mark.parametrize(("name", "skew"), [("COUNTRY_SKEW_R0", 0), ("COUNTRY_SKEW_R70", 70)])
def test_a_name_may_say_the_skew(name: str, skew: int) -> None:
    named = list(take(find_dataset(name).chunks(DatasetOptions()), 500))
    assert [chunk.values for chunk in named] == [chunk.values for chunk in stream("country-skew", 500, skew=skew)]


def test_half_skew_is_skewed_for_half_of_the_records_and_then_uniform() -> None:
    chunks = find_dataset("COUNTRY_HALF_SKEW_R80").chunks(DatasetOptions(records=30_000, form="raw"))
    found = [value for chunk in take(chunks, 30_000) for value in chunk.values]
    first, second = (Counter(part)[HOT.encode()] / 15_000 for part in (found[:15_000], found[15_000:]))
    assert first == pytest.approx(0.8 + 0.2 / 204, abs=0.01)
    assert second == pytest.approx(1 / 204, abs=0.005)


def test_the_published_stream_has_the_published_shares() -> None:
    found = shares("country-published", "country")
    assert list(found)[:2] == [HOT, SECOND]
    assert len(found) == 30
    assert found[HOT] == pytest.approx(0.8 + 0.1 / 30, abs=0.01)
    assert found[SECOND] == pytest.approx(0.1 + 0.1 / 30, abs=0.01)


def test_there_are_204_countries_and_no_two_are_the_same() -> None:
    assert len(set(countries())) == 204


@pytest.mark.parametrize("z", [0.0, 1.1, 2.0])
def test_zipf_keys_have_the_frequencies_of_their_ranks(z: float) -> None:
    weights = np.arange(1, 51) ** -z
    found = shares("zipf", "key", z=z, keys=50)
    assert list(found.values()) == pytest.approx((weights / weights.sum()).tolist(), abs=0.01)


def test_zipf_names_do_not_follow_the_rank() -> None:
    ranked = list(shares("zipf", "key", z=2.0, keys=50))[:10]
    assert ranked != sorted(ranked)


def test_zipf_values_are_uniform_in_1_to_100() -> None:
    counts = Counter(json.loads(value)["value"] for value in values("zipf", 100_000))
    assert sorted(counts) == list(range(1, 101))
    assert max(counts.values()) == pytest.approx(1000, abs=150)


@pytest.mark.parametrize(("name", "p1", "keys"), [("LN1", 0.1471, 16_000), ("LN2", 0.0701, 1_100)])
def test_lognormal_streams_have_the_published_share_of_the_hottest_key(name: str, p1: float, keys: int) -> None:
    """Table 1 of the paper has 10 million tuples; fewer tuples reach fewer of the rare keys."""
    found = shares(name, "key")
    assert next(iter(found.values())) == pytest.approx(p1, abs=0.005)
    assert len(found) < keys


def test_lognormal_parameters_beside_a_published_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"--sigma: the dataset's name says 2\.366 already"):
        values("LN1", 1, sigma=1.0)


def test_the_highest_draw_still_has_a_rank() -> None:
    assert np.searchsorted(cumulative(1000, 1.1), np.nextafter(1.0, 0.0), side="right") < 1000


def test_event_time_does_not_drift_at_rates_that_do_not_divide_a_second() -> None:
    assert FixedRate(3).times(0, 7).tolist() == [START_MS + ms for ms in (0, 333, 666, 1000, 1333, 1666, 2000)]


def test_event_time_does_not_depend_on_how_records_were_cut() -> None:
    clock = FixedRate(7.3)
    parts = [clock.times(first, 10).tolist() for first in range(0, 100, 10)]
    assert list(itertools.chain(*parts)) == clock.times(0, 100).tolist()


def test_event_time_goes_at_the_event_rate_else_the_rate_else_the_default() -> None:
    for options, rate in (({}, 1000.0), ({"rate": 50}, 50.0), ({"rate": 50, "event_rate": 10}, 10.0)):
        assert FixedRate.of(DatasetOptions.model_validate(options)).rate == rate


@pytest.mark.parametrize("records", [0, 1, 10_000, 10_001])
def test_take_gives_exactly_so_many(records: int) -> None:
    assert len(values("zipf", records)) == records
