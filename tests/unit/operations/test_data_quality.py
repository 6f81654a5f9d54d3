"""Shares of invalid records, their commonest reason, and the warnings of both."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.aggregates import LOAD_COLUMN
from skewless.operations.data_quality import DataQuality, Invalid, Reasons, tuples_in, warnings
from skewless.operations.dead_letters import Position
from skewless.wire.columns import write_table
from skewless.wire.rows import KEY_AND_PANE

KEYS = pa.array(["a", "b"]).dictionary_encode()


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
    found = warnings(quality).get("invalid")
    assert (found is None) == (share is None)
    assert found is None or found.startswith(f"{share} of the recent records are invalid")


def test_warnings_name_the_commonest_reason_with_its_newest_record() -> None:
    reasons = Reasons([invalid("no key", 1), invalid("no time", 2), None, invalid("no key", 3), invalid("no time", 4)])
    reasons.add(invalid("no key", 5))
    quality = DataQuality(invalid=100, commonest=reasons.commonest())
    assert warnings(quality) == {
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
