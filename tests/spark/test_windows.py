"""Hopping and calendar windows on a real broker, with killed stages: a plain count and an audit find the same."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from click.testing import CliRunner

from helpers.kafka import STAGES, Feed, Pipeline, Record, Sent, Source, read
from skewless.cli.main import main
from skewless.lab.datasets.data_files import blocks
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import RecordColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
LATENESS_MS = 20_000
RATE = 500
BLOCK = 100
"""Consecutive real records of a partition."""
MOST = 200_000
"""Upper bound of the records of a feed that ends when all stages were killed."""
EARLIER = 2_000
"""Records with the first start of a case that has two: those of 25 hours in each partition."""
LEAST = 3 * EARLIER
"""Records at least, the last ones after the kills, so that the last start is reached and a window closes there."""
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


@dataclass(frozen=True)
class Case:
    """Windows, and the event times of made-up records that show them."""

    window: dict[str, Any]
    pane_s: float
    starts: tuple[datetime, ...]
    """Start of the first records, and of those after `EARLIER`."""
    step_ms: int
    """Event time between two records of a partition."""
    windows_of: Callable[[int], list[tuple[int, int]]]
    """The plain definition: start and end of all windows that contain a time."""
    killed: Sequence[str] = STAGES


def hopping(size_ms: int, every_ms: int, offset_ms: int) -> Callable[[int], list[tuple[int, int]]]:
    def windows_of(time: int) -> list[tuple[int, int]]:
        newest = (time - offset_ms) // every_ms * every_ms + offset_ms
        starts = range(newest, time - size_ms, -every_ms)
        return [(start, start + size_ms) for start in starts]

    return windows_of


def day_in(zone: ZoneInfo) -> Callable[[int], list[tuple[int, int]]]:
    def windows_of(time: int) -> list[tuple[int, int]]:
        date = datetime.fromtimestamp(time / 1000, zone).date()
        midnights = [datetime(day.year, day.month, day.day, tzinfo=zone) for day in (date, date + timedelta(days=1))]
        start, end = (round(midnight.timestamp() * 1000) for midnight in midnights)
        return [(start, end)]

    return windows_of


CASES = {
    "hopping": Case(
        {"size_s": 300, "every_s": 60, "offset_s": 15},
        15,
        (datetime(2026, 1, 1, tzinfo=UTC),),
        300,
        hopping(300_000, 60_000, 15_000),
    ),
    "days of 23 and 25 hours": Case(
        {"size": "day", "zone": "Europe/Berlin"},
        900,
        (datetime(2016, 3, 27, tzinfo=BERLIN), datetime(2016, 10, 30, tzinfo=BERLIN)),
        180_000,
        day_in(BERLIN),
        killed=("worker", "aggregator"),  # the stages that know windows
    ),
}


def made_up(case: Case, seed: int = 7) -> Iterator[Sent]:
    """Make records of skewed keys, out of order by up to ten seconds, and some of them late."""
    random = np.random.default_rng(seed)
    keys = np.minimum(random.zipf(1.3, MOST), 500)
    delays = random.integers(0, 10_000, MOST) + np.where(random.random(MOST) < 0.02, max(60_000, 60 * case.step_ms), 0)
    starts = [round(start.timestamp() * 1000) for start in case.starts]
    for number in range(MOST):
        first, since = (starts[0], 0) if number < EARLIER else (starts[-1], EARLIER * (len(starts) - 1))
        time = first + (number - since) // PARTITIONS * case.step_ms - int(delays[number])
        yield number % PARTITIONS, b'{"key":"k%d","value":%d,"time":%d}' % (keys[number], number % 100, time)


Results = dict[tuple[int, int, str], tuple[int, int]]
"""Count and sum by start and end of the window, and key."""


def plain_count(records: Iterator[Record], case: Case) -> tuple[Results, int]:
    """Count in a plain loop. Returns the results and the number of late records."""
    counts: Counter[tuple[int, int, str]] = Counter()
    sums: Counter[tuple[int, int, str]] = Counter()
    newest: dict[int, int] = {}
    late = 0
    for record in records:
        fact = json.loads(record.value or b"")
        before = newest.get(record.partition, fact["time"])
        newest[record.partition] = max(before, fact["time"])
        windows = case.windows_of(fact["time"])
        if min(end for _, end in windows) <= before - LATENESS_MS:
            late += 1
            continue
        for start, end in windows:
            counts[start, end, fact["key"]] += 1
            sums[start, end, fact["key"]] += fact["value"]
    return {at: (count, sums[at]) for at, count in counts.items()}, late


def results_of(pipeline: Pipeline) -> tuple[Results, list[str]]:
    last, wrong = pipeline.results()
    found = {
        (fact["window_start"], fact["window_end"], fact["key"]): (fact["count"], fact["sum"]) for fact in last.values()
    }
    return found, wrong


def audited(pipeline: Pipeline) -> dict[str, Any]:
    """Audit a pipeline and return the report."""
    done = CliRunner().invoke(main, ["audit", "-f", str(pipeline.file), "--json"])
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_windows_with_every_stage_killed_equal_a_plain_count_and_the_audit(
    name: str, broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    case, source = CASES[name], Source(broker, PARTITIONS)
    pipeline = Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"allowed_lateness_s": LATENESS_MS / 1000, "idle_timeout_s": None},
        transport={"commit_interval_s": 1.0, "max_poll_records": 2_000, "session_timeout_s": 10},
        worker={"pane_s": case.pane_s},
        aggregator={"window": case.window},
        observer={"tick_s": 900},
    )
    records = made_up(case)
    with Feed(source, records, RATE) as feed, pipeline.running(armed=True) as supervisor:
        for stage in case.killed:
            pipeline.kill_in_transaction(supervisor, f"{stage}-0")
        feed.finish()
    source.send(itertools.islice(records, max(0, LEAST - feed.sent)))
    pipeline.drain(limit_s=300)
    expected, late = plain_count(read(broker, source.topic), case)
    found, wrong = results_of(pipeline)
    assert wrong == []
    assert found == expected
    report = audited(pipeline)
    assert (report["compared"], report["differences"], report["left_out"]) == (len(expected), 0, {})
    assert report["late"] == late > 0
    lengths = {end - start for start, end, _ in found}
    assert lengths >= ({300_000} if name == "hopping" else {82_800_000, 90_000_000})


FOLDER = os.environ.get("SKEWLESS_DATA")
REAL = {
    "twitter_election_2016-11-08T01h.jsonl.zst": (
        {"key": {"field": "entities.hashtags[].text"}, "value": {}, "time": {"field": "timestamp_ms"}},
        {"size_s": 300, "every_s": 60},
        15,
        hopping(300_000, 60_000, 0),
    ),
    "twitter_ticker_2014-01_2015-03.jsonl.zst": (
        {"key": {"field": "ticker"}, "value": {}, "time": {"field": "timestamp"}},
        {"size": "day", "zone": "America/New_York"},
        900,
        day_in(NEW_YORK),
    ),
}
"""File -> how it is read, the windows, the length of panes in seconds, and the plain definition of the windows. The
second one has three changes of clocks."""
RUNS = [(name, killed) for name in REAL for killed in (False, True)]
"""File, and whether every stage is killed."""


@pytest.mark.skipif(FOLDER is None, reason="SKEWLESS_DATA names no folder with real files")
@pytest.mark.parametrize(("name", "killed"), RUNS, ids=[f"{name}{', killed' * killed}" for name, killed in RUNS])
def test_windows_of_real_records_equal_a_plain_count_and_the_audit(
    name: str, broker: str, spark: SparkSession, tmp_path: Path, *, killed: bool
) -> None:
    splitter, window, pane_s, windows_of = REAL[name]
    lines = [line for block in blocks(Path(FOLDER or "") / name) for line in block]
    source = Source(broker, PARTITIONS)
    records = [(number // BLOCK % PARTITIONS, line) for number, line in enumerate(lines)]
    pipeline = Pipeline(
        broker,
        tmp_path,
        source,
        splitter=splitter,
        event_time={"allowed_lateness_s": 3_600, "idle_timeout_s": None},
        transport={"commit_interval_s": 0.5, "session_timeout_s": 6},
        worker={"pane_s": pane_s},
        aggregator={"window": window, "aggregates": ["count"]},
        observer={"tick_s": 900},
    )
    if killed:
        pipeline.run_with_kills(source, records)
    else:
        source.send(records)
    pipeline.drain(limit_s=300)
    parsed = RecordParser(pipeline.settings.splitter).parse(
        RecordColumns.of_values(lines, np.zeros(len(lines), dtype=np.int64))
    )
    expected: Counter[tuple[int, int, str]] = Counter()
    for record, key in zip(parsed.records.tolist(), parsed.keys, strict=True):
        expected.update((start, end, key) for start, end in windows_of(int(parsed.times[record])))
    last, wrong = pipeline.results()
    assert wrong == []
    assert {(row["window_start"], row["window_end"], row["key"]): row["count"] for row in last.values()} == expected
    assert (audited(pipeline)["compared"], len(expected) > 1_000) == (len(expected), True)
