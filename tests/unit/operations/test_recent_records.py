"""Records of transactions that were committed since a time, by the offsets of records and markers."""

from __future__ import annotations

import pytest

from skewless.operations.recent_records import committed_since


@pytest.mark.parametrize(
    ("records", "start", "expected"),
    [
        ([], 5, 0),
        ([0, 1, 2, 4, 5], 3, 5),  # the marker of the first transaction: all of its records and the later ones
        ([0, 1, 3, 4, 6], 5, 3),  # the marker of the second one
        ([0, 1, 3, 4], 5, 2),
        ([0, 1, 3, 4], 6, 0),  # two markers in a row: the transaction had no records in this partition
        ([0, 1, 3, 4], 3, 2),  # a record with this time
        ([0, 1, 2], 10, 0),
        ([0, 1, 2, 4], 1, 4),  # a record with this time: its transaction is committed later
    ],
)
def test_committed_since_offset_of_the_first_commit_counts_its_transaction(
    records: list[int], start: int, expected: int
) -> None:
    assert committed_since(records, start) == expected


def test_committed_since_without_markers_counts_each_record_by_its_own_time() -> None:
    assert committed_since([0, 1, 2, 3], 2, has_markers=False) == 2
