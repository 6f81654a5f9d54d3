"""Pipelines on a real broker: run them, inject faults, read their results, and compare them with a plain count."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec
import numpy as np
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from helpers.stage_hosts import FAULTS, armed_host, stage_host
from helpers.waiting import WAIT_S, until
from skewless import topology
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import result_reader
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local.child_process import ChildProcess
from skewless.lab.local.supervisor import Event, Supervisor
from skewless.wire.columns import read_table

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z, a multiple of every window used here."""
STAGES = tuple(row.name for row in topology.STAGES if row.option is None)
"""Stages that every pipeline has."""
SINK_MODES = {row.name: row.needs.values[0] for row in topology.STAGES if row.needs and row.needs.path == "sink.mode"}
"""Stages that write to a database, with the value of `sink.mode` that they need. A pipeline has at most one of them."""
RANK_SINKS = tuple(row.name for row in topology.STAGES if row.needs and row.needs.path == "sink.top_table")
"""Stages that write ranks to a database."""
REPARTITIONING = frozenset(row.name for row in topology.STAGES if row.needs and row.needs.path == "join.repartition")
"""Stages that partition the topics of a join again."""
WRITES = {name: next(t for t in topology.stage(name).outputs if not topology.topic(t).public) for name in STAGES}
"""For each stage, an internal topic. Only this stage writes it."""
UNSETTLED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors of a group whose first member is joining."""
SLOW_FETCHES = {"fetch.wait.max.ms": 500}
"""Options of clients. A broker answers a fetch that finds nothing after this time, by default ten times as often.

The fetches of idle stages take a third of the CPU time of the tests' brokers.
"""
BASE: dict[str, Any] = {
    "splitter": {
        "format": "json",
        "key": {"field": "key"},
        "value": {"field": "value"},
        "time": {"field": "time"},
    },
    "worker_input": {"max_workers": 8},
    "router": {"workers": 8},
    "topics": {"aggregator_partitions": 2},
    "event_time": {"idle_timeout_s": None},
    "transport": {"commit_interval_s": 0.5},
}
EVERY_S = 0.1
"""Delay between two portions of a feed. Several of them are in a transaction, and each costs every stage a batch."""

Item = TypeVar("Item")
"""A record as its topic takes it."""
Written_contra = TypeVar("Written_contra", contravariant=True)
Sent = tuple[int, bytes | None]
"""Partition and value of a record of the source."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer reads it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


def create_topics(bootstrap: str, partitions: Mapping[str, int], **options: str) -> None:
    """Create topics with these numbers of partitions and options, and wait until the broker lists them."""
    create_with(AdminClient({"bootstrap.servers": bootstrap, "log_level": 2}), partitions, **options)


def create_with(admin: AdminClient, partitions: Mapping[str, int], **options: str) -> None:
    """Create topics by a client that may do so, and wait until the broker lists them."""
    # Replicated as by default: once, unless the brokers are several.
    topics = [NewTopic(topic, count, -1, config=options) for topic, count in partitions.items()]
    for future in admin.create_topics(topics).values():
        future.result(WAIT_S)
    # The controller answers before a busy broker has read its answer from the log.
    until(lambda: partitions.keys() <= admin.list_topics(timeout=WAIT_S).topics.keys())


def delete_topics(bootstrap: str) -> None:
    """Delete all topics but the internal ones of Kafka."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topics = [topic for topic in admin.list_topics(timeout=WAIT_S).topics if not topic.startswith("__")]
    for future in admin.delete_topics(topics).values() if topics else ():
        try:
            future.result()
        except KafkaException as error:  # the test may have deleted it
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


class Source:
    """The source topic, and a producer of its records."""

    def __init__(self, bootstrap: str, partitions: int, topic: str | None = None) -> None:
        self.topic = topic or f"source-{uuid.uuid4().hex[:8]}"
        self._bootstrap = bootstrap
        self.partitions = partitions
        create_topics(bootstrap, {self.topic: partitions})
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 5_000_000,
                "log_level": 2,
            }
        )

    def send(self, records: Iterable[Sent]) -> None:
        """Write records and wait for their delivery."""
        for partition, value in records:
            self._producer.produce(self.topic, value, partition=partition)
        self._flush()

    def add_partitions(self, count: int) -> None:
        """Add partitions to the topic, so that it has `count`, and wait until the producer knows them."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 2})
        for future in admin.create_partitions([NewPartitions(self.topic, count)]).values():
            future.result()
        until(lambda: len(self._producer.list_topics(self.topic, WAIT_S).topics[self.topic].partitions) == count)

    def send_complete(self, records: Iterable[Record]) -> None:
        """Write records with their keys, headers and timestamps, and wait until they have arrived."""
        for record in records:
            self._producer.produce(
                self.topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp,
                headers=list(record.headers.items()),
            )
            self._producer.poll(0)
        self._flush()

    def _flush(self) -> None:
        if self._producer.flush(WAIT_S):
            raise AssertionError("the source's records did not arrive")


