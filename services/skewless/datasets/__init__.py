"""The registry of datasets: what `skewless produce` sends, and what the demo and the tests read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from functools import partial

from skewless.datasets import country, lines, lognormal, pair, recorded, synthetic, zipf
from skewless.datasets.base import Chunk, Dataset, DatasetOptions, Form, Source, take
from skewless.datasets.detect import detect
from skewless.datasets.shapes import Shape
from skewless.errors import ConfigurationError, unknown
from skewless.splitter.settings import SplitterSettings

__all__ = [
    "DATASETS",
    "Chunk",
    "Dataset",
    "DatasetOptions",
    "Form",
    "detect",
    "find_dataset",
    "find_name",
    "splitter_settings",
    "take",
]


def _recorded(  # noqa: PLR0913 - one argument per column of the table below
    summary: str,
    shape: Shape,
    forms: tuple[Form, ...],
    generate: Source | None = None,
    *,
    read: Source | None = None,
    published: str | None = None,
) -> Dataset:
    """Make a dataset of a shape that is read from files, and generated without them."""
    return Dataset(
        summary,
        {form: partial(shape.splitter, form) for form in forms},
        read=read or recorded.reader(shape),
        generate=generate,
        published=published,
    )


def _countries(summary: str, generate: Source, published: str | None = None) -> Dataset:
    forms: tuple[Form, ...] = ("json", "raw")
    return Dataset(
        summary,
        {form: partial(country.COUNTRIES.splitter, form) for form in forms},
        generate=generate,
        published=published,
    )


DATASETS: dict[str, Dataset] = {
    "country-skew": _countries(
        "country; --skew % are one, the rest uniform over 204", country.skewed, "COUNTRY_SKEW_R0..R100"
    ),
    "country-half-skew": _countries(
        "the same, and uniform from half of --records on", country.half_skewed, "COUNTRY_HALF_SKEW_R80"
    ),
    "country-published": _countries("country; 80 % one, 10 % a second, 10 % uniform over 30", country.published),
    "country": _recorded("files of a country a line", country.COUNTRIES, ("json", "raw")),
    "zipf": Dataset(
        "--keys keys, Zipf with exponent --z, values 1..100", {"json": zipf.splitter_settings}, generate=zipf.zipf
    ),
    "lognormal": Dataset(
        "keys of a log-normal distribution (--mu, --sigma); LN1 and LN2 are the published ones",
        {"json": zipf.splitter_settings},
        generate=lognormal.lognormal,
    ),
    "words": Dataset(
        "the source of Python's standard library, line by line",
        {"raw": lines.splitter_settings},
        generate=lines.words,
        generated=None,
    ),
    "ticker": _recorded(
        "timestamp TAB ticker", recorded.TICKS, ("json", "raw"), synthetic.ticker, published="TWITTER_TICKER"
    ),
    "election": _recorded(
        "posts with hashtags", recorded.POSTS, ("json", "raw"), synthetic.posts, published="TWITTER_ELECTION"
    ),
    "pages": _recorded(
        "timestamp TAB page", recorded.PAGES, ("raw", "json"), synthetic.pages, published="WIKIPEDIA_PAGEVIEWS"
    ),
    "pagecounts": _recorded(
        "lang page views bytes",
        recorded.PAGE_COUNTS,
        ("raw", "json"),
        synthetic.page_counts,
        read=recorded.page_counts,
        published="WIKIPEDIA_PAGEVIEWS_BY_LANG",
    ),
    "clickstream": _recorded(
        "prev TAB curr TAB type TAB n",
        recorded.CLICKSTREAM,
        ("raw", "json"),
        synthetic.clickstream,
        published="WIKIPEDIA_CLICKSTREAM",
    ),
    "sales": _recorded("time;category;country;quantity;price", recorded.SALES, ("raw", "json"), synthetic.sales),
    "edits": _recorded("time;channel;added;deleted", recorded.EDITS, ("raw", "json"), synthetic.edits),
    "impressions": _recorded(
        "id;time;item;position, the left of a pair", recorded.IMPRESSIONS, ("raw", "json"), pair.impressions
    ),
    "clicks": dataclasses.replace(
        _recorded("id;time, the right of the pair", recorded.CLICKS, ("raw", "json"), pair.clicks),
        generated=pair.CLICKS_GENERATED,
    ),
    "lines": Dataset("any text files, line by line", {"raw": lines.splitter_settings}, read=lines.lines),
}

_SKEW_IN_NAME = re.compile(r"(country(?:-half)?-skew)-r(\d{1,2}|100)")
_PUBLISHED = {
    dataset.published.lower().replace("_", "-"): name for name, dataset in DATASETS.items() if dataset.published
}


def find_name(name: str) -> str:
    """Give a dataset's name in the registry, from that or its published name; raises ConfigurationError."""
    plain = name.lower().replace("_", "-")
    skew = _SKEW_IN_NAME.fullmatch(plain)
    found = skew[1] if skew else "lognormal" if plain in lognormal.PUBLISHED else _PUBLISHED.get(plain, plain)
    if found not in DATASETS:
        raise ConfigurationError(unknown("dataset", name, DATASETS))
    return found


def find_dataset(name: str) -> Dataset:
    """Look a dataset up by name; a ConfigurationError lists the known names.

    COUNTRY_SKEW_R30 is country-skew with a skew of 30 %, and so on; LN1 and LN2 are lognormal with the parameters of
    the paper.
    """
    dataset = DATASETS[find_name(name)]
    plain = name.lower().replace("_", "-")
    chosen: dict[str, float] = {}
    if skew := _SKEW_IN_NAME.fullmatch(plain):
        chosen = {"skew": float(skew[2])}
    elif plain in lognormal.PUBLISHED:
        chosen = dict(zip(("mu", "sigma"), lognormal.PUBLISHED[plain], strict=True))
    if not chosen or dataset.generate is None:
        return dataset
    return dataclasses.replace(dataset, generate=partial(_with_parameters, dataset.generate, chosen))


def splitter_settings(name: str, form: Form | None = None) -> SplitterSettings:
    """Give the splitter settings that read the records of a dataset."""
    return find_dataset(name).splitter(form)


def _with_parameters(generate: Source, chosen: Mapping[str, float], options: DatasetOptions) -> Iterator[Chunk]:
    for name, value in chosen.items():
        if name in options.model_fields_set:
            raise ConfigurationError(f"--{name}: the dataset's name says {value:g} already, leave the option out")
    return generate(options.model_copy(update=dict(chosen)))
