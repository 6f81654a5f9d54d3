"""The example pipelines for the data sets of the evaluation read exactly the records of `skewless produce`."""

from __future__ import annotations

from pathlib import Path

import pytest

from skewless.config import loader
from skewless.lab.datasets import find_dataset

EXAMPLES = Path(__file__).parents[4] / "deploy" / "examples"


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
def test_example_pipeline_has_the_splitter_settings_of_its_dataset(example: str, dataset: str) -> None:
    settings = loader.load(EXAMPLES / f"{example}.yaml", {})
    assert settings.splitter == find_dataset(dataset).splitter()


def test_example_join_has_the_formats_of_its_datasets() -> None:
    join = loader.load(EXAMPLES / "ad-clicks.yaml", {}).join
    assert join is not None
    for side, dataset in ((join.left, "impressions"), (join.right, "clicks")):
        parsed = find_dataset(dataset).splitter()
        assert (side.format, side.time, side.topic) == (parsed.format, parsed.time, dataset)
