"""Windows of a query of `skewless stream`, as the stages hold them. Without Spark and without Kafka.

A `PartitionMerger` merges the partials of one partition of `aggregates` as the aggregator does. A `LoadMerger` measures
the load in the partials of all partitions as the observer does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from skewless import topology
from skewless.algorithms.watermark import NOTHING_REPORTED, WatermarkState
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.engine.message_batch import MessageBatch
from skewless.engine.step import Sample
from skewless.stages.aggregator.builder import restore
from skewless.stages.aggregator.step import AggregatorStep
from skewless.stages.built_stage import build
from skewless.stages.observer.step import ObserverStep
from skewless.stages.windowed_step import WindowedStep
from skewless.wire.changelog import window_of
from skewless.wire.headers import schema_header, watermark_records
from skewless.wire.partials import PARTIALS
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.topic_partition import TopicPartition

Kind = TypeVar("Kind")
ReadChangelog = Callable[[int, Callable[[bytes], bool]], list[tuple[bytes, bytes]]]
"""Reads a partition of the changelog. Values are empty for keys for which the function returns False."""
RestoreState = Callable[[int, str | None], Sequence[tuple[bytes, bytes]]]
"""Returns the state of a partition with this checkpoint."""
Checkpoints = Mapping[int, str | None]
"""Checkpoints by partition of `partials`; None for one without a commit."""


def step_of(stage: str, settings: PipelineSettings, partitions: Mapping[str, int], kind: type[Kind]) -> Kind:
    """Build the step of a stage."""
    step = build(StageStart(topology.stage(stage), settings, partitions)).step
    if not isinstance(step, kind):
        raise TypeError(f"stage {stage} has a {type(step).__name__}")
    return step


class WindowMerger:
    """Merges partials of some partitions into windows."""

    def __init__(self, settings: PipelineSettings, step: WindowedStep, partitions: Iterable[int]) -> None:
        self._topic = settings.topic("partials")
        self._workers = settings.worker_input.partitions
        self._step = step
        self._partitions = tuple(partitions)
        rules = settings.event_time_rules()
        self._earliest = WatermarkState(rules.earliest - rules.lateness_ms)

    def merge(self, blocks: Iterable[tuple[int, bytes]], watermark: WatermarkState, now: int) -> Iterator[OutputRecord]:
        """Merge blocks of partials, each of a partition, and advance event time. Yields what a commit writes.

        Without a watermark, windows wait for the first event time of a source partition, also if a bounded run of the
        stages had ended all partitions.
        """
        headers = [schema_header(PARTIALS)]
        for partition, block in blocks:
            batch = self._batch(partition, [OutputRecord("partials", block, headers=headers)], now)
            self._prepare(batch)
            yield from self._step.process(batch, now)
        states = dict.fromkeys(range(self._workers), self._earliest if watermark == NOTHING_REPORTED else watermark)
        for partition in self._partitions:
            reports = watermark_records("partials", [partition], states)
            yield from self._step.process(self._batch(partition, reports, now), now)
        yield from self._step.flush(now)

    def _batch(self, partition: int, records: Sequence[OutputRecord], now: int) -> Batch:
        return MessageBatch.of_outputs(TopicPartition(self._topic, partition), records, now)

    def _prepare(self, batch: Batch) -> None:
        """Load what the next batch needs."""

    def checkpoint(self, partition: int) -> str:
        """Return the checkpoint of a partition."""
        return self._step.checkpoint(partition)

    def measures(self) -> dict[str, float]:
        """Return the metrics that have no labels, by name."""
        samples = self._step.collect_metrics()
        return {sample.name: sample.value for sample in samples if isinstance(sample, Sample) and not sample.labels}


class PartitionMerger(WindowMerger):
    """The windows of one partition of `aggregates`, as an aggregator holds them."""

    def __init__(self, settings: PipelineSettings, checkpoints: Checkpoints, read_changelog: ReadChangelog) -> None:
        step = step_of("aggregator", settings, {}, AggregatorStep)
        super().__init__(settings, step, checkpoints)
        self._aggregator, self._read = step, read_changelog
        windows = settings.aggregator.windows
        for partition, checkpoint in checkpoints.items():
            step.assign(partition, checkpoint, restore(read_changelog, windows, partition, checkpoint))

    def _prepare(self, batch: Batch) -> None:
        """Read the closed windows of a batch from the changelog."""
        windows = self._aggregator.windows_to_reopen(batch)
        if windows:
            state = self._read(batch.partition, lambda key: window_of(key) in windows)
            self._aggregator.reopen(batch.partition, [(key, value) for key, value in state if value])


class LoadMerger(WindowMerger):
    """The ticks of all partitions, as the observer holds them."""

    def __init__(self, settings: PipelineSettings, checkpoints: Checkpoints, restore_state: RestoreState) -> None:
        step = step_of("observer", settings, {}, ObserverStep)
        super().__init__(settings, step, checkpoints)
        step.ticks_per_commit = sys.maxsize
        step.save_interval_ms = 0  # the partials of a query are in no topic that could be read again
        self._observer = step
        for partition, checkpoint in checkpoints.items():
            step.assign(partition, checkpoint, restore_state(partition, checkpoint))

    def merge(self, blocks: Iterable[tuple[int, bytes]], watermark: WatermarkState, now: int) -> Iterator[OutputRecord]:
        """Do so before the transaction begins, because the ticks of a year take longer than it may."""
        return iter(list(super().merge(blocks, watermark, now)))

    def set_workers(self, workers: int) -> None:
        """Measure the load of at least this many workers from now on."""
        self._observer.set_workers(workers)