class Pipeline:
    """A pipeline with its own topics. `parts` are merged into `BASE`, section by section; None removes a section.

    `splitter.values` replaces the value of `BASE`.
    """

    def __init__(self, bootstrap: str, folder: Path, source: Source, /, **parts: Mapping[str, Any] | None) -> None:
        self.bootstrap = bootstrap
        self.source = source
        self.name = f"p-{uuid.uuid4().hex[:8]}"
        document: dict[str, Any] = {
            "name": self.name,
            "source": {"topic": source.topic},
            "kafka": {"bootstrap_servers": bootstrap, "connect_timeout_s": WAIT_S, "options": SLOW_FETCHES},
        }
        for section in BASE.keys() | parts.keys():
            part = parts.get(section, {})
            if part is not None:
                document[section] = {**BASE.get(section, document.get(section, {})), **part}
        if "enrich" in document:
            document["source"] = {"topic": f"{self.name}.enriched"}
        if "values" in document.get("splitter", {}):
            del document["splitter"]["value"]
        self.settings = PipelineSettings.model_validate(document)
        self.folder = folder / self.name
        self.folder.mkdir()
        self.file = self.folder / "pipeline.yaml"
        self.file.write_text(json.dumps(document))
        self.released_file = self.folder / "released.yaml"
        """The file without the settings that 0.2.0 does not have."""
        released = {**document, "event_time": {**document.get("event_time", {})}}
        released["event_time"].pop("late_rule", None)
        self.released_file.write_text(json.dumps(released))
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        topic_plan.apply(self.settings)

    def replicas(self, stage: str) -> int:
        """Return the number of processes of a stage."""
        return int(self.settings.replicas.model_dump()[stage])

    def processes(self) -> list[str]:
        """Return the names of all processes, without those that write to a database."""
        stages = [row.name for row in topology.needed_stages(self.settings) if row.name not in SINK_MODES]
        return [f"{stage}-{number}" for stage in stages for number in range(self.replicas(stage))]

    # Running

    @contextlib.contextmanager
    def running(self, *, drain: bool = False, armed: bool = False, package: Path | None = None) -> Iterator[Supervisor]:
        """Run all stages until the end of the block. Only `armed` processes have fault points.

        `package` is the folder of another version of Skewless, whose processes are always armed.
        """

        def command(stage: str, instance: int) -> list[str]:
            return self.armed_command(stage, instance, package) + (["--drain"] if drain else [])

        supervisor = Supervisor(
            self.file,
            self.settings,
            drain=drain,
            logs=self.folder,
            command=command if package else None,
            host=armed_host() if armed else stage_host(),
            rerun=drain and self._has_run(),
        )
        try:
            supervisor.start()
            yield supervisor
        finally:
            supervisor.stop()

    @contextlib.contextmanager
    def running_sinks(self) -> Iterator[list[Supervisor]]:
        """Run all stages that write to a database, each with a file of SQLite, until the end of the block.

        A pipeline has at most one of those with results. So each gets settings of its own, with the name of this
        pipeline.
        """
        sinks = {name: {"mode": mode} for name, mode in SINK_MODES.items()}
        if self.settings.aggregator.top is not None:
            sinks |= {name: {"top_table": "ranks"} for name in RANK_SINKS}
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self._running_sink(*sink)) for sink in sinks.items()]

    @contextlib.contextmanager
    def running_repartition(self) -> Iterator[Supervisor]:
        """Run the stages that partition the topics of a join again, until the end of the block.

        The join of this pipeline does not repartition, so it does not read what they write.
        """
        document = json.loads(self.file.read_text())
        document["join"]["repartition"] = "always"
        with self._running_only(REPARTITIONING, document, "repartition") as supervisor:
            yield supervisor

    @contextlib.contextmanager
    def running_enricher(self) -> Iterator[Supervisor]:
        """Run the stage that adds fields to the records of the source, until the end of the block.

        Its table has no rows. This pipeline does not read what the stage writes.
        """
        table = f"{self.name}-table"
        create_with(self.admin, {table: 1}, **{"cleanup.policy": "compact"})
        settings = {"topic": table, "key": {"field": "key"}, "fields": {"name": "name"}, "missing": "keep"}
        document = json.loads(self.file.read_text())
        document |= {"source": {"topic": f"{self.name}.enriched"}, "join": None}
        document["enrich"] = {"topic": self.source.topic, "tables": [settings]}
        with self._running_only({"enricher"}, document, "enrich") as supervisor:
            yield supervisor

    @contextlib.contextmanager
    def _running_sink(self, stage: str, sink: Mapping[str, str]) -> Iterator[Supervisor]:
        document = json.loads(self.file.read_text())
        document["sink"] = {"url": f"sqlite://{self.folder}/{stage}.db", **sink}
        with self._running_only({stage}, document, stage) as supervisor:
            yield supervisor

    @contextlib.contextmanager
    def _running_only(self, stages: Collection[str], document: dict[str, Any], name: str) -> Iterator[Supervisor]:
        """Run these stages with other settings, of which `name` is the name of the file."""
        document["replicas"] = {row.name: 0 for row in topology.STAGES if row.name not in stages}
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(document))
        settings = PipelineSettings.model_validate(document)
        topic_plan.apply(settings)
        supervisor = Supervisor(file, settings, drain=False, logs=self.folder, host=stage_host())
        try:
            supervisor.start()
            yield supervisor
        finally:
            supervisor.stop()

    def _has_run(self) -> bool:
        offsets, group = OffsetReader(self.settings.kafka), self.settings.group("splitter")
        return any(offsets.committed(group, topic) for topic in topic_plan.source_topics(self.settings))

    def start(
        self, stage: str, instance: int = 0, *, log: Path | None = None, file: Path | None = None, armed: bool = False
    ) -> ChildProcess:
        """Start one more process of a stage, which is not restarted when it ends."""
        name = f"{stage}-{instance}"
        arguments = ["run", stage, "--instance", str(instance), "--file", str(file or self.file)]
        host = armed_host() if armed else stage_host()
        return host.start(name, arguments, os.environ, log=log or self.folder / f"{name}.log")

    def with_section(self, section: str, **settings: Any) -> Path:
        """Write the file with other settings of a section, under another name."""
        document = json.loads(self.file.read_text())
        document[section] = {**document.get(section, {}), **settings}
        file = self.folder / f"{section}.yaml"
        file.write_text(json.dumps(document))
        return file

    def armed_command(self, stage: str, instance: int, package: Path | None = None) -> list[str]:
        """Command line of a process with fault points. `package` is the folder of another version of Skewless."""
        paths = os.pathsep.join(map(str, filter(None, (FAULTS, package, os.environ.get("PYTHONPATH")))))
        prefix = self.folder / f"{stage}-{instance}"
        file = str(self.released_file if package else self.file)
        run = [sys.executable, "-m", "skewless", "run", stage, "--instance", str(instance), "--file", file]
        return ["env", f"PYTHONPATH={paths}", f"SKEWLESS_TEST_FAULTS={prefix}", *run]

    def arm(self, name: str, point: str, do: str, **more: object) -> Path:
        """Arm a fault point of a process once. The returned file disappears when the fault has occurred."""
        token = self.folder / f"{name}.{point}"
        draft = token.with_suffix(".draft")
        draft.write_text(json.dumps({"do": do, **more}))
        return draft.replace(token)

    def drain(self, limit_s: float = WAIT_S) -> list[Event]:
        """Run to the end of the source; returns the events of the processes."""
        with self.running(drain=True) as supervisor:
            return self.finish(supervisor, limit_s)

    def finish(self, supervisor: Supervisor, limit_s: float = WAIT_S) -> list[Event]:
        """Wait until a bounded run has ended."""
        events: list[Event] = []
        until(
            lambda: supervisor.done,
            each=lambda: events.extend(supervisor.poll(time.monotonic())),
            limit_s=limit_s,
        )
        return events

    def kill_in_transaction(self, supervisor: Supervisor, name: str, topic: str | None = None) -> None:
        """Kill an armed process with an open transaction whose records are on the broker, some of them in `topic`."""
        topic = self.settings.topic(topic or WRITES[name.partition("-")[0]])
        self.arm(name, "written", "kill", topic=topic)
        events: list[Event] = []
        until(
            lambda: any(event.name == name and event.detail.startswith("was killed") for event in events),
            each=lambda: events.extend(supervisor.poll(time.monotonic())),
        )

    def run_with_kills(self, target: Target[Item], items: Sequence[Item], stages: Sequence[str] = STAGES) -> None:
        """Write records in portions, and kill each of these stages in the transaction in which it processes one."""
        portions = np.array_split(np.arange(len(items)), len(stages) + 1)
        first, *others = ([items[index] for index in portion] for portion in portions)
        target.send(first)
        killed: set[str] = set()
        with self.running(armed=True) as supervisor:

            def look() -> None:
                events = supervisor.poll(time.monotonic())
                killed.update(event.name for event in events if event.detail.startswith("was killed"))

            for number, (stage, portion) in enumerate(zip(stages, others, strict=True)):
                self.arm(f"{stage}-0", "written", "kill", topic=self.settings.topic(WRITES[stage]))
                target.send(portion)
                until(lambda: len(killed) > number, each=look)  # noqa: B023 - is over before the next stage
            assert killed == {f"{stage}-0" for stage in stages}

    def shares(self, stage: str) -> int:
        """Count the processes of a stage that own partitions; 0 while the group has no coordinator yet."""
        group = f"{self.name}-{stage}"
        try:
            members = self.admin.describe_consumer_groups([group])[group].result(WAIT_S).members
        except KafkaException as error:
            if error.args[0].code() not in UNSETTLED:
                raise
            return 0
        return sum(1 for member in members if member.assignment and member.assignment.topic_partitions)

    # Content of the topics

    def is_open(self, topic: str) -> bool:
        """Return whether a transaction on one of the pipeline's topics is neither committed nor aborted."""
        written = self.ends(topic, IsolationLevel.READ_UNCOMMITTED)
        stable = self.ends(topic, IsolationLevel.READ_COMMITTED)
        return any(stable[partition] < end for partition, end in written.items())

    def ends(self, topic: str, isolation: IsolationLevel) -> dict[int, int]:
        """Return the next offset of every partition at this isolation level."""
        name = self.settings.topic(topic)
        return ends(self.admin, name, topics_partitions(self.admin, name), isolation)

    def read(self, topic: str, *, committed: bool = True) -> Iterator[Record]:
        """Read a topic by its name in the topology, to its end."""
        return read(self.bootstrap, self.settings.topic(topic), committed=committed)

    def count(self, topic: str, *, committed: bool = True) -> int:
        """Count the records of a topic."""
        return sum(1 for _ in self.read(topic, committed=committed))

    def written(self, topic: str) -> int:
        """Return the end offsets of a topic, which grow with each commit. This does not read records."""
        return sum(self.ends(topic, IsolationLevel.READ_COMMITTED).values())

    def aborted(self, topic: str) -> int:
        """Count the records of a topic that were written but never committed."""
        return self.count(topic, committed=False) - self.count(topic)

    def tuples(self, topic: str) -> int:
        """Count the tuples in a topic of columns."""
        return sum(read_table(record.value).num_rows for record in self.read(topic) if record.value)

    def results(self) -> tuple[dict[tuple[int, str], dict[str, Any]], list[str]]:
        """Last result of every (window, key) in `aggregates`, and the errors among its earlier results.

        The key and the timestamp must be those of the value, and each revision must come once, in order.
        """
        last: dict[tuple[int, str], dict[str, Any]] = {}
        failures = []
        to_json = result_reader(self.settings)
        for record in self.read("aggregates"):
            if record.value is None:
                window, _, key = (record.key or b"").decode().partition("/")
                if last.pop((int(window), key), None) is None:
                    failures.append(f"aggregates: {record} deletes no result")
                continue
            entry = msgspec.json.decode(to_json(record.value))
            at = (entry["window_start"], entry["key"])
            if record.key != f"{at[0]}/{at[1]}".encode() or record.timestamp != at[0]:
                failures.append(f"aggregates: {record} is not keyed or timed as its value")
            if at in last and entry["revision"] <= last[at]["revision"]:
                failures.append(
                    f"aggregates: partition {record.partition} offset {record.offset}: {entry} after {last[at]}"
                )
            last[at] = entry
        return last, failures


