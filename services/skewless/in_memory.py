"""Runs the stages of a pipeline in memory: without Kafka, without threads, and with the same result every time.

pipeline = InMemoryPipeline(settings)
records = [OutputRecord("events", b'{"key": "en", "value": 42}', partition=0, timestamp=1767225600000)]
results = pipeline.process(records, now=1767225600000, end=True)["aggregates"]
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.config.topic_plan import desired_topics
from skewless.engine.message_batch import MessageBatch
from skewless.engine.step import InputStep
from skewless.errors import ConfigurationError
from skewless.stages.built_stage import build
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition


class InMemoryPipeline:
    """The stages of a pipeline that write to topics. Each has as many steps as it has processes (`replicas`).

    Results and pairs are JSON, also if the settings have another format, whose schemas a registry would get.
    """

    def __init__(self, settings: PipelineSettings, partitions: Mapping[str, int] = MappingProxyType({})) -> None:
        """`partitions` has the number of partitions of topics of the user by name. The default is 1.

        Both joined topics have the larger of their numbers: the other one has empty partitions.
        """
        self._settings = _with_max_workers(settings.with_json_results())
        self._partitions = _partition_counts(self._settings, partitions)
        self._offsets: Counter[TopicPartition] = Counter()
        """Next offset of each partition."""
        self._tables: dict[str, list[Callable[[MessageBatch], object]]] = defaultdict(list)
        """What applies the records of the topic of a table, by topic."""
        self._stages = [self._stage(row) for row in topology.needed_stages(self._settings) if row.outputs]

    def process(self, records: Iterable[OutputRecord], now: int, *, end: bool = False) -> dict[str, list[OutputRecord]]:
        """Process records as the stages do between two commits, and return what the stages write.

        `topic` of the records is a full name. The result has the records of each topic of the pipeline by its name in
        the topology: results, late tuples, dead letters and the records of internal topics. `now` is the wall-clock
        time in ms, which is the timestamp of records that have none. The rows of tables are applied first. With `end`,
        the partitions end after these records, so all windows close.
        """
        written: dict[str, list[OutputRecord]] = {row.name: [] for row in topology.needed_topics(self._settings)}
        unread: defaultdict[TopicPartition, list[OutputRecord]] = defaultdict(list)
        for record in records:
            partition = self._partition_of(record.topic, record)
            if partition.topic not in self._tables and not any(partition in stage for stage in self._stages):
                raise ConfigurationError(f"no stage reads topic {partition.topic} partition {partition.partition}")
            unread[partition].append(record)
        for partition in [each for each in unread if each.topic in self._tables]:
            rows = MessageBatch.of_outputs(partition, unread[partition], now, first_offset=self._offsets[partition])
            for update in self._tables[partition.topic]:
                update(rows)
        for stage in self._stages:
            for record in self._outputs(stage, unread, now, end=end):
                written[record.topic].append(record)
                unread[self._partition_of(self._settings.topic(record.topic), record)].append(record)
        for partition, appended in unread.items():
            self._offsets[partition] += len(appended)
        return written

    def _stage(self, row: topology.Stage) -> Mapping[TopicPartition, InputStep[Any]]:
        """Build the steps of a stage, and return the step of each input partition."""
        start = StageStart(row, self._settings, self._partitions, drain=True)
        counts = {topic: self._partitions[topic] for topic, _ in start.input_topics()}
        processes = 1 if row.singleton else max(1, self._settings.replicas.of(row.name))
        built = [build(start) for _ in range(min(processes, max(counts.values())))]
        for topic in built[0].tables:
            self._tables[topic] = [each.tables[topic] for each in built]
        steps = [each.step for each in built]
        for step in steps:
            step.observe_topics(counts)
        step_by_partition = {
            TopicPartition(topic, number): steps[number % len(steps)]
            for topic, count in counts.items()
            for number in range(count)
        }
        for partition, step in step_by_partition.items():
            step.assign(step.key_of(partition), None, ())
        return step_by_partition

    def _outputs(
        self,
        stage: Mapping[TopicPartition, InputStep[Any]],
        unread: Mapping[TopicPartition, Sequence[OutputRecord]],
        now: int,
        *,
        end: bool,
    ) -> Iterator[OutputRecord]:
        for partition, step in stage.items():
            if records := unread.get(partition):
                batch = MessageBatch.of_outputs(partition, records, now, first_offset=self._offsets[partition])
                yield from step.process(batch, now)
            if end:
                step.end_of_partition(step.key_of(partition), now)
        for step in dict.fromkeys(stage.values()):
            yield from step.flush(now)

    def _partition_of(self, topic: str, record: OutputRecord) -> TopicPartition:
        """Return the partition to which a producer writes a record: without a number, the key determines it."""
        if record.partition is not None:
            return TopicPartition(topic, record.partition)
        return TopicPartition(topic, zlib.crc32(record.key or b"") % self._partitions.get(topic, 1))


def _partition_counts(settings: PipelineSettings, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the number of partitions of all topics by full name."""
    counts = dict(partitions)
    joined = [side.topic for side in settings.sides.values()]
    join_partitions = max((partitions.get(topic, 1) for topic in joined), default=1)
    counts |= dict.fromkeys(joined, join_partitions)
    source_partitions = join_partitions
    if settings.source is not None:
        # The source may be the pipeline's own topic.
        counts.setdefault(settings.topic("joined"), join_partitions)
        if settings.enrich is not None:
            counts.setdefault(settings.enrich.topic, 1)
            counts.setdefault(settings.topic("enriched"), counts[settings.enrich.topic])
        sources = {topic: counts.get(topic, 1) for topic in settings.source.select(counts)}
        counts |= sources
        if not sources:
            raise ConfigurationError("source.topics.match: matches no topic, state the partitions of the source topics")
        source_partitions = settings.topics.tuples_partitions or max(sources.values())
    specs = desired_topics(settings, source_partitions, join_partitions)
    return counts | {spec.name: spec.partitions for spec in specs}


def _with_max_workers(settings: PipelineSettings) -> PipelineSettings:
    """Return the settings with partitions of worker-input for all workers: those of a topic that exists may be more."""
    if settings.source is None or settings.router.workers <= settings.worker_input.partitions:
        return settings
    return settings.with_max_workers(settings.router.workers)
