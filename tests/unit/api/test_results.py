"""Results in Python: rows with types, Arrow, pandas, and the table of a notebook."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import skewless as sk
from skewless.api.results import Results
from skewless.operations.results import topic

START_MS = 1_767_225_600_000
MINUTE_MS = 60_000
PIPELINE = sk.Pipeline(
    "orders",
    key="customer",
    values={"price": {"field": "price", "decimals": 2, "missing": "skip"}},
    aggregates=[sk.count(), sk.sum("price"), sk.mean("price"), sk.smallest("price")],
)


def record(minute: int, key: str, count: int, price: str | None, revision: int = 0) -> dict[str, Any]:
    start = START_MS + minute * MINUTE_MS
    of_price: dict[str, Any] = {
        "sum_price": price and Decimal(price),
        "mean_price": price and Decimal(price),
        "smallest_price": [],
    }
    return (
        {"key": key, "window_start": start, "window_end": start + MINUTE_MS, "count": count}
        | of_price
        | {"revision": revision}
    )


RECORDS = [
    record(0, "<b>", 1, "0.10"),
    record(1, "a", 1, "1"),
    record(1, "b", 2, None),
    record(1, "a", 3, "9007199254740993.01", 1),
]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Results]:
    changes = [(f"{result['window_start']}/{result['key']}".encode(), result) for result in RECORDS]
    monkeypatch.setattr(topic, "_all_changes", lambda _settings, _warn, _name: iter(changes))
    monkeypatch.setattr(topic, "closed_everywhere", lambda _settings, _stage: START_MS + 2 * MINUTE_MS)
    monkeypatch.setattr(topic, "require_topic", lambda _settings, _topic: None)
    return PIPELINE.results


def test_results_are_the_newest_revisions_as_typed_rows(read: Callable[..., Results]) -> None:
    assert [(result.key, result.count, result.sum_price) for result in read()] == [
        ("a", 3, Decimal("9007199254740993.01")),
        ("b", 2, None),
    ]
    assert [result.key for result in read("all", top=1, by="count")] == ["<b>", "a"]
    assert [result.window_start for result in read("2026-01-01T00:00:30")] == [START_MS]
    found = read("all")
    assert (len(found), found[-1].key, [type(result.mean_price) for result in found[:1]]) == (3, "b", [float])


def test_results_from_before_an_aggregate_was_added_have_none(read: Callable[..., Results]) -> None:
    with_more = sk.Pipeline(
        "orders",
        key="customer",
        values={"price": {"field": "price", "decimals": 2, "missing": "skip"}},
        aggregates=[sk.count(), sk.sum("price"), sk.max("price")],
    )
    results = with_more.results("all")
    assert [(result.count, result.max_price) for result in results] == [(1, None), (3, None), (2, None)]
    assert results.to_arrow()["max_price"].null_count == 3


def test_results_to_arrow_has_all_digits_and_to_pandas_doubles(read: Callable[..., Results]) -> None:
    table, frame = read().to_arrow(), read().to_pandas()
    assert table.schema.field("sum_price").type == pa.decimal128(38, 2)
    assert table.column("sum_price").to_pylist() == [Decimal("9007199254740993.01"), None]
    assert table.column("window_start").to_pylist() == [datetime(2026, 1, 1, 0, 1, tzinfo=UTC)] * 2
    assert [str(frame[name].dtype) for name in ("count", "sum_price", "mean_price")] == ["int64", "float64", "float64"]
    assert frame["window_start"].dt.tz is not None


def test_results_are_ordered_by_all_digits_and_those_without_a_number_are_last(
    read: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = {"a": "9007199254740992", "b": "9007199254740993", "c": None, "d": "-5"}
    changes = [(key.encode(), record(0, key, 1, price)) for key, price in prices.items()]
    monkeypatch.setattr(topic, "_all_changes", lambda _settings, _warn, _name: iter(changes))
    assert [result.key for result in read("all", by="sum_price")] == ["b", "a", "d", "c"]
    assert [result.key for result in read("all", top=1, by="sum_price")] == ["b"]


@pytest.mark.parametrize(("total", "expected"), [(2**63 - 1, "int64"), (-(2**63), "int64"), (2**63, "float64")])
def test_results_to_pandas_sums_of_whole_numbers_are_numbers(
    read: Callable[..., Results], monkeypatch: pytest.MonkeyPatch, total: int, expected: str
) -> None:
    whole = sk.Pipeline("orders", key="customer", aggregates=[sk.sum("n"), sk.largest("n")])
    found = record(0, "a", 1, None) | {"sum_n": Decimal(total), "largest_n": [2, 1]}
    monkeypatch.setattr(topic, "_all_changes", lambda _settings, _warn, _name: iter([(b"a", found)]))
    results = whole.results("all")
    frame = results.to_pandas()
    assert (str(frame["sum_n"].dtype), list(frame["sum_n"])) == (expected, [np.array([total], expected)[0]])
    assert results.to_arrow()["sum_n"].to_pylist() == [total]
    assert "<td style='text-align:left'>2, 1</td>" in results._repr_html_()


def test_results_to_pandas_whole_numbers_beside_an_absent_one_have_all_digits(
    read: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sk.Pipeline(
        "orders",
        key="customer",
        values={"n": {"field": "n", "missing": "skip"}},
        aggregates=[sk.count(), sk.sum("n"), sk.max("n"), sk.mean("n")],
    )
    numbers = {"a": 2**53 + 1, "b": None}
    changes = [
        (key.encode(), record(0, key, 1, None) | {"sum_n": number, "max_n": number, "mean_n": None})
        for key, number in numbers.items()
    ]
    monkeypatch.setattr(topic, "_all_changes", lambda _settings, _warn, _name: iter(changes))
    frame = whole.results("all").to_pandas()
    dtypes = [str(frame[name].dtype) for name in ("count", "sum_n", "max_n", "mean_n", "revision")]
    assert dtypes == ["int64", "Int64", "Int64", "float64", "int64"]
    for name in ("sum_n", "max_n"):
        assert (frame[name][0], frame[name].isna().tolist()) == (2**53 + 1, [False, True])


def test_results_in_a_notebook_are_a_table_without_markup_of_keys(read: Callable[..., Results]) -> None:
    page = read("all")._repr_html_()
    assert page.count("<tr>") == 4
    assert "&lt;b&gt;" in page
    assert "<td style='text-align:left'>2026-01-01T00:01:00Z</td>" in page
    assert repr(read("all")).startswith("Results(3 rows: key, window_start")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": "now"}, "^window: 'now' must be last, open, all, or"),
        ({"by": "max"}, "^by: max is not a result of this pipeline: count, sum_price"),
        ({"by": "smallest_price"}, "^by: smallest_price is not a number .results that are: count, sum_price, mean_pr"),
        ({"top": 0}, "^top: 0 must be at least 1"),
        ({"top": "3"}, "^top: '3' must be a whole number"),
        ({"top": 2.5}, "^top: 2.5 must be a whole number"),
        ({"window": datetime(2026, 1, 1, tzinfo=UTC)}, r"^window: datetime\..* must be last, open, all, or a time"),
        ({"window": 60}, "^window: 60 must be last, open, all, or a time"),
        ({"key": 5}, "^key: 5 is not text: keys are text, such as '5'"),
    ],
)
def test_results_of_an_invalid_choice_are_refused(
    read: Callable[..., Results], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(sk.ConfigurationError, match=message):
        read(**arguments)


def test_results_that_do_not_exist_are_a_failed_check(read: Callable[..., Results]) -> None:
    with pytest.raises(sk.CheckFailedError, match="no results for window 2020-01-01: choose last, open, all"):
        read("2020-01-01")


def test_follow_begins_at_the_end_of_the_topic_at_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class Offsets:
        def __init__(self, _kafka: object) -> None:
            pass

        def end(self, topic: str) -> dict[int, int]:
            read.append(topic)
            return {0: 7}

    monkeypatch.setattr(topic, "require_topic", lambda _settings, _topic: None)
    monkeypatch.setattr(topic, "OffsetReader", Offsets)
    PIPELINE.follow()
    assert read == ["orders.aggregates"]
    with pytest.raises(sk.ConfigurationError, match=r"^key: 5 is not text"):
        PIPELINE.follow(key=5)  # type: ignore[arg-type] # as a user may
