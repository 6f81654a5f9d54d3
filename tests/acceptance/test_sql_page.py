"""The page about SQL as a user follows it, from nothing to a SELECT."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helpers.databases import running_servers
from helpers.debian import find_program
from helpers.docs_blocks import ROOT, blocks
from helpers.followed_page import follow, path_with_programs
from skewless.lab.local.broker import Broker

pytestmark = pytest.mark.thorough

PAGE = ROOT / "docs" / "how-to" / "sql.md"
RESET = "skewless reset -f sales.yaml --delete --yes"
FILE = Path("/tmp/clicks.db")  # noqa: S108 - the page names it


@pytest.mark.broker
def test_sql_page_commands_as_written_show_the_most_frequent_keys(tmp_path: Path) -> None:
    find_program("sqlite3", "sqlite3")
    FILE.unlink(missing_ok=True)
    try:
        up, select, last, check, _ = follow(PAGE, tmp_path)
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


@pytest.mark.broker
def test_sql_page_server_as_written_has_the_generated_sales(tmp_path: Path) -> None:
    """The second server counts the sales of the first one again."""
    page = {(block.language, block.name): block.text for block in blocks(PAGE)}
    check, run = (block.text for block in blocks(PAGE) if (block.language, block.name) == ("sh", "server"))
    produce, up = run.splitlines()
    assert up == "skewless up -f sales.yaml --drain"
    environment = os.environ | {"PATH": path_with_programs(tmp_path)}
    with running_servers() as started, Broker() as broker:
        environment |= {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap}

        def output_of(*commands: str) -> str:
            shell = ["bash", "-euo", "pipefail", "-c", "\n".join(commands)]
            done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout + done.stderr

        for dialect, before in {"postgresql": produce, "mysql": RESET}.items():
            server = started(dialect)
            server.execute("DROP USER skewless")  # which the tests of the sink use
            for statement in page["sql", dialect].split(";\n")[:-1]:
                server.execute(statement)
            write_files(tmp_path, page, server.url("shop"))
            # The check exits with 1, because the tables are missing before the first run.
            output = output_of(f"{check.rstrip()} || true", before, up)
            assert "the sink creates missing tables when it starts" in output
            assert output.count("finished, exit code 0") == 9  # with four workers and the flusher
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
