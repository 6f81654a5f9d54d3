"""Generated streams: reproducible by seed, with the documented shares, with event time at a fixed rate."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from skewless.errors import ConfigurationError
from skewless.lab.datasets import DATASETS, DatasetOptions, RecordBatch, find_dataset, take
from skewless.lab.datasets.base import START_MS, FixedRate
from skewless.lab.datasets.country import HOT, SECOND, countries
from skewless.lab.datasets.zipf import cumulative
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import RecordColumns

GENERATORS = [name for name, dataset in DATASETS.items() if dataset.generate and dataset.generated_records]


def stream(name: str, records: int, **options: Any) -> list[RecordBatch]:
    return list(take(find_dataset(name).batches(DatasetOptions.model_validate(options)), records))


def values(name: str, records: int, **options: Any) -> list[bytes]:
    return [value for batch in stream(name, records, **options) for value in batch.values]


def shares(name: str, field: str, records: int = 100_000, **options: Any) -> dict[str, float]:
    counts = Counter(json.loads(value)[field] for value in values(name, records, **options))
    return {key: count / records for key, count in counts.most_common()}


@pytest.mark.parametrize("name", GENERATORS)
def test_synthetic_dataset_same_seed_gives_the_same_records_and_another_seed_others(name: str) -> None:
    assert values(name, 500, seed=7) == values(name, 500, seed=7)
    assert values(name, 500, seed=7) != values(name, 500, seed=8)


@pytest.mark.parametrize("name", GENERATORS)
def test_synthetic_dataset_shorter_run_is_a_prefix_of_a_longer_one(name: str) -> None:
    assert values(name, 12_345) == values(name, 25_000)[:12_345]


@pytest.mark.parametrize("name", GENERATORS)
def test_synthetic_dataset_records_of_a_batch_are_parsed_with_their_own_times(name: str) -> None:
    parser = RecordParser(DATASETS[name].splitter())
    for batch in stream(name, 10_500, event_rate=7):
        parsed = parser.parse(RecordColumns.of_values(batch.values, batch.times))
        assert parsed.invalid == []
        assert np.array_equal(parsed.times, batch.times)


@pytest.mark.parametrize(
    ("name", "hot", "share"),
    [
        ("ticker", "T0000", 0.10),
        ("election", "ElectionDay", 0.33),
        ("pages", "Page_0", 0.083),
        ("edits", "#en.wikipedia", 0.29),
    ],
)
def test_synthetic_dataset_hottest_key_has_its_declared_share(name: str, hot: str, share: float) -> None:
    parser = RecordParser(DATASETS[name].splitter())
    counts: Counter[str] = Counter()
    for batch in stream(name, 30_000):
        parsed = parser.parse(RecordColumns.of_values(batch.values, batch.times))
        counts.update(parsed.keys)
    assert counts[hot] / counts.total() == pytest.approx(share, abs=0.015)


@pytest.mark.parametrize(("skew", "hot"), [(0, 1 / 204), (50, 0.5 + 0.5 / 204), (100, 1.0)])
def test_country_skew_dataset_gives_its_percentage_to_one_country_and_the_rest_to_all(skew: float, hot: float) -> None:
    found = shares("country-skew", "country", skew=skew)
    assert found[HOT] == pytest.approx(hot, abs=0.01)
    assert len(found) == (1 if skew == 100 else 204)
    others = [share for name, share in found.items() if name != HOT]
    assert max(others, default=0) == pytest.approx((1 - skew / 100) / 204, abs=0.002)


@pytest.mark.parametrize(("name", "skew"), [("COUNTRY_SKEW_R0", 0), ("COUNTRY_SKEW_R70", 70)])
def test_country_skew_dataset_skew_in_the_name_is_used(name: str, skew: int) -> None:
    named = list(take(find_dataset(name).batches(DatasetOptions()), 500))
    assert [batch.values for batch in named] == [batch.values for batch in stream("country-skew", 500, skew=skew)]


def test_country_half_skew_dataset_is_skewed_in_its_first_half_and_uniform_in_its_second() -> None:
    batches = find_dataset("COUNTRY_HALF_SKEW_R80").batches(DatasetOptions(records=30_000))
    found = [json.loads(value)["country"] for batch in take(batches, 30_000) for value in batch.values]
    first, second = (Counter(part)[HOT] / 15_000 for part in (found[:15_000], found[15_000:]))
    assert first == pytest.approx(0.8 + 0.2 / 204, abs=0.01)
    assert second == pytest.approx(1 / 204, abs=0.005)


def test_country_published_dataset_has_the_published_shares() -> None:
    found = shares("country-published", "country")
    assert list(found)[:2] == [HOT, SECOND]
    assert len(found) == 30
    assert found[HOT] == pytest.approx(0.8 + 0.1 / 30, abs=0.01)
    assert found[SECOND] == pytest.approx(0.1 + 0.1 / 30, abs=0.01)


def test_country_names_are_204_distinct_ones() -> None:
    assert len(set(countries())) == 204


@pytest.mark.parametrize("z", [0.0, 1.1, 2.0])
def test_zipf_dataset_keys_have_the_frequencies_of_their_ranks(z: float) -> None:
    weights = np.arange(1, 51) ** -z
    found = shares("zipf", "key", zipf_exponent=z, keys=50)
    assert list(found.values()) == pytest.approx((weights / weights.sum()).tolist(), abs=0.01)


def test_zipf_dataset_key_names_are_unrelated_to_their_ranks() -> None:
    ranked = list(shares("zipf", "key", zipf_exponent=2.0, keys=50))[:10]
    assert ranked != sorted(ranked)


def test_zipf_dataset_values_are_uniform_in_1_to_100() -> None:
    counts = Counter(json.loads(value)["value"] for value in values("zipf", 100_000))
    assert sorted(counts) == list(range(1, 101))
    assert max(counts.values()) == pytest.approx(1000, abs=150)


@pytest.mark.parametrize(("name", "p1", "keys"), [("LN1", 0.1471, 16_000), ("LN2", 0.0701, 1_100)])
def test_lognormal_dataset_hottest_key_has_the_published_share(name: str, p1: float, keys: int) -> None:
    """Table 1 of the paper has 10 million tuples; fewer tuples reach fewer of the rare keys."""
    found = shares(name, "key")
    assert next(iter(found.values())) == pytest.approx(p1, abs=0.005)
    assert len(found) < keys


def test_lognormal_dataset_parameters_with_a_published_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"--sigma: the dataset's name already sets it to 2\.366"):
        values("LN1", 1, sigma=1.0)


def test_zipf_sampler_highest_draw_has_a_valid_rank() -> None:
    assert np.searchsorted(cumulative(1000, 1.1), np.nextafter(1.0, 0.0), side="right") < 1000


def test_fixed_rate_that_does_not_divide_a_second_has_no_drift() -> None:
    assert FixedRate(3).times(0, 7).tolist() == [START_MS + ms for ms in (0, 333, 666, 1000, 1333, 1666, 2000)]


def test_fixed_rate_batches_split_anywhere_have_the_same_times() -> None:
    clock = FixedRate(7.3)
    parts = [clock.times(first, 10).tolist() for first in range(0, 100, 10)]
    assert list(itertools.chain(*parts)) == clock.times(0, 100).tolist()


def test_fixed_rate_follows_event_rate_then_rate_then_default() -> None:
    for options, rate in (({}, 1000.0), ({"rate": 50}, 50.0), ({"rate": 50, "event_rate": 10}, 10.0)):
        assert FixedRate.of(DatasetOptions.model_validate(options)).rate == rate


@pytest.mark.parametrize("records", [0, 1, 10_000, 10_001])
def test_take_with_a_limit_gives_exactly_that_many_records(records: int) -> None:
    assert len(values("zipf", records)) == records
