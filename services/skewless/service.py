"""Runs stages in this process: builds their steps, Kafka clients and Faust apps, and runs them until a signal arrives.

A bounded run (`drain`) also ends at the end of its input.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.running_query import check_no_query
from skewless.config.stage_start import StageStart, resolve
from skewless.config.watcher import WORKERS, ConfigWatcher
from skewless.engine.app import App
from skewless.engine.executor import StepExecutor
from skewless.engine.first_offsets import commit_first_offsets
from skewless.engine.output import Output
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.start_checks import check_former_inputs
from skewless.engine.step import InputStep
from skewless.errors import ConfigurationError, SkewlessError, UnreachableError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.monitoring.health import KAFKA
from skewless.monitoring.logs import log_lines_of
from skewless.monitoring.stage_monitor import StageMonitor, served
from skewless.monitoring.tracing import traced
from skewless.stages.agent import declare_agent
from skewless.stages.built_stage import BuiltStage, build

log = logging.getLogger(__name__)

FINISHED_POLL_S = 0.05
"""Interval at which a bounded run looks whether it is at its end."""
CRASHED_POLL_S = 0.5
"""Interval at which another run looks whether its agent has crashed."""
FILE_POLL_S = 1.0
STOP_S = 25.0
"""Timeout of a clean stop. The broker aborts a transaction whose commit takes longer."""


@dataclass(frozen=True)
class _PreparedStage:
    """A stage that is ready to run in this process."""

    name: str
    instance: int
    built: BuiltStage
    runtime: StageRuntime
    watcher: ConfigWatcher | None
    monitor: StageMonitor


def run_stages(
    stages: Sequence[str],
    settings: PipelineSettings,
    instance: int = 0,
    *,
    file: Path | None = None,
    drain: bool = False,
) -> int | None:
    """Run stages in this process until SIGTERM or SIGINT arrives or, with `drain`, until all input is processed.

    Each stage has a Faust agent on the event loop that all share, and a consumer thread of its own. Applies changes of
    the number of workers in `file` while the stages run. All processed records are committed before the function
    returns the number of the signal, or None if none arrived. Raises ConfigurationError if the pipeline does not have
    one of the stages, FencedError if a query of Spark runs in their place, and SkewlessError if a stage cannot
    continue; the other stages then end too.
    """
    # Arrow's own allocators keep the memory of past batches: a tenth more in each process, at the same CPU time.
    pa.set_memory_pool(pa.system_memory_pool())
    rows = [topology.stage(stage) for stage in stages]
    for row in rows:
        if not row.is_needed(settings):
            raise ConfigurationError(
                f"stage {row.name}: pipeline {settings.name} does not need it, it runs where {row.needs}"
            )
    monitors = [
        StageMonitor(settings.metrics, pipeline=settings.full_name, stage=stage, instance=instance) for stage in stages
    ]
    with served(settings.metrics, monitors), ExitStack() as stack:
        if any(row in topology.QUERIED_STAGES for row in rows):
            check_no_query(settings)
        prepared = []
        for row, monitor in zip(rows, monitors, strict=True):
            with log_lines_of(row.name):
                stage = _prepare(resolve(row, settings, drain=drain), instance, file, monitor)
            prepared.append(stage)
            labels = {**monitor.labels, "instance": str(instance)}
            stack.enter_context(traced(settings.tracing, stage.runtime, labels))
        return asyncio.run(_run(prepared))


def _prepare(start: StageStart, instance: int, file: Path | None, monitor: StageMonitor) -> _PreparedStage:
    """Build a stage and check its committed offsets."""
    health = monitor.health
    settings, built = start.settings, build(replace(start, report_wait=partial(setattr, health, "waits_for")))
    health.waits_for = KAFKA
    if built.dependency is not None:
        health.waits_for = built.dependency.name
        built.dependency.wait()
    runtime = build_runtime(start, built, instance)
    if built.first_checkpoint is not None and (settings.aggregated.start != "earliest" or settings.aggregated.skip_to):
        commit_first_offsets(
            OffsetReader(settings.kafka),
            runtime.inputs,
            settings.aggregated.start,
            built.first_checkpoint,
            runtime.prior_output,
        )
    _check_former_inputs(start, built)
    health.runtime = runtime
    watcher = ConfigWatcher(file, os.environ, settings, start.stage.section) if file else None
    return _PreparedStage(start.stage.name, instance, built, runtime, watcher, monitor)


def _check_former_inputs(start: StageStart, built: BuiltStage) -> None:
    """Raise ConfigurationError if the group has a checkpoint of a topic that the stage reads with other settings only.

    The offsets of a stage with an output of its own are not in the group: those in the group only show the lag.
    """
    if built.output is None and (former_inputs := start.former_inputs()):
        check_former_inputs(OffsetReader(start.settings.kafka), former_inputs)


def build_runtime(start: StageStart, stage: BuiltStage, instance: int) -> StageRuntime:
    """Return a stage with its output, its consumer group and its input topics."""
    settings, member_id = start.settings, f"{start.group}-{instance}"
    renew_ms = None if stage.renew_offsets_s is None else round(stage.renew_offsets_s * 1000)
    return StageRuntime(
        kafka=settings.kafka,
        transport=settings.transport.model_copy(update=dict(stage.transport)),
        executor=StepExecutor(stage.step, drain=start.drain, renew_offsets_ms=renew_ms),
        output=stage.output(member_id) if stage.output else kafka_output(settings, member_id),
        inputs=start.inputs(),
        # Some of the source topics may be added.
        find_inputs=(lambda partitions: replace(start, partitions=partitions).inputs()) if start.reads_source else None,
        group_instance_id=member_id,
        restore=stage.restore,
        restore_progress=stage.restore_progress,
        prior_output=stage.prior_output or start.prior_output(),
        changelog=start.changelog_of_results(),
        end_of_partition=stage.end_of_partition or start.drain,
        co_partitioned=stage.co_partitioned,
        pause_after_s=stage.pause_after_s,
    )


def kafka_output(settings: PipelineSettings, member_id: str) -> Output:
    """Return the producer of a stage that writes to topics."""
    if settings.transport.guarantee == "exactly_once":
        return TransactionalProducer(settings.kafka, settings.transport, settings.topic, member_id)
    return AtLeastOnceProducer(settings.kafka, settings.transport, settings.topic)


async def _run(stages: Sequence[_PreparedStage]) -> int | None:
    """Run the stages until they end, and return the last signal. If one fails, stop the others and raise its error."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    received: int | None = None

    def stop(signal_number: int | None = None) -> None:
        nonlocal received
        received = signal_number
        for stage in stages:
            stage.monitor.health.stopping = True
        stopping.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop, signal_number)
    runs = []
    for stage in stages:
        with log_lines_of(stage.name):  # the task, its consumer thread and their calls keep the context
            runs.append(asyncio.create_task(_run_stage(stage, stopping)))
    ended, running = await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION)
    if running:
        stop()
        await asyncio.wait(running)
    failures = [run.exception() for run in (*ended, *running)]  # of each, or the loop reports it as never retrieved
    for failure in filter(None, failures):
        raise failure
    return received


