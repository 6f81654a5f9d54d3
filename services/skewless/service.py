"""Runs one stage in this process: builds its step, Kafka clients and Faust app, and runs them until a signal arrives.

A bounded run (`drain`) also ends at the end of its input.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from skewless import topology
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.state_layout import schema_of_stage
from skewless.config.watcher import WORKERS, ConfigWatcher
from skewless.engine.app import App, StageRuntime
from skewless.engine.consumer_loop import FindInputs
from skewless.engine.executor import StepExecutor
from skewless.engine.first_offsets import commit_first_offsets
from skewless.engine.output import Output
from skewless.engine.start_checks import Evidence, Input, Origin, check_former_inputs
from skewless.engine.step import InputStep
from skewless.errors import ConfigurationError, SkewlessError, UnreachableError
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.monitoring.stage_monitor import StageMonitor
from skewless.monitoring.tracing import traced
from skewless.stages.agent import declare_agent
from skewless.stages.context import BuiltStage, PipelineContext
from skewless.wire.offset_metadata import decode_offset_metadata
from skewless.wire.state_schema import StateSchema

log = logging.getLogger(__name__)

FINISHED_POLL_S = 0.05
FILE_POLL_S = 1.0
STOP_S = 25.0
"""Timeout of a clean stop. The broker aborts a transaction whose commit takes longer."""


def build(name: str, settings: PipelineSettings, *, drain: bool, source_partitions: int | None = None) -> BuiltStage:
    """Build the stage with this name in the topology.

    Without `source_partitions`, a stage that needs the number of source partitions requests it from the broker.
    """
    row = topology.stage(name)
    module, attribute = row.builder.split(":")
    builder = getattr(importlib.import_module(module), attribute)
    context = context_of(settings, drain=drain, source_partitions=source_partitions)
    built: BuiltStage = builder(getattr(settings, row.section), context)
    return built


def context_of(settings: PipelineSettings, *, drain: bool, source_partitions: int | None = None) -> PipelineContext:
    """Return the settings of the pipeline that stages need in addition to their own sections."""
    idle_s, drift_s = settings.event_time.idle_timeout_s, settings.event_time.max_watermark_drift_s
    return PipelineContext(
        name=settings.name,
        full_name=settings.full_name,
        topic=settings.topic,
        group=settings.group,
        kafka=settings.kafka,
        count_partitions=lambda topic: (
            topic_plan.partition_count(settings, settings.topic(topic))
            if source_partitions is None
            else source_partitions
        ),
        source_topic=None if settings.source is None else settings.source.topic,
        skip_to=(lambda _topic: {}) if settings.source is None else settings.source.skip_to_of,
        event_time=settings.event_time_rules(),
        idle_timeout_ms=None if idle_s is None else round(idle_s * 1000),
        max_drift_ms=None if drift_s is None else round(drift_s * 1000),
        values=settings.values,
        results=settings.results,
        conditions=settings.conditions,
        key_parts=settings.splitter.key.parts,
        windows=settings.aggregator.windows,
        pane_ms=settings.pane_ms,
        grid_ms=settings.grid_ms,
        grouping=settings.router.grouping,
        workers=settings.router.workers,
        max_workers=settings.worker_input.partitions,
        encoding=settings.worker_input.encoding,
        aggregator_partitions=settings.topics.aggregator_partitions,
        drain=drain,
    )


def run_stage(
    stage: str, settings: PipelineSettings, instance: int = 0, *, file: Path | None = None, drain: bool = False
) -> None:
    """Run a stage until SIGTERM or SIGINT arrives or, with `drain`, until all records of its input are processed.

    Applies changes of the number of workers in `file` while the stage runs. All processed records are committed before
    the function returns. Raises ConfigurationError if the pipeline does not have the stage, and SkewlessError if the
    stage cannot continue.
    """
    row = topology.stage(stage)
    if not row.is_needed(settings):
        raise ConfigurationError(f"stage {stage}: pipeline {settings.name} does not need it, it runs where {row.needs}")
    monitor = StageMonitor(settings.metrics, pipeline=settings.name, stage=stage, instance=instance)
    with monitor.served():
        counts = Admin(settings.kafka).partition_counts()
        settings = _with_max_workers(settings, row, counts)
        partitions = topic_plan.stage_partitions(settings, row, counts)
        built = build(stage, settings, drain=drain)
        runtime = build_runtime(stage, built, settings, instance, drain=drain, partitions=partitions)
        if built.first_checkpoint is not None and settings.aggregated.start != "earliest":
            commit_first_offsets(
                OffsetReader(settings.kafka),
                runtime.inputs,
                settings.aggregated.start,
                built.first_checkpoint,
                runtime.written,
            )
        if former_inputs := inputs_of(row, settings, set(row.all_inputs) - set(row.inputs_of(settings)), partitions):
            check_former_inputs(OffsetReader(settings.kafka), former_inputs)
        monitor.follow(runtime)
        watcher = ConfigWatcher(file, os.environ, settings) if file else None
        labels = {"pipeline": settings.name, "stage": stage, "instance": str(instance)}
        with traced(settings.tracing, runtime, labels):
            asyncio.run(_run(f"{stage}-{instance}", built, runtime, watcher, monitor))


def _with_max_workers(settings: PipelineSettings, stage: topology.Stage, counts: Mapping[str, int]) -> PipelineSettings:
    """Return the settings with `worker_input.max_workers`. If it is unset, it does not change between two runs.

    `counts` has the number of partitions of every visible topic.
    """

    def committed() -> int | None:
        names = stage.inputs_of(settings)
        topics = [settings.topic(name) for name in names if name != "source"]
        topics += settings.source.select(counts) if settings.source is not None and "source" in names else ()
        offset_reader = OffsetReader(settings.kafka)
        for topic in topics:
            for offset in offset_reader.committed(settings.group(stage.name), topic).values():
                schema = decode_offset_metadata(offset.metadata).shape
                if isinstance(schema, StateSchema):
                    return schema.max_workers
        return None

    return topic_plan.with_max_workers(settings, counts, committed)


def build_runtime(  # noqa: PLR0913 - the last three by name
    name: str,
    stage: BuiltStage,
    settings: PipelineSettings,
    instance: int,
    *,
    drain: bool,
    partitions: Mapping[str, int] = MappingProxyType({}),
) -> StageRuntime:
    """Return a stage with its output, its consumer group and its input topics.

    `partitions` has the required number of partitions of input topics, by the name of the topic.
    """
    row, member_id = topology.stage(name), f"{settings.group(name)}-{instance}"
    return StageRuntime(
        kafka=settings.kafka,
        transport=settings.transport.model_copy(update=dict(stage.transport)),
        executor=StepExecutor(stage.step, drain=drain),
        output=stage.output(member_id) if stage.output else kafka_output(settings, member_id),
        inputs=inputs_of(row, settings, row.inputs_of(settings), partitions),
        find_inputs=_find_inputs(row, settings) if "source" in row.inputs_of(settings) else None,
        group_instance_id=member_id,
        restore=stage.restore,
        restore_progress=stage.restore_progress,
        written=evidence(settings, row),
        end_of_partition=stage.end_of_partition or drain,
        pause_after_s=stage.pause_after_s,
    )


def _find_inputs(stage: topology.Stage, settings: PipelineSettings) -> FindInputs:
    """Return a function that finds the inputs of a stage among the topics of the cluster: some may be added."""
    return lambda partitions: inputs_of(stage, settings, stage.inputs_of(settings), partitions)


def inputs_of(
    stage: topology.Stage, settings: PipelineSettings, names: Iterable[str], partitions: Mapping[str, int]
) -> tuple[Input, ...]:
    """Return these inputs of a stage. `partitions` has the number of partitions of each topic."""
    names = set(names)
    group, shape = settings.group(stage.name), schema_of_stage(settings, stage.section)
    topics = {settings.topic(name): name for name in stage.all_inputs if name in names - {"source"}}
    inputs = [
        Input(group, topic, origin=origin(name), shape=shape, partitions=partitions.get(topic))
        for topic, name in topics.items()
    ]
    if "source" in names:
        source = settings.aggregated
        inputs += [
            Input(
                group,
                topic,
                origin=origin("source"),
                shape=shape,
                skip_to=source.skip_to_of(topic),
                skip_to_prefix=source.prefix_of(topic),
            )
            for topic in source.select(partitions)
        ]
    return tuple(inputs)


def origin(topic: str) -> Origin:
    """Return who writes a topic that a stage reads."""
    if topic in topology.USER_TOPICS:
        return "user"
    return "public" if topology.topic(topic).public else "internal"


def kafka_output(settings: PipelineSettings, member_id: str) -> Output:
    """Return the producer of a stage that writes to topics."""
    if settings.transport.guarantee == "exactly_once":
        return TransactionalProducer(settings.kafka, settings.transport, settings.topic, member_id)
    return AtLeastOnceProducer(settings.kafka, settings.transport, settings.topic)


def evidence(settings: PipelineSettings, stage: topology.Stage) -> Evidence | None:
    """Return the output topic whose records show that the stage has run before; None for a stage without topics."""
    if not stage.outputs:
        return None
    output = topology.topic(stage.outputs[0])  # no other stage writes to it
    kinds = {topology.partitions_of(name) for name in stage.inputs_of(settings)}
    return Evidence(
        settings.kafka,
        settings.topic(output.name),
        aligned=kinds == {output.partitions} and not stage.repartitions,
        merged="source" in stage.inputs_of(settings) and settings.aggregated.topic is None,
        public=output.public,
        exactly_once=settings.transport.guarantee == "exactly_once",
    )


async def _run(
    name: str, stage: BuiltStage, runtime: StageRuntime, watcher: ConfigWatcher | None, monitor: StageMonitor
) -> None:
    app = App(runtime)
    declare_agent(app, stage.processor)
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop() -> None:
        monitor.health.stopping = True
        stopping.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop)
    async with app.running():
        log.info("%s: started", name)
        with monitor.on(loop), _watch_config(stage.step, watcher):
            failure = await _wait_for_exit(app, stopping)
    if failure is not None:
        raise failure
    log.info("%s: stopped, everything processed is committed", name)


@contextmanager
def _watch_config(step: InputStep[Any], watcher: ConfigWatcher | None) -> Iterator[None]:
    """Apply each new number of workers to the step while the stage runs, between two batches."""
    task = asyncio.create_task(_apply_changes(step, watcher)) if watcher else None
    try:
        yield
    finally:
        if task:
            task.cancel()


async def _apply_changes(step: InputStep[Any], watcher: ConfigWatcher) -> None:
    while True:
        await asyncio.sleep(FILE_POLL_S)
        try:
            if (workers := await asyncio.to_thread(watcher.poll)) is not None:
                step.set_workers(workers)
        except Exception as error:  # noqa: BLE001 - an invalid value must not stop the watcher
            log.warning(
                "the number of workers does not change, correct %s in the file: %s",
                WORKERS,
                error if isinstance(error, SkewlessError) else repr(error),
            )


async def _wait_for_exit(app: App, stopping: asyncio.Event) -> BaseException | None:
    """Wait until the stage ends or a signal arrives, then stop the consumer thread. Returns the error that ended it."""
    while not stopping.is_set():
        if app.stopped_thread.done():
            return app.stopped_thread.result()
        if app.executor.finished:
            break
        if app.should_stop:
            reason: BaseException | None = app.crash_reason
            return reason
        try:
            await asyncio.wait_for(stopping.wait(), FINISHED_POLL_S)
        except TimeoutError:
            continue
    try:
        return await asyncio.wait_for(app.stop_thread(leave=stopping.is_set()), STOP_S)
    except TimeoutError:
        return UnreachableError(
            f"no answer from Kafka within {STOP_S:g} s while stopping: records since the last commit are processed "
            "again after a restart"
        )
