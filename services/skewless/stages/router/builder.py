"""The router's builder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from skewless.algorithms import grouping
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.engine.executor import State
from skewless.kafka.consumer.topic_reader import read_compacted
from skewless.stages.built_stage import BuiltStage
from skewless.stages.router.settings import RouterSettings
from skewless.stages.router.step import RouterStep
from skewless.stages.router.upstream import Upstream

log = logging.getLogger(__name__)


def build(start: StageStart) -> BuiltStage:
    """Build the router from its settings, and compile its code."""
    pipeline = start.settings
    settings = pipeline.router
    precompile(settings)
    step = RouterStep(
        grouping.create(settings.grouping, settings.workers, settings),
        pipeline.tuple_format,
        pipeline.row_format(),
        max_workers=pipeline.worker_input.partitions,
        encoding=pipeline.worker_input.encoding,
        topic=pipeline.topic("tuples"),
        snapshot_ms=settings.snapshot_ms,
        new_upstream=upstream(start),
        report=log.info,
        warn=log.warning,
        holds=pipeline.transport.guarantee == "exactly_once",
    )
    return BuiltStage(step, restore=partial(restore, pipeline, step))


def upstream(start: StageStart) -> Callable[[int, str | None], Upstream]:
    """Return what follows the reports of a partition of `tuples`, given its number and its checkpoint."""
    partitions, only = start.count_partitions("tuples"), start.settings.aggregated.topic
    return lambda partition, checkpoint: Upstream(partition, partitions, checkpoint, only)


def precompile(settings: RouterSettings) -> None:
    """Compile the code of the grouping before the process joins its consumer group.

    Compiling later would stall the assigned partitions.
    """
    keys = pa.array(["any"]).dictionary_encode()
    zero = np.zeros(1, dtype=np.int64)
    throwaway = grouping.create(settings.grouping, settings.workers, settings)
    throwaway.assign(grouping.KeyBatch(["any"], keys.indices.to_numpy(), zero), now=0)


def restore(pipeline: PipelineSettings, router: RouterStep, checkpoints: Mapping[int, str | None]) -> dict[int, State]:
    """Return the saved loads of the lowest assigned partition. Empty if the router already has loads."""
    if not router.is_cold or not checkpoints:
        return {}
    lowest = min(checkpoints)
    return {lowest: read_compacted(pipeline.kafka, pipeline.topic("router-state"), lowest)}
