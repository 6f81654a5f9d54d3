"""Completion times of results and the windows of tuples, computed from records of topics without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.windowing.assigner import HoppingWindows
from skewless.config.pipeline_settings import PipelineSettings
from skewless.spark import key_statistics
from skewless.spark.latency import completed, latencies
from skewless.spark.pipeline_run import PipelineRun
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


DAY_MS, TIME = 86_400_000, 1_767_225_600_000 + 3_600_000
"""TIME is 2026-01-01 01:00 UTC."""


@pytest.mark.parametrize(
    ("window", "start"),
    [
        ({"size_s": 86_400}, TIME - 3_600_000),
        ({"size_s": 86_400, "offset_s": 7_200}, TIME - 3_600_000 - DAY_MS + 7_200_000),
        ({"size_s": 7_200, "every_s": 3_600, "offset_s": 1_800}, TIME - 1_800_000),
        ({"size": "day", "zone": "Europe/Berlin"}, TIME - 2 * 3_600_000),
    ],
    ids=["tumbling", "offset", "overlapping", "calendar"],
)
def test_key_statistics_windows_are_those_of_the_pipeline(window: dict[str, Any], start: int) -> None:
    document = {"name": "p", "source": {"topic": "t"}, "aggregator": {"window": window}}
    run = PipelineRun(PipelineSettings.model_validate(document), {})
    labels = key_statistics.Labels("p", 60_000, run.windows, [("key", 1)], [], 1)
    (found,) = key_statistics.cells([block("cells", CELLS, [(TIME, "a", 0, 1, 1, 0, 0)])], [labels])
    assert found["window"].to_pylist() == [start]
    assert start in run.settings.aggregator.windows.assign(np.array([TIME]))[1]
