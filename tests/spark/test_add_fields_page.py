"""The page about fields of other topics, followed as it is written. A command of the page is `skewless audit`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from helpers.docs_blocks import ROOT
from helpers.followed_page import Reader


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_add_fields_page_commands_as_written_count_views_by_country(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path, broker, monkeypatch)
    up, results = reader.follow(ROOT / "docs" / "how-to" / "add-fields.md", tmp_path / "work")
    users = Counter(("de", "fr", "it")[number * number % 500 % 3] for number in range(20_000))
    assert "enricher-0" in up
    shown = re.findall(r"  (de|fr|it)  count ([\d,]+)", results)
    assert {country: int(count.replace(",", "")) for country, count in shown} == users
