"""Times and durations as users write them."""

from __future__ import annotations

import pytest

from skewless.times import instant_text


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (9_600_000_000_001, "2274-03-19T02:40:00.001Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000"),
        (-(2**63), "-9223372036854775808"),
    ],
)
def test_instant_text_has_each_millisecond(time_ms: int, expected: str) -> None:
    assert instant_text(time_ms) == expected
