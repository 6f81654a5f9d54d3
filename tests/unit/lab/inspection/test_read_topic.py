"""The parts of a topic from which its format is detected."""

from __future__ import annotations

import pytest

from skewless.lab.inspection.read_topic import PARTS, parts_of


@pytest.mark.parametrize("size", [0, 1, 3, 10, 79, 80, 81, 1_000])
def test_parts_are_evenly_spaced_and_have_no_record_twice(size: int) -> None:
    parts = parts_of({0: (5, 5 + size), 3: (7, 8)}, 10)
    found = [offset for part in parts for offset in range(*part[0])]
    assert len(parts) == PARTS
    assert (len(found), len(set(found))) == (min(size, 80), min(size, 80))
    assert found == sorted(found)
    if size:
        assert (found[0], found[-1]) == (5, 4 + size)
    assert [offset for part in parts for offset in range(*part[3])] == [7]