def crashes(events: Iterable[Event]) -> list[str]:
    """Return how processes ended, except those that start again because another program had taken their port."""
    ended = (f"{event.name} {event.detail}" for event in events if event.kind == "ended")
    return [end for end in ended if "found its metrics port" not in end]


def topics_partitions(admin: AdminClient, topic: str) -> int:
    """Count a topic's partitions."""
    return len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)


def ends(admin: AdminClient, topic: str, partitions: int, isolation: IsolationLevel) -> dict[int, int]:
    """Return the next offset of every partition."""
    request = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
    futures = admin.list_offsets(request, isolation_level=isolation, request_timeout=WAIT_S)
    return {at.partition: future.result(WAIT_S).offset for at, future in futures.items()}


def read(bootstrap: str, topic: str, *, committed: bool = True) -> Iterator[Record]:
    """Read all records that were written before the call; fails if an open transaction blocks some of them."""
    client = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20}
    admin = AdminClient({**client, "log_level": 2})
    wanted = ends(admin, topic, topics_partitions(admin, topic), IsolationLevel.READ_UNCOMMITTED)
    consumer = Consumer(
        {
            **client,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
        }
    )
    deadline = time.monotonic() + WAIT_S
    with contextlib.closing(consumer):
        consumer.list_topics(topic, timeout=WAIT_S)  # any other first request waits for half a second
        waiting = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition, end in wanted.items() if end]
        consumer.assign(waiting)
        while waiting:
            for message in consumer.consume(10_000, 0.02):
                error = message.error()
                if error is not None and error.code() != KafkaError._ALL_BROKERS_DOWN:
                    raise AssertionError(f"reading {topic}: {error.str()}")
                yield Record(
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    dict(message.headers() or ()),
                )
            waiting = [at for at in consumer.position(waiting) if at.offset < wanted[at.partition]]
            if time.monotonic() > deadline:
                raise AssertionError(f"an open transaction holds back {waiting}")


