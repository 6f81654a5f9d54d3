"""The ready pipelines for the data sets of the evaluation read exactly what `skewless produce` sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from skewless import config
from skewless.datasets import find_dataset

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"


@pytest.mark.parametrize(
    ("example", "dataset"),
    [
        ("country-skew", "COUNTRY_SKEW_R80"),
        ("twitter-ticker", "TWITTER_TICKER"),
        ("twitter-election", "TWITTER_ELECTION"),
        ("wikipedia-pageviews", "WIKIPEDIA_PAGEVIEWS"),
        ("wikipedia-pageviews-by-lang", "WIKIPEDIA_PAGEVIEWS_BY_LANG"),
        ("wikipedia-clickstream", "WIKIPEDIA_CLICKSTREAM"),
        ("sales-by-hour", "sales"),
    ],
)
def test_an_example_splits_records_as_its_data_set_does(example: str, dataset: str) -> None:
    settings = config.load(EXAMPLES / f"{example}.yaml", {})
    assert settings.splitter == find_dataset(dataset).splitter()
