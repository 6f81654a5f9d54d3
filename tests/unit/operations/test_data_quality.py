"""Shares of late tuples and invalid records, what would change them, and the warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.aggregates import LOAD_COLUMN
from skewless.algorithms.windowing.assigner import HoppingWindows, WindowAssigner, tumbling
from skewless.config.pipeline_settings import PipelineSettings
from skewless.operations.data_quality import (
    DataQuality,
    Invalid,
    LateTuple,
    Reasons,
    first_ends,
    increase_ms,
    late_of,
    missing_lateness_ms,
    readable_s,
    tuples_in,
    warnings,
)
from skewless.operations.dead_letters import Position
from skewless.wire.columns import write_table
from skewless.wire.rows import KEY_AND_PANE

KEYS = pa.array(["a", "b"]).dictionary_encode()


def settings(**sections: Any) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "clicks"}, **sections})


def late(*tuples: tuple[int, int], accepted: int = 0) -> DataQuality:
    return DataQuality(late=len(tuples), accepted=accepted, late_tuples=[LateTuple(*found) for found in tuples])


def invalid(reason: str, offset: int) -> Invalid:
    return Invalid(reason, Position("clicks", 0, offset), '{"usr": 1}')


@pytest.mark.parametrize(
    ("quality", "share"),
    [
        (DataQuality(invalid=10, accepted=990), None),
        (DataQuality(invalid=11, accepted=989), "1.1 %"),
        (DataQuality(invalid=9, accepted=0), None),  # too few for a share
        (DataQuality(invalid=10, late=10), "50 %"),
    ],
)
def test_warnings_invalid_records_above_one_percent_are_one(quality: DataQuality, share: str | None) -> None:
    found = warnings(quality, settings(), 1.0).get("invalid")
    assert (found is None) == (share is None)
    assert found is None or found.startswith(f"{share} of the recent records are invalid")


def test_warnings_name_the_commonest_reason_with_its_newest_record() -> None:
    reasons = Reasons([invalid("no key", 1), invalid("no time", 2), None, invalid("no key", 3), invalid("no time", 4)])
    reasons.add(invalid("no key", 5))
    quality = DataQuality(invalid=100, commonest=reasons.commonest())
    assert warnings(quality, settings(), 1.0) == {
        "invalid": '100 % of the recent records are invalid, mostly "no key", such as clicks/0/5: {"usr": 1}'
    }
    assert Reasons().commonest() is None


def test_tuples_in_a_record_are_its_tuples_or_those_of_its_rows() -> None:
    tuples = pa.table([KEYS, pa.array([1, 2]), pa.array([3, 4])], names=["key", "value", "time"])
    counts = pa.array(np.array([5, 7]), LOAD_COLUMN.type)
    rows = pa.table(
        [KEYS, pa.array([0, 0]), counts], schema=pa.schema([*KEY_AND_PANE, (LOAD_COLUMN.name, counts.type)])
    )
    assert [tuples_in(write_table(tuples)), tuples_in(write_table(rows)), tuples_in(None)] == [2, 12, 0]


def test_warnings_late_tuples_above_the_share_name_the_lateness_that_is_enough() -> None:
    quality = late(*[(59_000, 61_500)] * 11, accepted=10_989)
    own = settings(event_time={"allowed_lateness_s": 2}, aggregator={"window_s": 60})
    assert warnings(quality, own, 0.001) == {}
    assert warnings(quality, own, 0.0009) == {
        "late": "0.1 % of the recent tuples are late and in no result; with event_time.allowed_lateness_s: 3.6 instead "
        "of 2, at most 0.09 % would be late"
    }
    assert warnings(late(*[(0, 10**6)] * 9), own, 0.001) == {}  # too few for a share


@pytest.mark.parametrize(
    ("max_late_share", "expected"),
    [(0.0, 100_001), (0.01, 90_001), (0.05, 50_001), (0.099, 10_001)],
)
def test_increase_leaves_the_share_of_the_tuples_that_are_latest(max_late_share: float, expected: int) -> None:
    quality = late(*[(30_000, 60_000 + late_ms) for late_ms in range(10_000, 100_001, 10_000)], accepted=90)
    assert increase_ms(quality, tumbling(60_000), max_late_share) == expected


@pytest.mark.parametrize(
    ("windows", "times", "ends"),
    [
        (tumbling(60), [0, 59, 60], [60, 60, 120]),
        (HoppingWindows(60, 20), [0, 19, 20, 59], [20, 20, 40, 60]),
        (HoppingWindows(50, 20), [0, 9, 10, 19, 20], [10, 10, 30, 30, 30]),
        (HoppingWindows(60, 60, 7), [6, 7], [7, 67]),
    ],
)
def test_first_ends_are_the_smallest_ends_of_the_windows_of_each_time(
    windows: WindowAssigner, times: Sequence[int], ends: Sequence[int]
) -> None:
    assert first_ends(np.array(times, dtype=np.int64), windows).tolist() == ends


def test_missing_lateness_is_the_smallest_with_which_the_window_is_open() -> None:
    newest, allowed, end = 100_000, 2_000, 95_000
    (missing,) = missing_lateness_ms(np.array([newest - allowed]), np.array([end])).tolist()
    assert end + allowed + missing > newest >= end + allowed + missing - 1


@pytest.mark.parametrize(("ms", "seconds"), [(1, 0.001), (51, 0.051), (123, 0.13), (2_000, 2), (540_001, 550)])
def test_readable_time_has_two_digits_and_is_not_less(ms: int, seconds: float) -> None:
    assert readable_s(ms) == seconds


def test_late_tuple_is_read_from_a_record_with_any_values_and_another_record_is_left_out() -> None:
    assert late_of((), b'{"key": "k", "clicks": 1, "time": 5, "watermark": 9, "partition": 0}') == LateTuple(5, 9)
    assert late_of((), b"{") is None
    assert late_of((), None) is None
