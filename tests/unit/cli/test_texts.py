"""Texts in the output of commands: durations, times and names of fields."""

from __future__ import annotations

import pytest

from skewless.algorithms.watermark import WatermarkGenerator
from skewless.cli.plain_text import duration, field_label, iso


@pytest.mark.parametrize(
    ("seconds", "digits", "text"),
    [
        (0.4, 3, "0.4 s"),
        (90, 3, "1.5 min"),
        (7_200, 3, "2 h"),
        (129_600, 3, "1.5 d"),
        (86_400 * 999.7, 3, "1,000 d"),
        (86_400 * 999.7, 4, "999.7 d"),
        (86_400 * 20_454.3, 4, "20,454 d"),
    ],
)
def test_duration_has_its_largest_unit_and_no_exponent(seconds: float, digits: int, text: str) -> None:
    assert duration(seconds, digits) == text


@pytest.mark.parametrize(
    ("lateness_s", "text"), [(0, "2026-01-01T00:01:12Z"), (10**10, "1709-02-11T06:14:32Z"), (10**11, "-98232774328000")]
)
def test_time_of_a_watermark_with_a_long_lateness_is_text(lateness_s: int, text: str) -> None:
    watermark = WatermarkGenerator(lateness_s * 1000, 1_767_225_672_900).watermark()
    assert watermark is not None
    assert iso(watermark) == text


@pytest.mark.parametrize(("name", "label"), [("1", "column 1"), ("user.id", "user.id"), ("record key", "record key")])
def test_field_label_of_a_number_is_a_column(name: str, label: str) -> None:
    assert field_label(name) == label
