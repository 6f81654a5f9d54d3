"""A pipeline after silent days and weeks: retention, expired offsets and changed sizes give exact results or an error.

Retention is simulated by the admin's delete_records, expiry by deleting the groups. Each stage is started alone after
each event. It must continue exactly, or end with exit code 2 or 3 and a message that names a remedy. A week of event
time, with a change of the clocks, is counted day by day.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition

import skewless
from helpers.kafka import (
    SLOW_FETCHES,
    STAGES,
    Pipeline,
    Record,
    Sent,
    Source,
    ends,
    read,
    topics_partitions,
    truth,
    zipf_records,
)
from helpers.waiting import WAIT_S, until
from skewless import topology
from skewless.lab.local import child_process
from skewless.lab.local.child_process import ChildProcess

LATENESS_S = 20
PARTITIONS = 2
PORTION = 400
COMMIT_S = 0.1
SESSION_S = 3.0
REMEDY = re.compile(
    r"another name|set (it|them) back|skewless topics apply|delete its topics|reset|restore|raise|increase"
)
ENDED = "error: "


@dataclass
class Stages:
    """Processes of single stages without a supervisor: a process that ends is not restarted."""

    pipeline: Pipeline
    children: dict[str, ChildProcess] = field(default_factory=dict)

    def start(self, stage: str, file: Path | None = None) -> None:
        """Start a process of a stage."""
        self._log(stage).unlink(missing_ok=True)
        self.children[stage] = self.pipeline.start(stage, log=self._log(stage), file=file)

    def kill(self, stage: str) -> None:
        """Kill a process."""
        child_process.kill(self.children.pop(stage))

    def ended(self) -> dict[str, str]:
        """Exit code and last error of each process that has ended."""
        return {
            stage: f"exit code {child.returncode}: {self.error(stage)}"
            for stage, child in self.children.items()
            if child.poll() is not None
        }

    def error(self, stage: str) -> str:
        """Return the error lines of a stage's log."""
        lines = self._log(stage).read_text().splitlines()
        return "\n".join(line for line in lines if line.startswith(ENDED)) or "\n".join(lines[-2:])

    def stop(self) -> None:
        """Stop all processes cleanly."""
        for child in self.children.values():
            child.send_signal(signal.SIGTERM)
        for child in self.children.values():
            child_process.stop(child)
        self.children.clear()

    def _log(self, stage: str) -> Path:
        return self.pipeline.folder / f"{stage}.log"


@contextlib.contextmanager
def stages_of(pipeline: Pipeline, *names: str, file: Path | None = None) -> Iterator[Stages]:
    """Run one process of some stages."""
    stages = Stages(pipeline)
    try:
        for name in names:
            stages.start(name, file)
        yield stages
    finally:
        stages.stop()


@dataclass
class Calendar:
    """A pipeline that ran, and every record that its source has ever contained."""

    pipeline: Pipeline
    records: Iterator[tuple[int, bytes | None]]
    sent: dict[tuple[int, int], Record] = field(default_factory=dict)

    def send(self, count: int = PORTION) -> None:
        """Write records to the source and keep a copy, because retention may delete them from the topic."""
        source = self.pipeline.source
        source.send(islice(self.records, count))
        self.sent |= {(at.partition, at.offset): at for at in read(self.pipeline.bootstrap, source.topic)}

    def process(self, stages: Stages) -> None:
        """Wait until the results are exact; fails as soon as a process has ended."""
        expected = truth((self.sent[at] for at in sorted(self.sent)), lateness_ms=LATENESS_S * 1000)
        wanted = {at: (count, expected.sums[at]) for at, count in expected.counts.items()}

        def exact() -> bool:
            assert stages.ended() == {}
            return self.answers() == wanted and self.pipeline.count("late") == len(expected.late)

        until(exact, every_s=0.1)
        self.settle()

    def answers(self) -> dict[tuple[int, str], tuple[int, int]]:
        """Read the results."""
        results, failures = self.pipeline.results()
        assert failures == []
        return {at: (entry["count"], entry["sum"]) for at, entry in results.items()}

    def settle(self) -> None:
        """Run the idle stages for some commits, so that their offsets move past the last transaction marker."""
        with contextlib.suppress(AssertionError):
            until(lambda: all(self._is_settled(stage) for stage in STAGES))

    def _is_settled(self, stage: str) -> bool:
        topic = reads(self.pipeline, stage)
        found = log_ends(self.pipeline, topic)
        with of_group(self.pipeline, stage) as consumer:
            committed = consumer.committed([TopicPartition(topic, at) for at in found], timeout=WAIT_S)
        return all(at.offset == found[at.partition] for at in committed if found[at.partition])


