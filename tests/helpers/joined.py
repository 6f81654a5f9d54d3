"""A pipeline that only joins two topics of its own, on a real broker, and the comparison of its outputs."""
# ruff: noqa: S311 - the records are seeded, not secret

from __future__ import annotations

import json
import random
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from helpers.join_oracle import Event, answer, late
from helpers.kafka import SLOW_FETCHES, START_MS, create_topics, read
from helpers.killer import Killer
from helpers.stage_hosts import stage_host
from helpers.waiting import WAIT_S, until
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import pair_reader
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local.supervisor import Supervisor
from skewless.wire.aggregates import unchanged
from skewless.wire.timed_records import PREFIX_BYTES

PARTITIONS = 2
APART_S, DISORDER_MS = 2.0, 300
LEFT, RIGHT = Side
EQUAL = dict.fromkeys(Side, PARTITIONS)

Log = list[Event]


class JoinTopics:
    """Two topics to join, what is written to them, and the comparison of the outputs of a pipeline."""

    def __init__(self, broker: str, partitions: Mapping[Side, int] = EQUAL) -> None:
        self.broker, self.partitions = broker, partitions
        self.name = f"j-{uuid.uuid4().hex[:8]}"
        self.topics = {LEFT: f"impressions-{self.name}", RIGHT: f"clicks-{self.name}"}
        create_topics(broker, {topic: partitions[side] for side, topic in self.topics.items()})
        self.logs: dict[Side, list[Log]] = {side: [[] for _ in range(partitions[side])] for side in Side}
        self.encode: dict[Side, Callable[[dict[str, Any]], bytes]] = dict.fromkeys(Side, msgspec.json.encode)
        """Encodes the records of a side."""
        options = {"enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        self.producer = Producer({"bootstrap.servers": broker, **options})

    def section(self, **changes: Any) -> dict[str, Any]:
        """Return the section `join` of a pipeline."""
        sides = {
            side.value: {"topic": topic, "id": {"field": "id"}, "time": {"field": "time"}}
            for side, topic in self.topics.items()
        }
        return {**sides, "apart_s": APART_S, "sync_delay_s": APART_S + DISORDER_MS / 1000, **changes}

    def send(self, side: Side, events: Sequence[Event]) -> None:
        """Write records of a side. With as many partitions, both sides use the same one for an id."""
        for event in events:
            partition = int(event.id) % self.partitions[side]
            log = self.logs[side][partition]
            record = {"id": event.id, "time": event.time, "offset": len(log), "partition": partition}
            value = self.encode[side](record)
            log.append(event)
            record_id = event.id.encode()
            self.producer.produce(self.topics[side], value, record_id, partition=partition, headers=[("id", record_id)])
            self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(WAIT_S) == 0

    def differences(self, settings: PipelineSettings) -> dict[str, list[tuple[Any, ...]]]:
        """Compare all outputs of a pipeline with the definition, record for record."""
        assert settings.join is not None
        rules = settings.join.rules()
        expected: Counter[tuple[Any, ...]] = Counter()
        for partition in range(self.partitions[LEFT]):
            left, right = (self.logs[side][partition] for side in Side)
            found = answer(left, right, rules, ended=True)
            expected.update(("joined", partition, *pair) for pair in found.pairs)
            expected.update(("unmatched-left", partition, offset) for offset in found.unmatched_left)
            expected.update(("unmatched-right", partition, offset) for offset in found.unmatched_right)
            expected.update(("left", partition, offset) for offset in found.late_left)
            expected.update(("right", partition, offset) for offset in found.late_right)
        return _differences(expected, Counter(self._written(settings)))

    def repartitioned_differences(self, settings: PipelineSettings) -> dict[str, list[tuple[Any, ...]]]:
        """Compare all outputs with the definition, record for record. The stages left and right define the order."""
        assert settings.join is not None
        rules = settings.join.rules()
        expected: Counter[tuple[Any, ...]] = Counter()
        merged: dict[Side, dict[int, list[tuple[int, int]]]] = {side: defaultdict(list) for side in Side}
        for side in Side:
            for record in read(self.broker, settings.topic(f"{side.value}-records")):
                if record.value is not None:
                    original = msgspec.json.decode(record.value[PREFIX_BYTES:])
                    merged[side][record.partition].append((original["partition"], original["offset"]))
            forwarded = {at for log in merged[side].values() for at in log}
            assert len(forwarded) == sum(map(len, merged[side].values()))
            for partition, log in enumerate(self.logs[side]):
                late_offsets = late(log, rules.disorder_ms(side))
                assert {offset for number, offset in forwarded if number == partition} == (
                    set(range(len(log))) - late_offsets
                )
                expected.update((side.value, partition, offset) for offset in late_offsets)
        in_order = JoinRules(rules.apart_ms, 2**60, 2**60)
        for number in merged[LEFT].keys() | merged[RIGHT].keys():
            left, right = (merged[side][number] for side in Side)
            left_log, right_log = ([self.logs[side][part][at] for part, at in merged[side][number]] for side in Side)
            found = answer(left_log, right_log, in_order, ended=True)
            expected.update(("joined", number, *left[one], *right[other]) for one, other in found.pairs)
            expected.update(("unmatched-left", number, *left[at]) for at in found.unmatched_left)
            expected.update(("unmatched-right", number, *right[at]) for at in found.unmatched_right)
        return _differences(expected, Counter(self._written_from(settings)))

    def _written_from(self, settings: PipelineSettings) -> Iterator[tuple[Any, ...]]:
        """Yield what was written, with the coordinates of the records in their topics."""
        for record in self.outputs(settings, "joined"):
            sides = (coordinate for side in Side for coordinate in _origin(record[side.value]))
            yield "joined", record["partition"], *sides
        for topic in ("unmatched-left", "unmatched-right"):
            for record in self.outputs(settings, topic):
                yield topic, record["partition"], *_origin(record["record"])
        for record in self.outputs(settings, "join-late"):
            yield record["side"], record["partition"], record["offset"]

    def _written(self, settings: PipelineSettings) -> Iterator[tuple[Any, ...]]:
        for record in self.outputs(settings, "joined"):
            yield "joined", record["partition"], record["left"]["offset"], record["right"]["offset"]
        for topic in ("unmatched-left", "unmatched-right"):
            for record in self.outputs(settings, topic):
                yield topic, record["partition"], record["record"]["offset"]
        for record in self.outputs(settings, "join-late"):
            yield record["side"], record["partition"], record["offset"]

    def outputs(self, settings: PipelineSettings, topic: str) -> Iterator[dict[str, Any]]:
        to_json = pair_reader(settings) if topic == "joined" else unchanged
        for record in read(self.broker, settings.topic(topic)):
            yield {**msgspec.json.decode(to_json(record.value or b"")), "partition": record.partition}


class Joined(JoinTopics):
    """A pipeline that only joins, with topics of its own, and what is written to both sides."""

    def __init__(self, broker: str, folder: Path, partitions: Mapping[Side, int] = EQUAL, **changes: Any) -> None:
        super().__init__(broker, partitions)
        self.folder = folder
        self.document: dict[str, Any] = {
            "name": self.name,
            "kafka": {"bootstrap_servers": broker, "connect_timeout_s": 60, "options": SLOW_FETCHES},
            "join": self.section(**changes),
            "transport": {"commit_interval_s": 0.3, "session_timeout_s": 3, "max_poll_records": 500},
        }
        self.load()
        topic_plan.apply(self.settings)

    def load(self) -> None:
        """Take over a change of the document."""
        self.settings = PipelineSettings.model_validate(self.document)
        self.file = self.folder / "pipeline.yaml"
        self.file.write_text(json.dumps(self.document))

    def supervisor(self, *, drain: bool, logs: str = "") -> Supervisor:
        return Supervisor(self.file, self.settings, drain=drain, logs=self.folder / logs, host=stage_host())

    def send_while_killing(
        self, logs: Mapping[Side, Log], chance: random.Random, *, times: int, processes: int
    ) -> None:
        """Run the pipeline while records are written in parts, and kill some of its processes after each part.

        They are killed a while after they have got partitions.
        """
        supervisor = self.supervisor(drain=False, logs="killed")
        killer = Killer(supervisor)
        try:
            supervisor.start()
            for part in range(times):
                for side, log in logs.items():
                    self.send(side, log[part * len(log) // times : (part + 1) * len(log) // times])
                self.flush()
                victims = chance.sample(sorted(supervisor.processes), processes)
                killer.kill(*victims, after_s=chance.uniform(0.5, 2.0))
        finally:
            supervisor.stop()

    def hold(self, log: Log) -> None:
        """Run the pipeline until the join has committed these left records, which wait for partners.

        The other stages have committed by then, too, so that each has a checkpoint.
        """
        self.send(LEFT, log)
        self.flush()
        offsets, settings = OffsetReader(self.settings.kafka), self.settings
        repartitioned = settings.joined.repartition == "always"
        topic = settings.topic("left-records" if repartitioned else "left")

        def committed() -> bool:
            found = offsets.committed(settings.group("join"), topic)
            stages = settings.sides if repartitioned else {}
            return sum(each.offset for each in found.values()) >= len(log) and all(
                offsets.committed(settings.group(stage), side.topic) for stage, side in stages.items()
            )

        supervisor = self.supervisor(drain=False)
        try:
            supervisor.start()
            until(committed, each=lambda: supervisor.poll(time.monotonic()))
        finally:
            supervisor.stop()

    def drain(self) -> list[str]:
        """Run to the end of both topics. Returns the kinds of events of the processes."""
        supervisor = self.supervisor(drain=True)
        kinds: list[str] = []
        try:
            supervisor.start()
            until(
                lambda: supervisor.done,
                each=lambda: kinds.extend(event.kind for event in supervisor.poll(time.monotonic())),
            )
        finally:
            supervisor.stop()
        return kinds

    def wrong(self) -> dict[str, list[tuple[Any, ...]]]:
        """Compare all outputs with the definition, record for record."""
        return self.differences(self.settings)

    def wrong_repartitioned(self) -> dict[str, list[tuple[Any, ...]]]:
        """Compare all outputs with the definition, record for record. The stages left and right define the order."""
        return self.repartitioned_differences(self.settings)

    def write_result(self, topic: str, row: tuple[str, int, str, str, int]) -> None:
        """Write a result as the join does: partition, key, value and timestamp."""
        _, partition, key, value, timestamp = row
        self.producer.produce(self.settings.topic(topic), value, key, partition=partition, timestamp=timestamp)
        self.flush()

    def read(self, topic: str) -> Iterator[dict[str, Any]]:
        """Read an output, with the partition of each record."""
        return self.outputs(self.settings, topic)


def _origin(record: dict[str, int]) -> tuple[int, int]:
    return record["partition"], record["offset"]


def _differences(
    expected: Counter[tuple[Any, ...]], written: Counter[tuple[Any, ...]]
) -> dict[str, list[tuple[Any, ...]]]:
    differences = {
        "missing": expected.keys() - written.keys(),
        "false": written.keys() - expected.keys(),
        "repeated": {outcome for outcome, count in written.items() if count > 1},
    }
    return {name: sorted(outcomes)[:5] for name, outcomes in differences.items() if outcomes}


def traffic(records: int, seed: int) -> Mapping[Side, Log]:
    """Make left records, most with a right one up to a second later, with some disorder, duplicates and strays."""
    chance = random.Random(seed)
    left = [Event(f"{number}", START_MS + number) for number in range(records)]
    right = []
    for event in left:
        copies = (2 if chance.random() < 0.01 else 1) if chance.random() < 0.9 else 0
        right += [(event.time + chance.randrange(DISORDER_MS), event.id, event.time) for _ in range(copies)]
    right += [(START_MS + number, f"{records + number}", START_MS + number) for number in range(0, records, 100)]
    return {
        LEFT: [event for event in left for _ in range(2 if chance.random() < 0.01 else 1)],
        RIGHT: [Event(record_id, time + chance.randrange(50)) for _, record_id, time in sorted(right)],
    }
