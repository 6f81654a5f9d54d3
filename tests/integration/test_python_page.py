"""The page about the Python API as a user follows it: its blocks run in order, with a broker that gets new records."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import skewless as sk
from helpers.docs_blocks import ROOT, blocks
from helpers.followed_page import set_up
from helpers.kafka import read
from helpers.stage_hosts import share_host
from helpers.waiting import WAIT_S, until

pytestmark = [pytest.mark.thorough, pytest.mark.broker]

PAGE = ROOT / "docs" / "how-to" / "python.md"
ONE = {"aggregator_partitions": 1}


@dataclass(frozen=True)
class Reader:
    """What a reader of the page has after its section *Set up*: a folder, a broker, and a program that sends orders."""

    folder: Path
    broker: str
    stop: Callable[[], None]
    """Ends the program."""

    def sent(self) -> int:
        """Return the number of orders so far."""
        return sum(1 for _ in read(self.broker, "orders"))


@pytest.fixture(scope="module")
def reader(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Return a reader, whose program the last test ends."""
    folder = tmp_path_factory.mktemp("page")
    with set_up(PAGE, folder, broker) as (environment, stop), pytest.MonkeyPatch.context() as patched:
        share_host(patched)
        patched.chdir(folder / "work")
        for name, value in environment.items():
            patched.setenv(name, value)
        admin = AdminClient({"bootstrap.servers": broker})
        until(lambda: "orders" in admin.list_topics(timeout=WAIT_S).topics)  # a reader is slower than the program
        yield Reader(folder / "work", broker, stop)


def test_python_page_blocks_run_in_order_with_the_documented_effect(
    reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    program: dict[str, Any] = {}
    _, *commands = (block for block in blocks(PAGE) if block.language == "sh")
    for block in blocks(PAGE):
        if block.language == "python" and not block.name:
            exec(block.text, program)  # noqa: S102 - the project's own page
        elif block in commands:
            done = subprocess.run(
                ["sh", "-ec", block.text], capture_output=True, text=True, timeout=WAIT_S, check=False
            )
            assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    printed = capsys.readouterr().out
    assert "name: orders\n" in printed
    assert "[('B7', 2, '18.0')]\nsplitter.python raised KeyError (shop.py:9)\nTraceback (most" in printed
    assert "window: 'soon' is not a duration above 0 such as 30s," in printed
    assert "\nrunning\n" in printed
    counts, rows = program["counts"], program["rows"]
    assert (counts.late.records, counts.invalid.records) == (0, 0)
    assert 0 < counts.records <= reader.sent()
    every = program["pipeline"].results("all")
    assert sum(result.count for result in every) == counts.records
    assert program["table"].column("sum_price").to_pylist() == [result.sum_price for result in rows]
    assert all(result.sum_price == result.count * Decimal("0.01") for result in every)


def test_pipeline_of_arguments_runs_with_them_next_to_the_file_of_another_pipeline(reader: Reader) -> None:
    (reader.folder / "pipeline.yaml").write_text("name: other\nsource: {topic: missing}\n")
    time = {"field": "at", "unit": "iso8601"}
    of_records: dict[str, Any] = {"key": "customer", "time": time, "window": "1h", "aggregates": ["count"]}
    pipeline = sk.Pipeline("orders", name="arguments", topics=ONE, **of_records)
    with pipeline.up() as run:
        reader.stop()
        counts = run.drain()
    assert counts.records == reader.sent() == sum(result.count for result in pipeline.results("all"))
    assert {result.key for result in pipeline.results()} == {"ada", "bob", "eve", "kim"}
    # No record has this field, so that no result is computed.
    invalid = sk.Pipeline("orders", name="invalid", key="user", topics=ONE)
    with (
        pytest.raises(sk.CheckFailedError, match=f"none of {reader.sent():,} records is in a result"),
        invalid.up() as run,
    ):
        run.drain()
