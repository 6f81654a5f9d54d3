"""Checks whether two topics can be joined: measures samples of both, and compares them with the settings of a join."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import joined_topics_problems
from skewless.engine.message_batch import MessageBatch
from skewless.errors import CheckFailedError
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.lab.datasets.lateness import LatenessTracker
from skewless.lab.inspection.read_topic import SampleRange, sample_range
from skewless.parsing.join_records import SideRules, read_records, side_rules
from skewless.stages.join.settings import SPAN_SETTINGS
from skewless.wire.topic_partition import TopicPartition

LISTED_REASONS = 3
"""Reasons of invalid records that a problem names at most."""
REPARTITION = "set join.repartition: always"


@dataclass
class SideSample:
    """Measures of a sample of one topic."""

    side: Side
    topic: str
    partitions: int
    tolerated_ms: int
    """Disorder that the settings tolerate."""
    records: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    """Records that would be dead letters, by reason, without those of the key."""
    foreign_keys: int = 0
    """Valid records whose key is not the id."""
    late: int = 0
    disorder_ms: int = 0
    """Largest time by which a record is older than one before it in its partition."""
    id_partitions: dict[str, set[int]] = field(default_factory=dict)
    """Partitions of each id."""
    _lateness: LatenessTracker = field(default_factory=LatenessTracker)

    def add(self, rules: SideRules, batch: MessageBatch, newest: int) -> None:
        """Add the next records of a partition. `newest` is the largest event time that is not too far ahead, in ms."""
        self.records += len(batch.values)
        rows = np.arange(len(batch.values), dtype=np.int64)
        valid, invalid = read_records(replace(rules, keyed=False), batch, rows, newest)
        self.invalid.update(invalid.values())
        keys = batch.keys
        for record_id, row in zip(valid.ids.tolist(), valid.offsets.tolist(), strict=True):
            self.foreign_keys += keys[row] != record_id.encode()
            self.id_partitions.setdefault(record_id, set()).add(batch.partition)
        if len(valid.times):
            behind = self._lateness.add_to(batch.partition, valid.times)
            self.late += int((behind > self.tolerated_ms).sum())
            self.disorder_ms = max(self.disorder_ms, int(behind.max()))


@dataclass(frozen=True)
class JoinCheck:
    """Measures of both topics, and what keeps them from being joined."""

    samples: Mapping[Side, SideSample]
    shared_ids: int
    """Ids in both samples."""
    scattered_ids: int
    """Those that are in different partition numbers."""
    problems: list[str]


def check_join(
    settings: PipelineSettings,
    records: int,
    on_progress: Callable[[float, int], None] = lambda _now, _done: None,
) -> JoinCheck:
    """Read the newest `records` of both topics, and check them. Uses no consumer group and writes nothing.

    Raises ConfigurationError if the pipeline has no join, BrokerError if one of the topics does not exist, and
    UnreachableError if no broker answers.
    """
    join, now = settings.joined, time.time_ns() // 1_000_000
    rules, problems = join.rules(), joined_topics_problems(settings)
    newest, samples, done = now + settings.event_time_rules().max_ahead_ms, {}, 0
    for side in Side:
        topic = join.side(side).topic
        ranges = _sample_range(settings.kafka, topic, records, now, problems)
        sample = SideSample(side, topic, len(ranges.ranges), rules.disorder_ms(side))
        parse = side_rules(join.side(side))
        for partition, messages in read_ranges(settings.kafka, topic, ranges.ranges):
            sample.add(parse, MessageBatch(TopicPartition(topic, partition), 0, messages), newest)
            on_progress(time.monotonic(), done + sample.records)
        done += sample.records
        samples[side] = sample
    left, right = (samples[side].id_partitions for side in Side)
    shared = left.keys() & right.keys()
    scattered = sum(len(left[record_id] | right[record_id]) > 1 for record_id in shared)
    if join.repartition == "never":
        problems += _partition_problems(samples, scattered, len(shared))
    return JoinCheck(samples, len(shared), scattered, [*problems, *_sample_problems(samples, rules, shared)])


def _sample_range(kafka: KafkaSettings, topic: str, records: int, now: int, problems: list[str]) -> SampleRange:
    try:
        return sample_range(kafka, topic, records, None, now)
    except CheckFailedError as error:  # it is empty
        problems.append(str(error))
        return SampleRange({}, {}, {})


def _partition_problems(samples: Mapping[Side, SideSample], scattered: int, shared: int) -> Iterator[str]:
    """Yield a line for each property with which ids are not in the same partition number of both topics."""
    for sample in samples.values():
        if sample.foreign_keys:
            yield (
                f"topic {sample.topic}: the key of {_share(sample.foreign_keys, sample.records, 'record')} is not the "
                f"id, they go to dead-letters: {REPARTITION}"
            )
    if scattered:
        yield (
            f"{_share(scattered, shared, 'id')} of both samples are in different partition numbers, so they find no "
            f"partner: {REPARTITION}"
        )


def _sample_problems(samples: Mapping[Side, SideSample], rules: JoinRules, shared: set[str]) -> Iterator[str]:
    """Yield a line for each thing in the samples that does not fit the settings of its side."""
    for sample in samples.values():
        yield from _side_problems(sample, rules)
    left, right = (samples[side] for side in Side)
    if left.id_partitions and right.id_partitions and not shared:
        yield (
            f"no id is in both samples, of {len(left.id_partitions):,} ids of topic {left.topic} and "
            f"{len(right.id_partitions):,} of topic {right.topic}: correct join.left.id and join.right.id, or read "
            "more with --records"
        )


def _side_problems(sample: SideSample, rules: JoinRules) -> Iterator[str]:
    if count := sample.invalid.total():
        reasons = ", ".join(f"{reason} ({number:,})" for reason, number in sample.invalid.most_common(LISTED_REASONS))
        yield (
            f"topic {sample.topic}: {_share(count, sample.records, 'record')} are invalid, they go to dead-letters: "
            f"{reasons}. Correct join.{sample.side.value}, or the records"
        )
    if sample.late:
        setting, needed = SPAN_SETTINGS[sample.side], (rules.apart_ms + sample.disorder_ms) / 1000
        yield (
            f"topic {sample.topic}: {_share(sample.late, sample.records, 'record')} are late. They are up to "
            f"{sample.disorder_ms / 1000:g} s older than one before them, and {setting} tolerates "
            f"{sample.tolerated_ms / 1000:g} s: set {setting} to at least {needed:.12g}"
        )


def _share(count: int, total: int, noun: str) -> str:
    return f"{count:,} of {total:,} {noun}s ({count / total:.2%})"
