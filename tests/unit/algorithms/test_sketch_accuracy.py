"""Errors of `distinct` and `quantile` over many groups: made-up Zipf records, and real ones (`make accuracy`).

With $SKEWLESS_DATA the groups are also those of four real data sets. `-s` prints the measured shares.
"""
# ruff: noqa: T201 - prints its figures

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pytest
from numpy.typing import NDArray

from helpers.sketches import result_of_groups
from helpers.tiers import thorough_except
from skewless.algorithms.aggregates.distinct import Distinct
from skewless.algorithms.aggregates.distinct_pairs import EXACT_LIMIT
from skewless.algorithms.aggregates.quantile import Quantile
from skewless.algorithms.aggregates.result_field import ResultField
from skewless.algorithms.value_type import ValueType

FOLDER = os.environ.get("SKEWLESS_DATA")
PRECISIONS = range(10, 17)
SHARE = 0.997
"""Required share of the groups whose error is at most three standard errors: that of a normal distribution."""
RELATIVE_ERROR = 0.01
AT = (0.01, 0.25, 0.5, 0.9, 0.99, 0.999)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


class Grouped(NamedTuple):
    """Values of many groups."""

    groups: pa.Array
    """Group of each tuple: numbers or texts."""
    texts: pa.Array
    """Values whose distinct number is estimated, as a dictionary."""
    numbers: pa.Array
    """Values whose quantiles are estimated: integers."""


def zipf(exponent: float, tuples: int) -> Grouped:
    """Make tuples whose groups, texts and numbers are skewed."""
    random = np.random.default_rng(13)

    def ranks(size: int) -> NDArray[np.int64]:
        steps = np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -exponent)
        found: NDArray[np.int64] = np.searchsorted(steps, random.random(tuples) * steps[-1], side="right")
        return found

    groups, users = ranks(2_000), ranks(1_000_000)
    numbers = random.lognormal(8, 2, tuples).astype(np.int64) - 500
    texts = pa.array([f"user-{number}" for number in users.tolist()]).dictionary_encode()
    return Grouped(pa.array(groups), texts, pa.array(numbers))


def table(name: str, delimiter: str, columns: list[str]) -> pa.Table:
    """Read a compressed file without quotes."""
    options = {
        "read_options": pa.csv.ReadOptions(column_names=columns),
        "parse_options": pa.csv.ParseOptions(delimiter=delimiter, quote_char=False),
    }
    with pa.input_stream(str(Path(FOLDER or "") / f"{name}.zst"), compression="zstd") as file:
        return pa.csv.read_csv(io.BytesIO(file.read()), **options)


def in_spans(times: pa.ChunkedArray, span_ms: int) -> NDArray[np.int64]:
    spans: NDArray[np.int64] = times.to_numpy() // span_ms
    return spans


def text_groups(*columns: NDArray[np.generic] | pa.ChunkedArray) -> pa.Array:
    """Return a group for each combination of some columns."""
    parts = [pa.array(column).cast(pa.string()) if isinstance(column, np.ndarray) else column for column in columns]
    joined = pa.compute.binary_join_element_wise(*(part.cast(pa.string()) for part in parts), "|")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def texts_of(column: pa.ChunkedArray) -> pa.Array:
    return column.cast(pa.string()).combine_chunks().dictionary_encode()


def pages() -> Iterator[Grouped]:
    """Pages and bytes by hour and language."""
    for hour in range(0, 12, 3):
        read = table(f"pagecounts-20160801-{hour:02}0000.txt", " ", ["lang", "page", "count", "bytes"])
        yield Grouped(read["lang"].combine_chunks(), texts_of(read["page"]), read["bytes"].combine_chunks())


def sales() -> Iterator[Grouped]:
    """Items and prices by hour, by day, and by country and month."""
    read = table("retail_hour_category_2010-12_2011-06.csv", ";", ["time", "item", "country", "quantity", "price"])
    cents = pa.array(np.round(read["price"].to_numpy() * 100).astype(np.int64))
    times = read["time"].cast(pa.timestamp("ms")).cast(pa.int64())
    for groups in (
        pa.array(in_spans(times, HOUR_MS)),
        pa.array(in_spans(times, DAY_MS)),
        text_groups(read["country"], in_spans(times, 30 * DAY_MS)),
    ):
        yield Grouped(groups, texts_of(read["item"]), cents)