def internal_topics(pipeline: Pipeline) -> list[str]:
    """Full names of the topics between the stages, of which retention deletes records."""
    needed = topology.needed_topics(pipeline.settings)
    return [pipeline.settings.topic(topic.name) for topic in needed if not topic.public and topic.cleanup == "delete"]


def reads(pipeline: Pipeline, stage: str) -> str:
    """Full name of the topic that a stage reads."""
    return pipeline.settings.topic(topology.stage(stage).input)


def log_ends(pipeline: Pipeline, topic: str) -> dict[int, int]:
    admin = pipeline.admin
    return ends(admin, topic, topics_partitions(admin, topic), IsolationLevel.READ_UNCOMMITTED)


def delete_records(pipeline: Pipeline, topic: str) -> None:
    """Delete all records of a topic, as retention does after a day of silence."""
    admin = pipeline.admin
    requested = [TopicPartition(topic, at, offset) for at, offset in log_ends(pipeline, topic).items()]
    for future in admin.delete_records(requested).values():
        future.result(WAIT_S)


@contextlib.contextmanager
def of_group(pipeline: Pipeline, stage: str) -> Iterator[Consumer]:
    """Connect to a stage's group without joining it."""
    options = {"bootstrap.servers": pipeline.bootstrap, "group.id": f"{pipeline.name}-{stage}", "log_level": 2}
    with contextlib.closing(Consumer({**options, "enable.auto.commit": False})) as consumer:
        yield consumer


def left(pipeline: Pipeline) -> list[str]:
    """Wait until the sessions of all members have expired; returns the groups."""
    admin, groups = pipeline.admin, [f"{pipeline.name}-{stage}" for stage in STAGES]
    until(lambda: not any(found.result(WAIT_S).members for found in admin.describe_consumer_groups(groups).values()))
    return groups


def forget(pipeline: Pipeline) -> None:
    """Delete the offsets of all groups, as the broker does a week after the last member has left (KIP-211)."""
    admin, groups = pipeline.admin, left(pipeline)
    for future in admin.delete_consumer_groups(groups).values():
        future.result(WAIT_S)


def changed(pipeline: Pipeline, name: str, **sections: Mapping[str, Any]) -> Path:
    """Write another version of the pipeline's file."""
    document = json.loads(pipeline.file.read_text())
    for section, more in sections.items():
        document[section] = document.get(section, {}) | more
    file = pipeline.folder / f"{name}.yaml"
    file.write_text(json.dumps(document))
    return file


def refusals(stages: Stages, *named: str) -> dict[str, str]:
    """Wait until all processes have ended; returns the unexpected exit codes and messages."""
    with contextlib.suppress(AssertionError):
        until(lambda: len(stages.ended()) == len(stages.children))
    problems = {}
    for stage, child in stages.children.items():
        code, error = child.poll(), stages.error(stage)
        if code is None:
            problems[stage] = "was not refused: it runs"
        elif code not in (2, 3) or not error.startswith(ENDED):
            problems[stage] = f"ended with exit code {code}: {error}"
        elif missing := [word for word in named if word not in error]:
            problems[stage] = f"does not name {missing}: {error}"
        elif not REMEDY.search(error):
            problems[stage] = f"names no remedy: {error}"
    return problems


