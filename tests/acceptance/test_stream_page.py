"""The page of `skewless stream` as a user follows it: its query gives the figures of a count of the topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.docs_blocks import ROOT
from helpers.followed_page import follow

pytestmark = [pytest.mark.thorough, pytest.mark.spark]

RECORDS = 100_000


def test_stream_page_commands_as_written_give_the_figures_of_a_count(broker: str, tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "stream-on-spark.md"
    _start, streamed, audited, _stop, _ = follow(page, tmp_path, broker)
    lines = streamed.splitlines()
    assert f"{RECORDS:,} records read" in lines
    results = [line for line in lines if "count" in line][-3:]
    assert len(results) == 3
    assert f"{RECORDS:,} records, {RECORDS:,} tuples, 0 late" in audited
    assert "no differences" in audited
