"""Completion times of results, computed from the changelog records of windows without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from skewless.algorithms.windowing.assigner import HoppingWindows
from skewless.spark.latency import completed, latencies
from skewless.spark.topic_rows import CELLS
from skewless.wire.columns import write_table

TUMBLING = HoppingWindows(60_000, 60_000)
COLUMNS = ("window", "compacted", "key", "tuples", "timestamp_ms", "offset")


def test_latency_result_is_complete_with_the_first_record_after_which_nothing_is_missing() -> None:
    rows = [
        (0, 0, "a", 2, 10, 0),
        (0, 0, "a", 3, 20, 1),
        (0, 0, "b", 1, 20, 1),
        (0, 0, "b", 1, 30, 2),
    ]  # fmt: skip
    assert done(rows) == {("a", 0): 20, ("b", 0): 30}


def test_completed_with_compacted_records_restarts_the_count_of_their_keys() -> None:
    rows = [
        (0, 0, "a", 2, 10, 0),
        (0, 0, "b", 1, 20, 1),
        (0, 1, "a", 2, 30, 2),
        (0, 1, "b", 1, 30, 3),
        (0, 0, "b", 5, 40, 6),
        (0, 1, "a", 3, 50, 7),
        (0, 1, "b", 6, 50, 8),
    ]  # fmt: skip
    assert done(rows) == {("a", 0): 50, ("b", 0): 40}


def done(rows: list[tuple[int, int, str, int, int, int]]) -> dict[tuple[str, int], int]:
    columns = zip(*rows, strict=True)
    found = completed(pa.table(dict(zip(COLUMNS, map(list, columns), strict=True)))).to_pylist()
    return {(row["key"], row["window"]): row["complete_at"] for row in found}


def test_latencies_result_that_lacks_tuples_has_none() -> None:
    sent = [(0, "a", 0, 3, 3, 10, 20), (0, "b", 1, 1, 1, 10, 10)]
    counted = [(0, 0, "a", 2, 25, 0), (0, 0, "b", 1, 30, 1)]
    (found,) = latencies([block("sent", CELLS, sent), block("changelog", COLUMNS, counted)], [TUMBLING])
    assert found.to_pylist() == [{"run": 0, "window": 0, "latency_ms": 20, "results": 1}]


def block(kind: str, names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    return pa.record_batch({"run": [0], "kind": [kind], "block": [write_table(table)]})