async def _run_stage(stage: _PreparedStage, stopping: asyncio.Event) -> None:
    """Run a stage until it ends or is stopped. Raises the error that ended it."""
    app, name = App(stage.runtime), f"{stage.name}-{stage.instance}"
    declare_agent(app, stage.built.processor)
    async with app.running():
        log.info("%s: started", name)
        with stage.monitor.on(app.loop), _watch_config(stage.built.step, stage.watcher):
            failure = await _wait_for_exit(app, stopping)
    if failure is not None:
        log.error("%s: ended by an error: %s", name, _text(failure))
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
                _text(error),
            )


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, SkewlessError) else repr(error)


async def _wait_for_exit(app: App, stopping: asyncio.Event) -> BaseException | None:
    """Wait until the stage ends or a signal arrives, then stop the consumer thread. Returns the error that ended it."""
    stop = asyncio.create_task(stopping.wait())
    ends: list[asyncio.Future[Any]] = [stop, app.stopped_thread]
    poll_s = FINISHED_POLL_S if app.executor.drain else CRASHED_POLL_S
    try:
        while not stopping.is_set():
            if app.stopped_thread.done():
                return app.stopped_thread.result()
            if app.executor.finished:
                break
            if app.should_stop:
                reason: BaseException | None = app.crash_reason
                return reason
            await asyncio.wait(ends, timeout=poll_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    try:
        return await asyncio.wait_for(app.stop_thread(leave=stopping.is_set()), STOP_S)
    except TimeoutError:
        return UnreachableError(
            f"the last commit did not end within {STOP_S:g} s, because Kafka does not answer, or because it writes "
            "very much: records since the commit before are processed again after a restart"
        )
