"""The page about SQL as a user follows it, from nothing to a SELECT."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.debian import find_program
from helpers.docs_blocks import ROOT
from helpers.followed_page import follow

FILE = Path("/tmp/clicks.db")  # noqa: S108 - the page names it


@pytest.mark.broker
def test_sql_page_commands_as_written_show_the_most_frequent_keys(tmp_path: Path) -> None:
    find_program("sqlite3", "sqlite3")
    FILE.unlink(missing_ok=True)
    try:
        up, select, last, check, _ = follow(ROOT / "docs" / "how-to" / "sql.md", tmp_path)
    finally:
        for name in ("clicks.db", "clicks.db-wal", "clicks.db-shm"):
            FILE.with_name(name).unlink(missing_ok=True)
    assert up.count("finished, exit code 0") >= 6
    rows = [line.split("|") for line in select.splitlines()]
    assert len(rows) == 3
    counts = [int(count) for _, count in rows]
    assert counts == sorted(counts, reverse=True)
    assert 2_000 < counts[0] < 4_000  # about a seventh of 20,000 records have the most frequent key
    assert len(last.splitlines()) == 3
    assert check.startswith("table clicks_by_minute in /tmp/clicks.db is as needed")
