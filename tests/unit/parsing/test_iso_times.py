"""Event times as text: each form of ISO 8601 is read as what it means, or refused."""

from __future__ import annotations

import pytest

import skewless as sk

PIPELINE = sk.Pipeline("t", key="k", time={"field": "t", "unit": "iso8601"}, window="1s")


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T10:30:00.5Z",
        "2026-01-01T10:30:00,5Z",
        "2026-01-01 10:30:00.500+00:00",
        "2026-01-01T11:30:00.500000+01:00",
        "20260101T103000.5Z",
        "2026-01-01T11:30:00.5+0100",
        "2026-W01-4T10:30:00.5Z",
        "2026-01-01T10:30:00.5",
        "2026-01-01T16:00:00.5+05:30",
    ],
)
def test_iso_time_of_each_form_is_exact(text: str) -> None:
    tumbling = sk.Pipeline("t", key="k", time={"field": "t", "unit": "iso8601"}, window=0.5)
    (result,) = sk.testing.run(tumbling, [{"k": "a", "t": text}]).results
    assert result.window_start == 1_767_263_400_500


@pytest.mark.parametrize("text", ["2026-01-01T10:30", "2026-01-01T10:30Z", "2026-01-01T11:30+01:00", "20260101T1030"])
def test_iso_time_without_seconds_is_that_of_the_minute(text: str) -> None:
    (result,) = sk.testing.run(PIPELINE, [{"k": "a", "t": text}]).results
    assert result.window_start == 1_767_263_400_000


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T10:30.5Z",  # half a minute, which Python reads as half a second
        "2026-01-01 19.39",
        "2026-01-01T15:35:015+05:45",
        "2026-01-01T01:493Z",
        "2026-01-01T10:30:00W+05:45",
        "2026-01-01T10:30+01:60",
        "2026-01-01T10:30:00+01:60",
        "2026-01-01T10:30:00.5+01:99",
        "2026-01-01T10:30:00+0160",
        "2026-01-01T10:30:00+01:30:99",
    ],
)
def test_iso_time_that_python_reads_as_another_one_is_refused(text: str) -> None:
    outcome = sk.testing.run(PIPELINE, [{"k": "a", "t": text}])
    assert [record.reason for record in outcome.invalid] == ["time field t is not ISO 8601"]
    assert outcome.results == []
