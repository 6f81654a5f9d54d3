"""Pipelines with several source topics: each result equals a plain count over all topics, and the audit agrees."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from helpers.kafka import (
    SLOW_FETCHES,
    Feed,
    Pipeline,
    Sent,
    Source,
    crashes,
    read,
    topics_partitions,
    truth,
    zipf_records,
)
from helpers.waiting import WAIT_S, until
from skewless.algorithms.watermark import WatermarkState
from skewless.cli.main import main
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local.supervisor import Event, Supervisor
from skewless.stages.router.upstream import Upstream
from skewless.stages.source_topics import NO_TOPIC
from skewless.wire.headers import sources_of, watermarks_of
from skewless.wire.topic_partition import TopicPartition

pytestmark = pytest.mark.thorough

LATENESS_S = 20
RECORDS = 2_000
MOST = 500_000
"""Records of a feed that ends when the test has killed what it kills."""
SPAN_S = 120_000
"""Event time of `MOST` records."""
RATE = 500
"""Records per second of a feed."""
SHORT = {**SLOW_FETCHES, "topic.metadata.refresh.interval.ms": 1_000}
"""Options of consumers that look for topics and partitions each second."""


def pipeline(broker: str, folder: Path, first: Source, named: object, **parts: Any) -> Pipeline:
    chosen: dict[str, Any] = {
        "source": {"topic": None, "topics": named},
        "event_time": {"allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
        "transport": {"commit_interval_s": 0.5, "session_timeout_s": 6},
        "kafka": {"options": SHORT, "connect_timeout_s": WAIT_S},
        "replicas": {"splitter": 2, "router": 2},
    } | parts
    return Pipeline(broker, folder, first, **chosen)


def records(partitions: int, seed: int, count: int = RECORDS) -> list[Sent]:
    return list(zipf_records(count, partitions, seed, keys=300))


def problems(broker: str, tested: Pipeline, sources: Iterable[Source]) -> list[str]:
    """Compare results and late tuples with a plain count over all topics."""
    counts: Counter[tuple[int, str]] = Counter()
    sums: Counter[tuple[int, str]] = Counter()
    late: dict[tuple[str, int, int], Any] = {}
    for source in sources:
        expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
        counts.update(expected.counts)
        sums.update(expected.sums)
        late |= {(source.topic, *at): entry for at, entry in expected.late.items()}
    found, wrong = tested.results()
    answers = {at: (entry["count"], entry["sum"]) for at, entry in found.items()}
    unlike = [at for at in counts.keys() | answers.keys() if answers.get(at) != (counts[at], sums[at])]
    found_late = {}
    for record in tested.read("late"):
        entry = json.loads(record.value or b"")
        at = (record.headers["topic"].decode(), entry["partition"], entry["offset"])
        wrong += [f"{at} is late twice"] if at in found_late else []
        found_late[at] = entry
    assert late, "the test needs late tuples"
    return [*wrong, *(f"{at}: {answers.get(at)}, not {counts[at]}" for at in unlike[:5])] + (
        [] if found_late == late else [f"{len(found_late)} late tuples, not {len(late)}"]
    )


def audited(tested: Pipeline) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    assert (report["differences"], report["left_out"], report["settled"]) == (0, {}, True)
    return report


def look_after(supervisor: Supervisor, condition: Callable[[], bool]) -> list[Event]:
    """Restart processes that end until a condition holds, and return what happened to them."""
    events: list[Event] = []
    until(condition, each=lambda: events.extend(supervisor.poll(time.monotonic())))
    return events


def reads(tested: Pipeline, topic: str, partitions: int) -> bool:
    """Return whether the splitters have committed offsets of all partitions of a topic."""
    committed = OffsetReader(tested.settings.kafka).committed(tested.settings.group("splitter"), topic)
    return len(committed) == partitions


@pytest.mark.timeout(900)
def test_pipeline_with_two_topics_and_a_killed_splitter_equals_a_plain_count_and_the_audit(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    small, large = Source(broker, 2), Source(broker, 3)
    tested = pipeline(broker, tmp_path, small, [small.topic, large.topic])
    assert topics_partitions(tested.admin, tested.settings.topic("tuples")) == 3
    small.send(records(2, seed=1))
    most = zipf_records(MOST, 3, seed=2, keys=300, span_s=SPAN_S)
    with Feed(large, most, rate=RATE) as feed, tested.running(armed=True) as supervisor:
        for name in ("splitter-0", "router-0", "splitter-1"):
            tested.kill_in_transaction(supervisor, name)
        feed.finish()
    tested.drain(limit_s=300)
    assert problems(broker, tested, [small, large]) == []
    report = audited(tested)
    sent = sum(1 for source in (small, large) for _ in read(broker, source.topic))
    assert report["records"] == sent
    assert report["offsets"]["source"].keys() == {
        *(f"{small.topic}/{number}" for number in range(2)),
        *(f"{large.topic}/{number}" for number in range(3)),
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("setting", ["topic", "topics"])
def test_pipeline_whose_source_gets_partitions_reads_them_without_a_restart(
    setting: str, broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(broker, 2)
    named: dict[str, Any] = {"topic": {"source": {}}, "topics": {}}[setting]
    tested = pipeline(broker, tmp_path, source, [source.topic], replicas={}, **named)
    source.send(records(2, seed=3))
    with tested.running() as supervisor:
        look_after(supervisor, lambda: reads(tested, source.topic, 2))
        source.add_partitions(5)
        source.send((partition + 2, value) for partition, value in records(3, seed=4))
        events = look_after(supervisor, lambda: reads(tested, source.topic, 5))
    assert crashes(events) == []
    # The only process of a group stays in it. It gets its previous partitions when it starts again.
    source.add_partitions(6)
    source.send((partition + 5, value) for partition, value in records(1, seed=10, count=1_000))
    with tested.running() as supervisor:
        look_after(supervisor, lambda: reads(tested, source.topic, 6))
    tested.drain(limit_s=300)
    assert problems(broker, tested, [source]) == []
    report = audited(tested)
    assert report["records"] == sum(1 for _ in read(broker, source.topic))
    assert report["offsets"]["source"].keys() == {
        f"{tested.settings.aggregated.prefix_of(source.topic)}{n}" for n in range(6)
    }
    headers = [list(record.headers.items()) for record in tested.read("tuples")]
    assert {at for of_record in headers for at in sources_of(of_record) if at.topic != NO_TOPIC} == {
        TopicPartition(source.topic, number) for number in range(6)
    }
    assert any(watermarks_of(of_record) for of_record in headers) == (setting == "topic")


@pytest.mark.timeout(900)
def test_pipeline_whose_topic_gets_partitions_while_its_processes_are_killed_equals_a_plain_count_and_the_audit(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(broker, 2)
    tested = pipeline(broker, tmp_path, source, None, source={})
    grown = threading.Event()
    most = zipf_records(MOST, 5, seed=20, keys=300, span_s=SPAN_S)
    fed = ((partition if grown.is_set() else partition % 2, value) for partition, value in most)
    with Feed(source, fed, rate=RATE) as feed, tested.running(armed=True) as supervisor:
        look_after(supervisor, lambda: reads(tested, source.topic, 2))
        source.add_partitions(5)
        grown.set()
        for name in ("splitter-0", "router-0", "splitter-1", "router-1"):
            tested.kill_in_transaction(supervisor, name)
        look_after(supervisor, lambda: reads(tested, source.topic, 5))
        for name in ("router-0", "splitter-0"):
            tested.kill_in_transaction(supervisor, name)
        feed.finish()
    tested.drain(limit_s=300)
    assert problems(broker, tested, [source]) == []
    assert audited(tested)["records"] == sum(1 for _ in read(broker, source.topic))


@pytest.mark.timeout(900)
def test_pipeline_with_a_pattern_reads_topics_that_are_created_later_without_a_restart(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    prefix = f"clicks-{uuid.uuid4().hex[:8]}"
    first = Source(broker, 2, f"{prefix}-a")
    other = Source(broker, 1, f"{prefix}.other")
    other.send(records(1, seed=9, count=100))
    tested = pipeline(broker, tmp_path, first, {"match": f"^{prefix}-.*$"}, topics={"tuples_partitions": 4})
    first.send(records(2, seed=5))
    with tested.running() as supervisor:
        look_after(supervisor, lambda: reads(tested, first.topic, 2))
        later = Source(broker, 5, f"{prefix}-b")
        later.send(records(5, seed=6))
        events = look_after(supervisor, lambda: reads(tested, later.topic, 5))
    assert crashes(events) == []
    tested.drain(limit_s=300)
    assert problems(broker, tested, [first, later]) == []
    assert audited(tested)["records"] == sum(1 for source in (first, later) for _ in read(broker, source.topic))


@pytest.mark.timeout(900)
def test_pipeline_that_had_one_topic_takes_a_second_one_with_one_restart(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    first, second = Source(broker, 2), Source(broker, 1)
    first.send(records(2, seed=7))
    second.send(records(1, seed=8))
    before = pipeline(broker, tmp_path, first, None, source={})
    with before.running() as supervisor:
        look_after(supervisor, lambda: reads(before, first.topic, 2) and before.written("aggregates") > 0)
    document = json.loads(before.file.read_text())
    document["source"] = {"topics": [first.topic, second.topic]}
    before.file.write_text(json.dumps(document))
    before.settings = type(before.settings).model_validate(document)
    before.drain(limit_s=300)
    counts = sum((_counts(broker, source) for source in (first, second)), Counter())
    found, wrong = before.results()
    assert (wrong, {at: entry["count"] for at, entry in found.items()}) == ([], dict(counts))
    audited(before)


@pytest.mark.timeout(900)
def test_pipeline_with_a_pattern_continues_without_a_topic_that_is_idle_and_deleted(
    broker: str, tmp_path: Path
) -> None:
    prefix = f"clicks-{uuid.uuid4().hex[:8]}"
    kept, deleted = Source(broker, 1, f"{prefix}-a"), Source(broker, 2, f"{prefix}-b")
    tested = pipeline(
        broker,
        tmp_path,
        kept,
        {"match": f"{prefix}-.*"},
        event_time={"allowed_lateness_s": LATENESS_S, "idle_timeout_s": 1},
        aggregator={"emit": "final"},
        replicas={},
    )
    kept.send(records(1, seed=11, count=1_000))
    deleted.send(records(2, seed=12))
    counts = sum((_counts(broker, source) for source in (kept, deleted)), Counter())
    with tested.running() as supervisor:
        look_after(supervisor, lambda: _router_state(tested).idle)
    admin = AdminClient({"bootstrap.servers": broker, "log_level": 2})
    for future in admin.delete_topics([deleted.topic]).values():
        future.result()
    before = _router_state(tested).watermark or 0
    newest = before + LATENESS_S * 1000 + 600_000
    kept.send([(0, b'{"key":"k","value":1,"time":%d}' % newest)])
    with tested.running() as supervisor:
        events = look_after(supervisor, lambda: _router_state(tested).watermark == before + 600_000)
    assert crashes(events) == []
    tested.drain(limit_s=300)
    found, wrong = tested.results()
    counts[newest // 60_000 * 60_000, "k"] = 1
    assert (wrong, {at: entry["count"] for at, entry in found.items()}) == ([], dict(counts))


def _counts(broker: str, source: Source) -> Counter[tuple[int, str]]:
    """Count the records of a topic in a plain loop."""
    return truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000).counts


def _router_state(tested: Pipeline) -> WatermarkState:
    """Return the combined state of the first partition of `tuples` by the router's checkpoint."""
    topic, partitions = tested.settings.topic("tuples"), 2
    committed = OffsetReader(tested.settings.kafka).committed(tested.settings.group("router"), topic)
    return Upstream(0, partitions, committed[0].checkpoint if 0 in committed else None).state