@pytest.fixture(scope="module", autouse=True)
def _children_find_the_package() -> Iterator[None]:
    here = str(Path(skewless.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH")))))
        yield


def pipeline_of(broker: str, folder: Path, source: Source) -> Pipeline:
    return Pipeline(
        broker,
        folder,
        source,
        event_time={"allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
        worker_input={"max_workers": 4},
        router={"workers": 4},
        transport={"commit_interval_s": COMMIT_S, "session_timeout_s": SESSION_S},
    )


@pytest.fixture(scope="module")
def stopped(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Calendar:
    """Run a pipeline over a source that retention had trimmed before, then stop it and empty its internal topics."""
    source = Source(broker, PARTITIONS)
    records = zipf_records(20 * PORTION, PARTITIONS, seed=31, keys=50)
    source.send(islice(records, PORTION))
    pipeline = pipeline_of(broker, tmp_path_factory.mktemp("calendar"), source)
    delete_records(pipeline, source.topic)
    calendar = Calendar(pipeline, records)
    with stages_of(pipeline, *STAGES) as stages:
        calendar.send()
        calendar.process(stages)
    empty(pipeline)
    return calendar


def empty(pipeline: Pipeline) -> None:
    """Delete the records that retention would delete after a day without new records."""
    for topic in internal_topics(pipeline):
        delete_records(pipeline, topic)


@pytest.mark.thorough
def test_stages_after_a_day_without_input_continue_exactly(stopped: Calendar) -> None:
    with stages_of(stopped.pipeline, *STAGES) as stages:
        stopped.send()
        stopped.process(stages)
        for stage in STAGES:
            stages.kill(stage)
            empty(stopped.pipeline)
            stages.start(stage)
            stopped.send()
            stopped.process(stages)


CHANGES: dict[str, tuple[tuple[str, ...], dict[str, Mapping[str, Any]]]] = {
    "topics.aggregator_partitions": (("worker", "aggregator", "observer"), {"topics": {"aggregator_partitions": 3}}),
    "worker_input.max_workers": (("router", "worker"), {"worker_input": {"max_workers": 5}}),
}
"""Setting -> the stages that read or write a topic of that size, and the changed value."""


@pytest.mark.parametrize("setting", CHANGES)
def test_stages_changed_partition_count_refuse_to_start(stopped: Calendar, setting: str) -> None:
    names, sections = CHANGES[setting]
    file = changed(stopped.pipeline, setting, **sections)
    with stages_of(stopped.pipeline, *names, file=file) as stages:
        assert refusals(stages, setting) == {}


@pytest.mark.thorough
def test_splitter_offset_without_checkpoint_refuses_to_start(stopped: Calendar) -> None:
    pipeline, topic = stopped.pipeline, stopped.pipeline.source.topic
    left(pipeline)
    before = stopped.answers()
    with of_group(pipeline, "splitter") as consumer:
        saved = consumer.committed([TopicPartition(topic, at) for at in range(PARTITIONS)], timeout=WAIT_S)
        by_hand = [TopicPartition(at.topic, at.partition, at.offset - 1) for at in saved]
        consumer.commit(offsets=by_hand, asynchronous=False)
        try:
            with stages_of(pipeline, "splitter") as stages:
                assert refusals(stages, topic) == {}
        finally:
            left(pipeline)
            consumer.commit(offsets=saved, asynchronous=False)
    assert stopped.answers() == before


def test_splitter_unread_source_records_deleted_refuses_to_start(stopped: Calendar) -> None:
    source = stopped.pipeline.source
    source.send(zipf_records(10, PARTITIONS, seed=32))
    delete_records(stopped.pipeline, source.topic)
    before = stopped.answers()
    with stages_of(stopped.pipeline, "splitter") as stages:
        assert refusals(stages, source.topic) == {}
    assert stopped.answers() == before


@pytest.mark.thorough
def test_stages_without_offsets_after_a_week_refuse_to_count_again(stopped: Calendar) -> None:
    before = stopped.answers()
    forget(stopped.pipeline)
    empty(stopped.pipeline)
    stopped.pipeline.source.send(zipf_records(10, PARTITIONS, seed=33))
    with stages_of(stopped.pipeline, *STAGES) as stages:
        assert refusals(stages) == {}
    assert stopped.answers() == before


@pytest.mark.thorough
def test_stages_internal_records_deleted_before_the_first_commit_refuse_to_start(broker: str, tmp_path: Path) -> None:
    pipeline = pipeline_of(broker, tmp_path, Source(broker, PARTITIONS))
    producer = Producer({"bootstrap.servers": broker, "log_level": 2})
    topics = internal_topics(pipeline)
    written: list[str | None] = []
    for topic in topics:
        producer.produce(
            topic,
            b"deleted before it was read",
            partition=0,
            on_delivery=lambda error, record: written.append(None if error else record.topic()),
        )
    assert producer.flush(WAIT_S) == 0
    assert sorted(map(str, written)) == sorted(topics)
    empty(pipeline)
    names = [stage for stage in STAGES if stage != "splitter"]
    with stages_of(pipeline, *names) as stages:
        assert refusals(stages) == {}


VIENNA = ZoneInfo("Europe/Vienna")
WEEKS = {"spring": datetime(2025, 3, 27, tzinfo=VIENNA), "autumn": datetime(2025, 10, 23, tzinfo=VIENNA)}
"""First day, a Thursday. The clocks change on Sunday, which has 23 or 25 hours."""
DAYS = 7
GROWN = 4
"""Partitions of the source from Saturday on."""
HOUR_MS = 3_600_000
OF_A_DAY = 200
"""Records of a partition."""


def midnight(day: datetime) -> int:
    return round(day.timestamp() * 1000)


def window_of(time_ms: int) -> tuple[int, int]:
    """Start and end of the day in Vienna."""
    day = datetime.fromtimestamp(time_ms / 1000, VIENNA).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight(day), midnight(day + timedelta(days=1))


def records_of(day: datetime, partitions: int, random: np.random.Generator) -> list[Sent]:
    """Make the records of a day: in order but for half an hour, and one in fifty is up to two days old."""
    start, end = window_of(midnight(day))
    records: list[Sent] = []
    for time_ms in np.linspace(start, end, OF_A_DAY, endpoint=False).tolist():
        for partition in range(partitions):
            delay_ms = random.integers(48 * HOUR_MS if random.random() < 0.02 else HOUR_MS // 2)
            key = f"k{min(random.zipf(1.3), 200)}"
            entry = {"key": key, "value": int(random.integers(100)), "time": round(time_ms) - int(delay_ms)}
            records.append((partition, json.dumps(entry).encode()))
    return records


def plain_count(sent: Iterable[Sent]) -> tuple[dict[tuple[int, str], tuple[int, int]], int]:
    """Return the count and the sum of each key and day, and the number of late records."""
    newest: defaultdict[int, int] = defaultdict(int)
    counts: Counter[tuple[int, str]] = Counter()
    sums: Counter[tuple[int, str]] = Counter()
    late = 0
    for partition, value in sent:
        entry = json.loads(value or b"")
        start, end = window_of(entry["time"])
        if end - 1 < newest[partition] - HOUR_MS:
            late += 1
        else:
            counts[start, entry["key"]] += 1
            sums[start, entry["key"]] += entry["value"]
        newest[partition] = max(newest[partition], entry["time"])
    return {at: (count, sums[at]) for at, count in counts.items()}, late


def expire(pipeline: Pipeline) -> int:
    """Delete the records of the source and of internal topics that all their readers have committed; counts them."""
    deleted = 0
    for topic in {reads(pipeline, stage) for stage in STAGES}:
        committed: list[dict[int, int]] = []
        for stage in STAGES:
            if reads(pipeline, stage) == topic:
                with of_group(pipeline, stage) as consumer:
                    partitions = [TopicPartition(topic, at) for at in log_ends(pipeline, topic)]
                    found = consumer.committed(partitions, timeout=WAIT_S)
                committed.append({at.partition: max(0, at.offset) for at in found})
        offsets = {at: min(of_stage[at] for of_stage in committed) for at in committed[0]}
        for future in pipeline.admin.delete_records([TopicPartition(topic, *at) for at in offsets.items()]).values():
            future.result(WAIT_S)
        deleted += sum(offsets.values())
    return deleted


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("season", WEEKS)
def test_pipeline_over_a_week_with_kills_retention_and_more_partitions_writes_each_day_once(
    season: str, broker: str, tmp_path: Path
) -> None:
    source = Source(broker, PARTITIONS)
    pipeline = Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"allowed_lateness_s": HOUR_MS // 1000, "idle_timeout_s": None},
        observer={"tick_s": HOUR_MS // 1000},
        worker={"pane_s": HOUR_MS // 1000},
        aggregator={
            "window": {"size": "day", "zone": str(VIENNA)},
            "emit": "final",
            "aggregates": ["count", "sum"],
            "closed_window_retention_s": 86_400,
        },
        transport={"commit_interval_s": COMMIT_S, "session_timeout_s": SESSION_S},
        kafka={"options": {**SLOW_FETCHES, "topic.metadata.refresh.interval.ms": 1_000}},
    )
    random = np.random.default_rng(29)
    sent: list[Sent] = []
    victims = cycle(STAGES)
    partitions, deleted, grown = PARTITIONS, 0, WEEKS[season]
    with stages_of(pipeline, *STAGES) as stages:
        for number in range(DAYS):
            day = WEEKS[season] + timedelta(days=number)
            if day.strftime("%a") == "Sat":
                partitions, grown = GROWN, day
                source.add_partitions(partitions)
            records = records_of(day, partitions, random)
            half = len(records) // 2
            source.send(records[:half])
            victim = next(victims)
            stages.kill(victim)
            stages.start(victim)
            source.send(records[half:])
            sent += records
            closed = {at: result for at, result in plain_count(sent)[0].items() if at[0] < midnight(day)}

            def is_exact(closed: Mapping[Any, Any] = closed) -> bool:
                assert stages.ended() == {}
                results, failures = pipeline.results()
                assert failures == []
                return {at: (entry["count"], entry["sum"]) for at, entry in results.items()} == closed

            until(is_exact, every_s=0.2)
            if day.strftime("%a") == "Sun":
                stages.stop()
            deleted += expire(pipeline)
            if not stages.children:
                for stage in STAGES:
                    stages.start(stage)
    pipeline.drain(limit_s=300)
    expected, late = plain_count(sent)
    results, failures = pipeline.results()
    assert failures == []
    assert {at: (entry["count"], entry["sum"]) for at, entry in results.items()} == expected
    corrected = {at[0] for at, entry in results.items() if entry["revision"]}
    assert max(corrected, default=0) < midnight(grown), "only records of new partitions correct closed windows"
    assert pipeline.count("late") == late > 0
    assert pipeline.count("dead-letters") == 0
    assert deleted > len(sent)
    changes = {record.key: record.value for record in pipeline.read("aggregator-changelog")}
    kept = {int((key or b"").partition(b"/")[0]) for key, value in changes.items() if value is not None}
    last_two = {midnight(WEEKS[season] + timedelta(days=day)) for day in (DAYS - 2, DAYS - 1)}
    assert kept == last_two, "windows that ended more than a day before the newest records have expired"
