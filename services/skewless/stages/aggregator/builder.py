"""The aggregator's builder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.config.result_codec import result_writer
from skewless.config.stage_start import StageStart
from skewless.engine.executor import Before, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.kafka.consumer.topic_reader import ReadProgress, read_compacted
from skewless.stages.aggregator.ranker_step import RankerStep
from skewless.stages.aggregator.ranking_step import RankingStep
from skewless.stages.aggregator.step import AggregatorRules, AggregatorStep, SessionStep
from skewless.stages.built_stage import BuiltStage, Process, restore_each
from skewless.stages.windowed_step import StateLimit
from skewless.times import instant_text
from skewless.wire.changelog import decode_checkpoint, window_of

log = logging.getLogger(__name__)

State = list[tuple[bytes, bytes]]
"""Changelog records (key, value)."""

Read = Callable[[int, Callable[[bytes], bool]], State]
"""Reads a partition of the changelog. Values are empty for keys for which the function returns False."""


def build(start: StageStart) -> BuiltStage:
    """Build the aggregator from its settings."""
    pipeline, rules = start.settings, rules_of(start)
    worker_partitions, topic = pipeline.worker_input.partitions, pipeline.topic("partials")
    if pipeline.aggregator.top is not None:
        return built(start, RankingStep(rules, pipeline.ranking, worker_partitions=worker_partitions, topic=topic))
    step_type = SessionStep if isinstance(rules.windows, SessionWindows) else AggregatorStep
    return built(start, step_type(rules, worker_partitions=worker_partitions, topic=topic))


def build_ranker(start: StageStart) -> BuiltStage:
    """Build the ranker from the settings of the aggregator."""
    pipeline = start.settings
    partitions, topic = pipeline.topics.aggregator_partitions, pipeline.topic("top-candidates")
    return built(start, RankerStep(rules_of(start), pipeline.ranking, aggregator_partitions=partitions, topic=topic))


def rules_of(start: StageStart) -> AggregatorRules:
    """Return the rules of windows and results. Registers the schema of the results."""
    pipeline = start.settings
    settings, retention_s = pipeline.aggregator, pipeline.topics.results_retention_s
    writer = result_writer(pipeline, start.report_wait)
    return AggregatorRules(
        results=pipeline.results,
        columns=pipeline.columns,
        windows=settings.windows,
        closed_window_retention_ms=settings.closed_window_retention_ms,
        updates=settings.emit == "updates",
        lateness_ms=pipeline.event_time.lateness_ms,
        numbers=settings.numbers,
        conditions=pipeline.conditions,
        emit_interval_ms=settings.emit_interval_ms,
        key_parts=pipeline.splitter.key.parts,
        encode=writer.encode,
        headers=writer.headers,
        write=pipeline.write_columns,
        results_retention_ms=None if retention_s is None else round(retention_s * 1000),
        report_expired=partial(_warn_of_retention, retention_s),
        limit=StateLimit(
            settings.max_state_bytes,
            "aggregator.max_state_bytes",
            "start more aggregator processes, up to one per partition, or raise the limit and the memory of the "
            "process; a new pipeline may have shorter windows or more topics.aggregator_partitions",
        ),
    )


def _warn_of_retention(retention_s: float | None, window: int) -> None:
    log.warning(
        "results of old windows, such as the one from %s, are deleted soon after they are written: "
        "topics.results_retention_s is %.15g. To keep them, raise it or set it to null, and count again with "
        "`skewless reset --to-start`",
        instant_text(window),
        retention_s,
    )


def built(start: StageStart, step: AggregatorStep) -> BuiltStage:
    """Return a stage that restores and reopens the windows of its changelog."""
    pipeline, progress = start.settings, ReadProgress()
    read = partial(read_compacted, pipeline.kafka, pipeline.topic(step.changelog), progress=progress)
    return BuiltStage(
        step,
        processor=partial(process_reopened, step, read),
        restore=restore_each(partial(restore, read, pipeline.aggregator.windows)),
        restore_progress=progress,
    )


def restore(read: Read, windows: WindowAssigner, partition: int, checkpoint: str | None) -> State:
    """Return the changelog records of a partition. Those of closed windows have keys only."""
    closed_until = decode_checkpoint(checkpoint).closed_until

    def is_open(key: bytes) -> bool:
        return closed_until is None or windows.end(window_of(key)) > closed_until

    return read(partition, is_open)


def reopening(executor: StepExecutor, step: AggregatorStep, read: Read) -> Before:
    """Return a function to call before each batch: it reads closed windows of the batch from the changelog."""

    def before(batch: MessageBatch) -> Awaitable[None] | None:
        windows = step.windows_to_reopen(batch)
        return reopen(batch, windows) if windows else None

    async def reopen(batch: MessageBatch, windows: set[int]) -> None:
        state = await asyncio.to_thread(read, batch.partition, lambda key: window_of(key) in windows)
        # During the read, the partition may have been revoked and assigned again with other windows.
        if executor.is_current(batch):
            step.reopen(batch.partition, [(key, value) for key, value in state if value])

    return before


def process_reopened(step: AggregatorStep, read: Read, executor: StepExecutor) -> Process:
    """Return a function that processes batches after it has read their closed windows."""
    before = reopening(executor, step, read)
    return lambda batch: executor.process(batch, before)
