"""The page about other windows: two pipelines that overlap give each window once."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.docs_blocks import ROOT, blocks
from helpers.kafka import SLOW_FETCHES, Source, read
from helpers.stage_hosts import stage_host
from helpers.waiting import until
from skewless.cli.main import main
from skewless.config import topic_plan
from skewless.config.loader import load
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local.supervisor import Supervisor

pytestmark = [pytest.mark.thorough, pytest.mark.broker]

PAGE = ROOT / "docs" / "how-to" / "change-windows.md"
CHANGE_MS = 1_767_229_200_000
"""T: the start of an hour."""
STEP_MS = 500
KEYS = 7


@contextmanager
def running(file: Path) -> Iterator[Supervisor]:
    """Run all stages of a pipeline file until the end of the block."""
    settings = load(file, os.environ)
    topic_plan.apply(settings)
    supervisor = Supervisor(file, settings, drain=False, logs=file.parent, host=stage_host())
    try:
        supervisor.start()
        yield supervisor
    finally:
        supervisor.stop()


def poll(*supervisors: Supervisor) -> None:
    for supervisor in supervisors:
        supervisor.poll(time.monotonic())


def times(first: int, end: int) -> list[int]:
    return [CHANGE_MS + at * STEP_MS for at in range(first, end)]


def send(source: Source, of: list[int]) -> None:
    entries = ({"key": f"k{at // STEP_MS % KEYS}", "time": at} for at in of)
    source.send((at % 2, json.dumps(entry).encode()) for at, entry in enumerate(entries))


def counted(of: list[int], window_ms: int) -> Counter[tuple[int, str]]:
    """Return a plain count: by start of the window and key."""
    return Counter((at // window_ms * window_ms, f"k{at // STEP_MS % KEYS}") for at in of)


def results(broker: str, topic: str) -> dict[tuple[int, str], int]:
    last: dict[tuple[int, str], int] = {}
    for record in read(broker, topic):
        assert record.value is not None
        result = json.loads(record.value)
        last[result["window_start"], result["key"]] = result["count"]
    return last


def test_change_windows_page_two_pipelines_give_each_window_once(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    monkeypatch.setenv("SKEWLESS__KAFKA__OPTIONS", json.dumps(SLOW_FETCHES))
    source = Source(broker, 2)
    minutes, quarters = (tmp_path / name for name in ("minutes.yaml", "quarters.yaml"))
    for block in blocks(PAGE):
        if block.language == "yaml":
            assert block.name is not None
            (tmp_path / block.name).write_text(block.text.replace("topic: clicks", f"topic: {source.topic}"))
    offsets = OffsetReader(load(minutes, os.environ).kafka)
    before, around = times(-4_000, -1_900), times(-1_900, 9_000)

    def has_read(pipeline: str) -> bool:
        committed = offsets.committed(f"{pipeline}-splitter", source.topic)
        return sum(found.offset for found in committed.values()) == len(before)

    with running(minutes) as old_run:
        send(source, before)
        until(lambda: has_read("minutes"), each=lambda: poll(old_run), every_s=0.2)
        with running(quarters) as new_run:
            until(lambda: has_read("quarters"), each=lambda: poll(new_run), every_s=0.2)
            send(source, around)
            expected = {at: count for at, count in counted(before + around, 60_000).items() if at[0] < CHANGE_MS}
            expected |= {at: count for at, count in counted(around, 900_000).items() if at[0] >= CHANGE_MS}

            def united() -> dict[tuple[int, str], int]:
                old = {at: count for at, count in results(broker, "minutes.aggregates").items() if at[0] < CHANGE_MS}
                new = results(broker, "quarters.aggregates")
                return old | {at: count for at, count in new.items() if at[0] >= CHANGE_MS}

            until(lambda: united() == expected, each=lambda: poll(old_run, new_run), every_s=0.5)
            status = CliRunner().invoke(main, ["status", "-f", str(minutes)])
            assert status.exit_code in {0, 1}, status.output
            assert "windows" in status.output
        document = minutes.read_text().replace("window_s: 60", "window_s: 900")
    minutes.write_text(document)
    refused = CliRunner().invoke(main, ["run", "aggregator", "-f", str(minutes)])
    assert (refused.exit_code, "window" in refused.output) == (2, True), refused.output
