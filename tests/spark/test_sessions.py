"""Session windows on a real broker: a plain loop, the batch answer, `stream`, the table and the audit find the same."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from helpers.kafka import STAGES, Feed, Pipeline, Sent, Source, read
from helpers.tiers import thorough_except
from helpers.waiting import until
from skewless.cli.main import main
from skewless.lab.datasets.data_files import blocks
from skewless.sql.rows import time_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
LATENESS_MS, GAP_MS, MAX_MS = 20_000, 7_000, 120_000
SESSION = {"session": {"gap_s": GAP_MS / 1000, "max_s": MAX_MS / 1000}}
MOST = 200_000
"""Upper bound of the records of a feed that ends when all stages were killed."""
RATE = 500
START_MS = 1_767_225_600_000
STEP_MS = 60
"""Event time between two records of a partition."""

Sessions = dict[tuple[int, int, str], tuple[int, int]]
"""Count and sum by start and end of the session, and key."""


def made_up(count: int, seed: int = 7) -> Iterator[Sent]:
    """Make records of skewed keys, out of order by up to ten seconds, and some of them late."""
    random = np.random.default_rng(seed)
    keys = np.minimum(random.zipf(1.3, count), 500)
    delays = random.integers(0, 10_000, count) + np.where(random.random(count) < 0.02, 60_000, 0)
    for number in range(count):
        time = START_MS + number // PARTITIONS * STEP_MS - int(delays[number])
        yield number % PARTITIONS, b'{"key":"k%d","value":%d,"time":%d}' % (keys[number], number % 100, time)


def plain_sessions(records: Iterable[tuple[int, bytes | None]]) -> tuple[Sessions, int]:
    """Cut the tuples of each key in a plain loop. Returns the sessions and the number of late records."""
    tuples: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    newest: dict[int, int] = {}
    late = 0
    for partition, line in records:
        fact = json.loads(line or b"")
        before = newest.get(partition, fact["time"])
        newest[partition] = max(before, fact["time"])
        if fact["time"] < before - LATENESS_MS:
            late += 1
        else:
            tuples[fact["key"]].append((fact["time"], fact["value"]))
    sessions: Sessions = {}
    for key, ordered in tuples.items():
        current: list[tuple[int, int]] = []
        for time, value in [*sorted(ordered), (2**60, 0)]:
            if current and (time - current[-1][0] >= GAP_MS or time // MAX_MS != current[-1][0] // MAX_MS):
                start, last = current[0][0], current[-1][0]
                end = min(last + GAP_MS, (start // MAX_MS + 1) * MAX_MS)
                sessions[start, end, key] = (len(current), sum(value for _, value in current))
                current = []
            current.append((time, value))
    return sessions, late


def sessions_of(results: Iterable[Mapping[str, Any]]) -> Sessions:
    return {(row["window_start"], row["window_end"], row["key"]): (row["count"], row["sum"]) for row in results}


SECTIONS: dict[str, Any] = {
    "event_time": {"allowed_lateness_s": LATENESS_MS / 1000, "idle_timeout_s": None},
    "transport": {"commit_interval_s": 0.5, "max_poll_records": 2_000, "session_timeout_s": 10},
    "observer": {"tick_s": 60},
}


def deleted(pipeline: Pipeline) -> bool:
    """Return whether results of sessions were deleted, because the sessions have changed their identity."""
    return any(record.value is None for record in pipeline.read("aggregates"))


def output_of(*arguments: str) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def audited(pipeline: Pipeline) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(output_of("audit", "-f", str(pipeline.file), "--json"))
    return report


@pytest.mark.thorough
@pytest.mark.parametrize("emit", ["updates", "final"])
def test_sessions_with_every_stage_killed_equal_a_plain_loop_the_table_and_the_audit(
    emit: str, broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(broker, PARTITIONS)
    sink = {"url": f"sqlite://{tmp_path}/results.db", "table": "results"}
    aggregator = {"window": SESSION, "emit": emit}
    pipeline = Pipeline(broker, tmp_path, source, aggregator=aggregator, sink=sink, **SECTIONS)
    with Feed(source, made_up(MOST), RATE) as feed, pipeline.running(armed=True) as supervisor:
        for stage in STAGES:
            pipeline.kill_in_transaction(supervisor, f"{stage}-0")
            supervisor.kill("sink-0")
        if emit == "updates":
            until(lambda: deleted(pipeline), each=lambda: supervisor.poll(monotonic()), every_s=0.5)
        feed.finish()
    pipeline.drain(limit_s=300)
    expected, late = plain_sessions((record.partition, record.value) for record in read(broker, source.topic))
    last, wrong = pipeline.results()
    assert wrong == []
    assert sessions_of(last.values()) == expected
    assert deleted(pipeline) == (emit == "updates")
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        rows = connection.execute("select window_start, window_end, key, count, sum from results").fetchall()
    stored = {(time_ms(start), time_ms(end), key): (count, total) for start, end, key, count, total in rows}
    assert stored == expected
    report = audited(pipeline)
    assert (report["compared"], report["differences"], report["left_out"]) == (len(expected), 0, {})
    assert report["late"] == late > 0
    assert report["table"]["differences"] == 0


@pytest.mark.parametrize("emit", thorough_except(["updates"], ["updates", "final"]))
def test_sessions_of_stream_equal_a_plain_loop_and_the_audit(
    emit: str, broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(broker, PARTITIONS)
    pipeline = Pipeline(broker, tmp_path, source, aggregator={"window": SESSION, "emit": emit}, **SECTIONS)
    records = list(made_up(2_000))
    end_ms = START_MS + 3_600_000
    closing = [
        (partition, b'{"key":"last","value":0,"time":%d}' % (end_ms + LATENESS_MS)) for partition in range(PARTITIONS)
    ]
    for portion in (records[:1_000], records[1_000:], closing):
        source.send(portion)
        output_of("stream", "-f", str(pipeline.file), "--available-now", "--checkpoint", str(tmp_path / "checkpoint"))
    expected, _ = plain_sessions((record.partition, record.value) for record in read(broker, source.topic))
    last, wrong = pipeline.results()
    assert wrong == []
    closed = {at: result for at, result in expected.items() if at[1] <= end_ms}
    assert len(closed) == len(expected) - 1
    assert sessions_of(last.values()) == (expected if emit == "updates" else closed)
    report = audited(pipeline)
    assert (report["compared"], report["differences"]) == (len(last), 0)


FOLDER = os.environ.get("SKEWLESS_DATA")
REAL = "http_nasa_by_page_19950701.tsv.zst"


@pytest.mark.skipif(FOLDER is None, reason="SKEWLESS_DATA names no folder with real files")
def test_sessions_of_a_web_log_equal_a_plain_loop_in_the_stages_and_in_batch(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    lines = [line for block in blocks(Path(FOLDER or "") / REAL) for line in block]
    source = Source(broker, PARTITIONS)
    pipeline = Pipeline(
        broker,
        tmp_path,
        source,
        splitter={
            "format": {"name": "tsv", "columns": ["at", "page"]},
            "key": {"field": "page"},
            "value": {},
            "time": {"field": "at"},
        },
        event_time={"allowed_lateness_s": 3_600, "idle_timeout_s": None},
        aggregator={"window": {"session": {"gap_s": 60, "max_s": 3_600}}, "aggregates": ["count"], "emit": "final"},
    )
    source.send([(number // 100 % PARTITIONS, line) for number, line in enumerate(lines)])
    pipeline.drain(limit_s=300)
    times: defaultdict[str, list[int]] = defaultdict(list)
    for line in lines:
        at, page = line.decode().split("\t")
        times[page].append(int(at))
    expected: dict[tuple[str, int, int], int] = {}
    for page, ordered in times.items():
        start, last, count = 0, -(10**6), 0
        for time in [*sorted(ordered), 2**60]:
            if time - last >= 60_000 or time // 3_600_000 != last // 3_600_000:
                if count:
                    expected[page, start, min(last + 60_000, (start // 3_600_000 + 1) * 3_600_000)] = count
                start, count = time, 0
            last, count = time, count + 1
    last_results, wrong = pipeline.results()
    assert wrong == []
    assert {
        (row["key"], row["window_start"], row["window_end"]): row["count"] for row in last_results.values()
    } == expected
    assert len(expected) > 4_000
    assert audited(pipeline)["compared"] == len(expected)
    lines_of_results = output_of("results", "-f", str(pipeline.file), "--window", "all", "--json").splitlines()
    shown = {
        (row["key"], row["window_start"], row["window_end"]): row["count"] for row in map(json.loads, lines_of_results)
    }
    assert shown == expected
    output_of("evaluate", "-f", str(pipeline.file), "--json")
    output_of("batch", "-f", str(pipeline.file), "--out", str(tmp_path / "batch"), "--format", "json")
    rows = [json.loads(line) for file in (tmp_path / "batch").rglob("*.json") for line in file.read_text().splitlines()]
    found = {(row["key"], row["window_start"], row["window_end"]): row["count"] for row in rows if "window_end" in row}
    assert found == expected