@dataclass
class Truth:
    """The expected results of a plain loop over the source's records."""

    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    sums: Counter[tuple[int, str]] = field(default_factory=Counter)
    late: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """Valid records, by partition and offset of the source."""

    @property
    def tuples(self) -> int:
        """Tuples that are not late."""
        return self.counts.total()


def truth(
    records: Iterable[Record], *, lateness_ms: int = 10_000, window_ms: int = 60_000, by_window: bool = True
) -> Truth:
    """Count valid records.

    A tuple is late if the newest earlier tuple of its partition is past the end of its window (without `by_window`:
    after its own time) by more than the lateness.
    """
    found = Truth()
    newest: defaultdict[int, int | None] = defaultdict(lambda: None)
    for record in records:
        entry = json.loads(record.value or b"")
        before = newest[record.partition]
        newest[record.partition] = entry["time"] if before is None else max(before, entry["time"])
        start = entry["time"] // window_ms * window_ms
        deadline = start + window_ms - 1 if by_window else entry["time"]
        if before is not None and deadline < before - lateness_ms:
            where = {"watermark": before - lateness_ms, "partition": record.partition, "offset": record.offset}
            found.late[record.partition, record.offset] = entry | where
        else:
            at = (start, entry["key"])
            found.counts[at] += 1
            found.sums[at] += entry["value"]
    return found