def edits() -> Iterator[Grouped]:
    """Pages by time, and added characters by channel."""
    by_page = table("wiki_edits_by_page_20150912_00-12h.tsv", "\t", ["time", "page"])
    read = table("wiki_edits_hour_category_20150912_00-12h.csv", ";", ["time", "channel", "added", "deleted"])
    texts, added = texts_of(by_page["page"]), read["added"].combine_chunks()
    for minutes in (15, 20, 30, 60):
        yield Grouped(pa.array(in_spans(by_page["time"], minutes * 60_000)), texts, added)
    yield Grouped(text_groups(read["channel"]), texts, added)


def tickers() -> Iterator[Grouped]:
    """Tickers and times of the day, by time."""
    with pa.input_stream(
        str(Path(FOLDER or "") / "twitter_ticker_2014-01_2015-03.jsonl.zst"), compression="zstd"
    ) as file:
        read = pa.json.read_json(io.BytesIO(file.read()))
    texts, times = texts_of(read["ticker"]), pa.array(read["timestamp"].to_numpy() % DAY_MS)
    for days in (7, 14, 30, 90):
        yield Grouped(pa.array(in_spans(read["timestamp"], days * DAY_MS)), texts, times)


MADE_UP: dict[str, Callable[[], Iterator[Grouped]]] = {
    "zipf 1.1": lambda: iter([zipf(1.1, 300_000)]),
    "zipf 1.4": lambda: iter([zipf(1.4, 300_000)]),
}
REAL: dict[str, Callable[[], Iterator[Grouped]]] = {
    "pagecounts": pages,
    "retail": sales,
    "wiki edits": edits,
    "ticker": tickers,
}
SOURCES = MADE_UP | (REAL if FOLDER else {})


def codes_of(groups: pa.Array) -> NDArray[np.int64]:
    codes: NDArray[np.int64] = groups.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


@pytest.mark.parametrize("name", thorough_except(["zipf 1.4"], SOURCES))
def test_distinct_is_within_three_standard_errors_of_the_exact_count(name: str) -> None:
    exact: list[NDArray[np.int64]] = []
    found: dict[int, list[NDArray[np.float64]]] = {precision: [] for precision in PRECISIONS}
    for grouped in SOURCES[name]():
        groups = codes_of(grouped.groups)
        pairs = np.unique(groups * len(grouped.texts.dictionary) + grouped.texts.indices.to_numpy())
        exact.append(np.bincount(pairs // len(grouped.texts.dictionary)))
        for precision in PRECISIONS:
            field = ResultField("users", Distinct(precision), ValueType("value", "text"))
            found[precision].append(np.array(result_of_groups(field, groups, grouped.texts)))
    counts = np.concatenate(exact)
    is_estimated = counts > EXACT_LIMIT
    for precision in PRECISIONS:
        errors = (np.concatenate(found[precision]) / counts - 1) / (1.04 / 2 ** (precision / 2))
        within = np.abs(errors) <= 3
        print(
            f"distinct, {name}, precision {precision}: {len(counts):,} groups, within three standard errors "
            f"{within.mean():.2%}; {is_estimated.sum():,} estimated, within {within[is_estimated].mean():.2%}, root "
            f"mean square {np.sqrt(np.mean(errors[is_estimated] ** 2)):.2f} standard errors"
        )
        assert np.all(errors[~is_estimated] == 0)
        assert is_estimated.any()
        assert within.mean() >= SHARE


@pytest.mark.parametrize("name", thorough_except(["zipf 1.4"], SOURCES))
def test_quantile_is_within_one_percent_of_the_value_at_its_rank(name: str) -> None:
    largest, compared, estimated = 0.0, 0, 0
    for grouped in SOURCES[name]():
        groups, numbers = codes_of(grouped.groups), grouped.numbers.to_numpy()
        order = np.lexsort((numbers, groups))
        ordered = np.split(numbers[order], np.cumsum(np.bincount(groups))[:-1])
        estimated += sum(len(np.unique(values)) > EXACT_LIMIT for values in ordered)
        for at in AT:
            found = result_of_groups(ResultField("q", Quantile(at), ValueType()), groups, grouped.numbers)
            for value, values in zip(found, ordered, strict=True):
                expected = int(values[int(np.ceil(round(at * len(values), 6))) - 1])
                error = abs(value - expected) / abs(expected) if expected else abs(value)
                largest, compared = max(largest, error), compared + 1
    print(f"quantile, {name}: {compared:,} quantiles, {estimated:,} groups estimated, largest error {largest:.3%}")
    assert estimated
    assert largest <= RELATIVE_ERROR * (1 + 1e-12)
