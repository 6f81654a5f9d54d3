"""Joins of real records, without and with kills: a plain join and an audit by Spark find the same outcomes.

The records are those of $SKEWLESS_DATA, in the order of their times. `make join-data` runs these tests.

- Impressions and clicks: the data have no click times, so a delay was chosen. Click number n, in the order of the file,
  follows its impression after 1 + 37 n mod 60 seconds. Clicks arrive out of order by up to 30 s.
- Leads and deals: real times on both sides. The deal follows its lead after days to months.
"""
# ruff: noqa: S311 - the records are seeded, not secret

from __future__ import annotations

import json
import os
import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from helpers.input_lines import FOLDER
from helpers.join_oracle import Event, answer
from helpers.joined import Joined
from helpers.killer import Killer
from skewless.algorithms.join.window_join import Side
from skewless.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(FOLDER is None, reason="needs the folder of real data in SKEWLESS_DATA")

PARTITIONS = 3
KILLS = int(os.environ.get("SKEWLESS_KILLS", "20"))
CLICK_DELAY_S = 60
CLICK_DISORDER_S = 30
DAY_S = 86_400
LEFT, RIGHT = Side

Sides = dict[Side, list[tuple[int, str]]]
"""Event time in ms and line of each record, in the order in which they are written."""


def lines(name: str) -> list[str]:
    with pa.input_stream(str(Path(FOLDER or "") / f"{name}.zst"), compression="zstd") as file:
        text: str = file.read().decode()
    return text.splitlines()


def ads() -> Sides:
    clicked_at = [
        (int(at) + (1 + 37 * number % CLICK_DELAY_S) * 1_000, record_id)
        for number, (record_id, at) in enumerate(line.split(";") for line in lines("ads_obd_men_clicks.csv"))
    ]
    chance = random.Random(1)
    arrivals = {click: click[0] + chance.randrange(CLICK_DISORDER_S * 1_000) for click in clicked_at}
    return {
        LEFT: sorted((int(line.split(";")[1]), line) for line in lines("ads_obd_men_impressions.csv")),
        RIGHT: [(at, f"{record_id};{at}") for at, record_id in sorted(clicked_at, key=arrivals.__getitem__)],
    }


def leads() -> Sides:
    files = {side: f"leads_olist_2017-06_2018-02_{side.value}.csv" for side in Side}
    return {side: sorted((instant(line.split(";")[1]), line) for line in lines(file)) for side, file in files.items()}


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@dataclass(frozen=True)
class Case:
    """A pair of files, and the settings of their join."""

    records: Callable[[], Sides]
    unit: str
    columns: dict[Side, list[str]]
    spans: dict[str, float]
    pairs: int


CASES = {
    "impressions and clicks": Case(
        ads,
        "ms",
        {LEFT: ["id", "time", "item", "position"], RIGHT: ["id", "time"]},
        {"apart_s": CLICK_DELAY_S, "sync_delay_s": CLICK_DELAY_S + CLICK_DISORDER_S},
        115,
    ),
    "leads and deals": Case(
        leads,
        "iso8601",
        {LEFT: ["id", "time", "page", "origin"], RIGHT: ["id", "time", "segment", "type"]},
        {"apart_s": 540 * DAY_S, "sync_delay_s": 540 * DAY_S, "max_watermark_drift_s": 540 * DAY_S},
        286,
    ),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
@pytest.mark.parametrize("name", CASES)
def test_join_of_real_records_equals_a_plain_join_and_the_audit(
    name: str, *, killed: bool, broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    case = CASES[name]
    records = case.records()
    tested = Joined(broker, tmp_path, dict.fromkeys(Side, PARTITIONS), **case.spans)
    for side in Side:
        tested.document["join"][side.value] |= {
            "format": {"name": "csv", "delimiter": ";", "columns": case.columns[side]},
            "time": {"field": "time", "unit": case.unit},
        }
    tested.load()
    if killed:
        run_with_kills(tested, records)
    else:
        for side in Side:
            send(tested, side, records[side])
    tested.drain()
    expected = plain_join(tested, records)
    assert written(tested) == expected
    assert sum(count for (topic, *_), count in expected.items() if topic == "joined") == case.pairs
    audit = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert audit.exit_code == 0, audit.output
    report = json.loads(audit.stdout)
    assert (report["differences"], report["dead_letters"], report["left_out"]) == (0, 0, {})
    assert report["compared"] == expected.total()


def send(tested: Joined, side: Side, records: list[tuple[int, str]]) -> None:
    for at, line in records:
        record_id = line.partition(";")[0].encode()
        tested.producer.produce(tested.topics[side], line, record_id, partition=partition_of(line), timestamp=at)
        tested.producer.poll(0)
    tested.flush()


def partition_of(line: str) -> int:
    return zlib.crc32(line.partition(";")[0].encode()) % PARTITIONS


def run_with_kills(tested: Joined, records: Sides) -> None:
    """Write both sides in portions, and kill one of two processes after each of them."""
    tested.document["replicas"] = {"join": 2}
    tested.load()
    chance = random.Random(2)
    supervisor = tested.supervisor(drain=False)
    killer = Killer(supervisor)
    try:
        supervisor.start()
        for number in range(KILLS):
            for side, log in records.items():
                send(tested, side, log[number * len(log) // KILLS : (number + 1) * len(log) // KILLS])
            killer.kill(f"join-{chance.randrange(2)}", after_s=chance.uniform(0.0, 2.5))
    finally:
        supervisor.stop()


def plain_join(tested: Joined, records: Sides) -> Counter[tuple[Any, ...]]:
    """Return the outcomes of the definition: topic, partition and lines."""
    assert tested.settings.join is not None
    expected: Counter[tuple[Any, ...]] = Counter()
    for partition in range(PARTITIONS):
        logs = {side: [each for each in log if partition_of(each[1]) == partition] for side, log in records.items()}
        left, right = ([Event(line.partition(";")[0], at) for at, line in logs[side]] for side in Side)
        found = answer(left, right, tested.settings.join.rules(), ended=True)
        assert not found.late_left
        assert not found.late_right
        expected.update(("joined", partition, logs[LEFT][l_at][1], logs[RIGHT][r_at][1]) for l_at, r_at in found.pairs)
        expected.update(("unmatched-left", partition, logs[LEFT][at][1]) for at in found.unmatched_left)
        expected.update(("unmatched-right", partition, logs[RIGHT][at][1]) for at in found.unmatched_right)
    return expected


def written(tested: Joined) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter(
        ("joined", each["partition"], each["left"], each["right"]) for each in tested.read("joined")
    )
    for topic in ("unmatched-left", "unmatched-right", "join-late"):
        found.update((topic, each["partition"], each["record"]) for each in tested.read(topic))
    return found
