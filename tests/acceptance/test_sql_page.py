"""The page about SQL as a user follows it, from nothing to a SELECT."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.databases import running_servers
from helpers.debian import find_program
from helpers.docs_blocks import ROOT, blocks
from helpers.followed_page import Reader

pytestmark = pytest.mark.thorough

PAGE = ROOT / "docs" / "how-to" / "sql.md"
RESET = "skewless reset -f sales.yaml --delete --yes"


def test_sql_page_commands_as_written_show_the_most_frequent_keys(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_program("sqlite3", "sqlite3")
    up, select, last, check = Reader(tmp_path, broker, monkeypatch).follow(PAGE, tmp_path / "work")
    assert up.count("finished, exit code 0") >= 6
    rows = [line.split("|") for line in select.splitlines()]
    assert len(rows) == 3
    counts = [int(count) for _, count in rows]
    assert counts == sorted(counts, reverse=True)
    assert 2_000 < counts[0] < 4_000  # about a seventh of 20,000 records have the most frequent key
    assert len(last.splitlines()) == 3
    assert check.startswith(f"table clicks_by_minute in {tmp_path}/work/clicks.db is as needed")


def test_sql_page_server_as_written_has_the_generated_sales(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second server counts the sales of the first one again."""
    page = {(block.language, block.name): block.text for block in blocks(PAGE)}
    check, run = (block.text for block in blocks(PAGE) if (block.language, block.name) == ("sh", "server"))
    produce, up = run.splitlines()
    assert up == "skewless up -f sales.yaml --drain"
    export, check = check.splitlines()
    reader = Reader(tmp_path, broker, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    reader.run(export)
    with running_servers() as started:
        for dialect, before in {"postgresql": produce, "mysql": RESET}.items():
            server = started(dialect)
            server.execute("DROP USER skewless")  # which the tests of the sink use
            for statement in page["sql", dialect].split(";\n")[:-1]:
                server.execute(statement)
            write_files(tmp_path, page, server.url("shop"))
            # The tables are missing before the first run.
            missing = reader.run(check, code=1, errors=True)
            assert "the sink creates missing tables when it starts" in missing
            reader.run(before)
            assert reader.run(up).count("finished, exit code 0") == 9  # with four workers and the flusher
            sums = [row[3] for row in server.execute(page["sql", "select"].strip().removesuffix(";"), "shop")]
            assert (len(sums), sums) == (10, sorted(sums, reverse=True))
            assert server.execute("SELECT sum(count) FROM sales_results", "shop") == [(50_000,)]


def write_files(folder: Path, page: dict[tuple[str, str], str], url: str) -> None:
    """Write the files of both examples of a server, with an address of this test instead of those of the page."""
    example, pipeline = "url: mysql://db.example.com/shop", page["yaml", "sales.yaml"]
    assert example in pipeline
    (folder / "sales.yaml").write_text(pipeline.replace(example, f"url: {url}"))
    lines = page["yaml", "shop.yaml"].splitlines()
    shop = [f"  url: {url}" if "url:" in line else line for line in lines if "tls:" not in line]
    assert len(shop) == len(lines) - 1
    (folder / "shop.yaml").write_text("\n".join(shop))
