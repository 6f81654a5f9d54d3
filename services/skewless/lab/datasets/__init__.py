"""Registry of datasets: the records that `skewless produce` sends and that the demo and the tests read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from functools import partial

from skewless.errors import ConfigurationError, unknown
from skewless.lab.datasets import country, line_streams, lognormal, pair, recorded_files, synthetic, zipf
from skewless.lab.datasets.base import Dataset, DatasetOptions, RecordBatch, Source, take
from skewless.lab.datasets.detect import detect
from skewless.lab.datasets.line_codec import LineCodec

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetOptions",
    "RecordBatch",
    "detect",
    "find_dataset",
    "find_name",
    "take",
]


def _recorded(
    summary: str,
    codec: LineCodec,
    generate: Source | None = None,
    *,
    read: Source | None = None,
    alias: str | None = None,
) -> Dataset:
    """Create a dataset that is read from files with this codec, or generated if no files are given."""
    return Dataset(summary, codec.splitter, read=read or recorded_files.reader(codec), generate=generate, alias=alias)


DATASETS: dict[str, Dataset] = {
    "country-skew": Dataset(
        "country (JSON); --skew % are one, the rest uniform over 204",
        country.COUNTRIES.splitter,
        generate=country.skewed,
        options=frozenset({"skew"}),
        alias="COUNTRY_SKEW_R0..R100",
    ),
    "country-half-skew": Dataset(
        "the same, and uniform from half of --records on",
        country.COUNTRIES.splitter,
        generate=country.half_skewed,
        options=frozenset({"skew"}),
        alias="COUNTRY_HALF_SKEW_R80",
    ),
    "country-published": Dataset(
        "country (JSON); 80 % one, 10 % a second, 10 % uniform over 30",
        country.COUNTRIES.splitter,
        generate=country.published,
    ),
    "country": _recorded("country (JSON), from one country per line", country.COUNTRIES),
    "zipf": Dataset(
        "--keys keys, Zipf with exponent --zipf-exponent, values 1..100",
        zipf.splitter_settings,
        generate=zipf.zipf,
        options=frozenset({"keys", "zipf_exponent"}),
    ),
    "lognormal": Dataset(
        "keys of a log-normal distribution (--mu, --sigma); LN1 and LN2 are the published ones",
        zipf.splitter_settings,
        generate=lognormal.lognormal,
        options=frozenset({"mu", "sigma"}),
    ),
    "words": Dataset(
        "the source of Python's standard library, line by line",
        line_streams.splitter_settings,
        generate=line_streams.words,
        generated_records=None,
    ),
    "ticker": _recorded("ticker and timestamp (JSON)", recorded_files.TICKS, synthetic.ticker, alias="TWITTER_TICKER"),
    "election": _recorded(
        "posts with hashtags (JSON)", recorded_files.POSTS, synthetic.posts, alias="TWITTER_ELECTION"
    ),
    "pages": _recorded("timestamp TAB page", recorded_files.PAGES, synthetic.pages, alias="WIKIPEDIA_PAGEVIEWS"),
    "pagecounts": _recorded(
        "lang page views bytes",
        recorded_files.PAGE_COUNTS,
        synthetic.page_counts,
        read=recorded_files.page_counts,
        alias="WIKIPEDIA_PAGEVIEWS_BY_LANG",
    ),
    "clickstream": _recorded(
        "prev TAB curr TAB type TAB n",
        recorded_files.CLICKSTREAM,
        synthetic.clickstream,
        alias="WIKIPEDIA_CLICKSTREAM",
    ),
    "sales": _recorded("time;category;country;quantity;price", recorded_files.SALES, synthetic.sales),
    "edits": _recorded("time;channel;added;deleted", recorded_files.EDITS, synthetic.edits),
    "impressions": dataclasses.replace(
        _recorded("id;time;item;position, the left of a pair", recorded_files.IMPRESSIONS, pair.impressions),
        options=pair.OPTIONS,
        keys=pair.ids,
    ),
    "clicks": dataclasses.replace(
        _recorded("id;time, the right of the pair", recorded_files.CLICKS, pair.clicks),
        options=pair.OPTIONS,
        keys=pair.ids,
    ),
    "lines": Dataset("any text files, line by line", line_streams.splitter_settings, read=line_streams.lines),
}

_SKEW_IN_NAME = re.compile(r"(country(?:-half)?-skew)-r(\d{1,2}|100)")
_NAME_BY_ALIAS = {dataset.alias.lower().replace("_", "-"): name for name, dataset in DATASETS.items() if dataset.alias}


def find_name(name: str) -> str:
    """Return a dataset's name in the registry for that name or its alias. Raises ConfigurationError if unknown."""
    return _find(name)[0]


def find_dataset(name: str) -> Dataset:
    """Look up a dataset by name or alias. Raises ConfigurationError, which lists the known names.

    Some names set options: COUNTRY_SKEW_R30 is country-skew with a skew of 30 %, and LN1 and LN2 are lognormal with the
    parameters of the paper.
    """
    registered, parameters = _find(name)
    dataset = DATASETS[registered]
    if not parameters or dataset.generate is None:
        return dataset
    return dataclasses.replace(dataset, generate=partial(_generate_with, dataset.generate, parameters))


def _find(name: str) -> tuple[str, Mapping[str, float]]:
    """Return a dataset's name in the registry, and the options that the given name sets."""
    normalized = name.lower().replace("_", "-")
    if skew := _SKEW_IN_NAME.fullmatch(normalized):
        return skew[1], {"skew": float(skew[2])}
    if published := lognormal.PUBLISHED.get(normalized):
        return "lognormal", dict(zip(("mu", "sigma"), published, strict=True))
    registered = _NAME_BY_ALIAS.get(normalized, normalized)
    if registered not in DATASETS:
        raise ConfigurationError(unknown("dataset", name, DATASETS))
    return registered, {}


def _generate_with(generate: Source, parameters: Mapping[str, float], options: DatasetOptions) -> Iterator[RecordBatch]:
    for name, value in parameters.items():
        if name in options.model_fields_set:
            raise ConfigurationError(f"--{name}: the dataset's name already sets it to {value:g}, leave the option out")
    return generate(options.model_copy(update=dict(parameters)))