def differences(pipeline: Pipeline, expected: Truth, *, ticks: bool = True, closed_to: int | None = None) -> list[str]:
    """List the differences between a pipeline's topics and the plain count, a few of each kind; empty if exact.

    If the pipeline runs, only windows that end at or before `closed_to` are compared. `ticks` is off where tuples
    belong to ticks that were written before: those of idle partitions, and of windows that close after their ticks.
    """
    window_ms = pipeline.settings.aggregator.window_ms

    def compared(at: tuple[int, str]) -> bool:
        return closed_to is None or at[0] + window_ms <= closed_to

    results, failures = pipeline.results()
    answers = {at: (entry["count"], entry["sum"]) for at, entry in results.items() if compared(at)}
    wanted = {at: (count, expected.sums[at]) for at, count in expected.counts.items() if compared(at)}
    late: dict[tuple[int, int], dict[str, Any]] = {}
    twice = []
    for record in pipeline.read("late"):
        entry = json.loads(record.value or b"")
        at = (entry["partition"], entry["offset"])
        twice += [f"late: {at} is duplicate"] if at in late else []
        late[at] = entry
    shown = [json.loads(record.value or b"") for record in pipeline.read("distribution")]
    starts = Counter(tick["tick_start"] for tick in shown)
    return [
        *failures[:5],
        *_unlike("aggregates", answers, wanted),
        *_unlike("late", late, expected.late),
        *twice[:5],
        *_unlike("ticks", starts, dict.fromkeys(starts, 1)),
        *(_sum_errors(answers, shown, expected.tuples) if ticks else ()),
    ]


def _sum_errors(
    answers: Mapping[tuple[int, str], tuple[int, int]], ticks: list[dict[str, Any]], tuples: int
) -> list[str]:
    sums = {
        "aggregates": sum(count for count, _ in answers.values()),
        "ticks": sum(tick["tuples"] for tick in ticks),
        "ticks by worker": sum(sum(tick["tuples_by_worker"]) for tick in ticks),
        "run": max((tick["run"]["tuples"] for tick in ticks), default=0),
    }
    return _unlike("sums of tuples", sums, dict.fromkeys(sums, tuples))


def _unlike(what: str, found: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> list[str]:
    unlike = [at for at in found.keys() | wanted.keys() if found.get(at) != wanted.get(at)]
    return [
        f"{what}: {at} is {found.get(at)}, should be {wanted.get(at)} (one of {len(unlike)})"
        for at in sorted(unlike, key=repr)[:5]
    ]


def zipf_records(  # noqa: PLR0913 - by name
    count: int, partitions: int, seed: int, *, keys: int = 50_000, z: float = 1.1, span_s: int = 600
) -> Iterator[Sent]:
    """Make records over `span_s` of event time, out of order by up to 5 s, and 3 % of them by up to 90 s.

    Each partition's event time starts at another moment and advances at another pace.
    """
    random = np.random.default_rng(seed)
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -z
    steps = np.cumsum(weights) / weights.sum()
    steps[-1] = np.inf
    names = random.permutation(keys)
    size = count // partitions
    columns = []
    for partition in range(partitions):
        times = np.arange(size) * (span_s * 1000 * (1 + partition / 10) / size)
        delay = np.where(random.random(size) < 0.03, 90_000, 5_000) * random.random(size)
        order = np.argsort(times + delay, kind="stable")
        ranks = np.searchsorted(steps, random.random(size), side="right")
        shifted = START_MS + 37_000 * partition + times[order].astype(np.int64)
        columns.append(
            zip(names[ranks].tolist(), random.integers(-50, 100, size).tolist(), shifted.tolist(), strict=True)
        )
    for row in zip(*columns, strict=True):
        for partition, entry in enumerate(row):
            yield partition, b'{"key":"k%05d","value":%d,"time":%d}' % entry


class Target(Protocol[Written_contra]):
    """Topics to which a feed writes."""

    def send(self, records: Iterable[Written_contra], /) -> None:
        """Write records and wait for their delivery."""


class Feed(threading.Thread, Generic[Item]):
    """Writes records to a source at a pace. `finish` or the end of the block sends the others at once."""

    def __init__(self, source: Target[Item], records: Iterable[Item], rate: float) -> None:
        super().__init__(name="feed")
        self._source = source
        self._records = iter(records)
        self._portion = max(1, round(rate * EVERY_S))
        self._hurry = threading.Event()
        self._over = threading.Event()
        self._least = 0
        self.sent = 0
        """Number of records that were delivered."""

    def run(self) -> None:
        """Write a portion every `EVERY_S`."""
        while not (self._over.is_set() and self.sent >= self._least):
            portion = list(itertools.islice(self._records, self._portion))
            if not portion:
                break
            self._source.send(portion)
            self.sent += len(portion)
            self._hurry.wait(EVERY_S)

    def finish(self, least: int = 0) -> None:
        """Stop the feed as soon as it has written the `least` number of records.

        Fails if no records were left, because the test then waited too long.
        """
        assert self.is_alive(), f"the feed ran out after {self.sent} records"
        self._least = least
        self._over.set()
        self.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._portion *= 100
        self._hurry.set()
        self.join()
