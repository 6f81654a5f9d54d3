"""Runs one stage in this process: builds step, transport and Faust app, and ends when it is told or when it is done."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from skewless import topology
from skewless.errors import SkewlessError, UnreachableError
from skewless.live import WORKERS, Live
from skewless.settings import PipelineSettings
from skewless.shape import shape_of
from skewless.step import Step
from skewless.transport import topics
from skewless.transport.app import App, Wiring
from skewless.transport.driver import Consumer
from skewless.transport.flushing_outbox import FlushingOutbox
from skewless.transport.outbox import Outbox
from skewless.transport.resumption import Evidence
from skewless.transport.session import Restore, Session, State
from skewless.transport.transactional_outbox import TransactionalOutbox
from skewless.watch.stage import Watched
from skewless.watch.tracing import traced

log = logging.getLogger(__name__)

FINISHED_POLL_S = 0.05
FILE_POLL_S = 1.0
RESTORES = 8
"""Partitions that are restored at the same time."""
STOP_S = 25.0
"""Longest clean stop: a commit that hangs longer than this is left to the broker to abort."""


@dataclass(frozen=True)
class Stage:
    """A stage, built but not started."""

    step: Step
    declare: Callable[[App], None]
    restore: Restore = lambda _positions: {}
    end_of_partition: bool = False
    patience_s: float = 1.0


def build(name: str, settings: PipelineSettings, *, drain: bool) -> Stage:
    """Build a stage by its name in the topology."""
    return _BUILDERS[name](settings, drain)


def _splitter(settings: PipelineSettings, drain: bool) -> Stage:  # noqa: FBT001 - the builders' common form
    from skewless.splitter import agent

    return Stage(agent.step(settings, drain=drain), agent.declare, end_of_partition=True)


def _router(settings: PipelineSettings, _drain: bool) -> Stage:  # noqa: FBT001
    from skewless.router import agent

    agent.warm_up(settings)
    step = agent.step(settings)
    return Stage(step, agent.declare, restore=lambda positions: agent.restore(settings, step, positions))


def _worker(settings: PipelineSettings, _drain: bool) -> Stage:  # noqa: FBT001
    from skewless.worker import agent

    step = agent.step(settings, topics.partition_count(settings, settings.topic("tuples")))
    slow = settings.worker.cost.cycle > 0
    return Stage(step, lambda app: agent.declare(app, settings), patience_s=0.0 if slow else 1.0)


def _aggregator(settings: PipelineSettings, _drain: bool) -> Stage:  # noqa: FBT001
    from skewless.aggregator import agent

    step = agent.step(settings)
    return Stage(
        step,
        lambda app: agent.declare(app, settings, step),
        restore=_each(lambda partition, position: agent.restore(settings, partition, position)),
    )


def _observer(settings: PipelineSettings, _drain: bool) -> Stage:  # noqa: FBT001
    from skewless.observer import agent

    return Stage(
        agent.step(settings),
        agent.declare,
        restore=_each(lambda partition, position: agent.restore(settings, partition, position)),
    )


def _each(restore: Callable[[int, str | None], State]) -> Restore:
    """Restore partitions side by side: most of the time goes into waiting for the broker."""

    def restore_all(positions: Mapping[int, str | None]) -> dict[int, State]:
        with ThreadPoolExecutor(RESTORES) as pool:
            states = pool.map(restore, positions.keys(), positions.values())
            return dict(zip(positions, states, strict=True))

    return restore_all


_BUILDERS: dict[str, Callable[[PipelineSettings, bool], Stage]] = {
    "splitter": _splitter,
    "router": _router,
    "worker": _worker,
    "aggregator": _aggregator,
    "observer": _observer,
}


def run_stage(
    stage: str, settings: PipelineSettings, instance: int = 0, *, file: Path | None = None, drain: bool = False
) -> None:
    """Run a stage until SIGTERM, SIGINT or, with `drain`, until everything that is in its topic is processed.

    While it runs it follows what the `file` says about W. Raises SkewlessError when it cannot go on. What is processed
    is committed before it returns.
    """
    watched = Watched(stage, settings, instance)
    with watched.served():
        partitions = topics.stage_partitions(settings, topology.stage(stage))
        built = build(stage, settings, drain=drain)
        wiring = replace(wire(stage, built, settings, instance, drain=drain), partitions=partitions)
        watched.follow(wiring)
        live = Live(file, os.environ, settings) if file else None
        with traced(settings, wiring, {"pipeline": settings.name, "stage": stage, "instance": str(instance)}):
            asyncio.run(_run(f"{stage}-{instance}", built, wiring, live, watched))


def wire(name: str, stage: Stage, settings: PipelineSettings, instance: int, *, drain: bool) -> Wiring:
    """Connect a stage with Kafka."""
    member = f"{settings.name}-{name}-{instance}"
    outbox: Outbox
    if settings.transport.guarantee == "exactly_once":
        outbox = TransactionalOutbox(settings.kafka, settings.transport, settings.topic, member)
    else:
        outbox = FlushingOutbox(settings.kafka, settings.transport, settings.topic)
    row = topology.stage(name)
    return Wiring(
        kafka=settings.kafka,
        transport=settings.transport,
        session=Session(stage.step, drain=drain),
        outbox=outbox,
        topic=settings.topic(row.source),
        group=f"{settings.name}-{name}",
        member=member,
        restore=stage.restore,
        internal=row.source != "source",
        written=evidence(settings, row),
        shape=shape_of(settings),
        end_of_partition=stage.end_of_partition or drain,
        skip_to=settings.source.skip_to if row.source == "source" else None,
        patience_s=stage.patience_s,
    )


def evidence(settings: PipelineSettings, stage: topology.Stage) -> Evidence:
    """Return where a stage's results show that it has run."""
    source = "source" if stage.source == "source" else topology.topic(stage.source).partitions
    sink = topology.topic(stage.sinks[0])  # no other stage writes to it
    return Evidence(
        settings.kafka,
        settings.topic(sink.name),
        aligned=sink.partitions == source,
        public=sink.public,
        exactly_once=settings.transport.guarantee == "exactly_once",
    )


async def _run(name: str, stage: Stage, wiring: Wiring, live: Live | None, watched: Watched) -> None:
    app = App(wiring, loop=asyncio.get_running_loop())
    stage.declare(app)
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop() -> None:
        watched.health.stopping = True
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with app.running():
        log.info("%s: started", name)
        with watched.on(loop), _following(stage.step, live):
            failure = await _until_over(app, stopping)
    if failure is not None:
        raise failure
    log.info("%s: stopped, everything processed is committed", name)


@contextmanager
def _following(step: Step, live: Live | None) -> Iterator[None]:
    """Give the step each new W while the stage runs, between two batches."""
    following = asyncio.create_task(_follow(step, live)) if live else None
    try:
        yield
    finally:
        if following:
            following.cancel()


async def _follow(step: Step, live: Live) -> None:
    while True:
        await asyncio.sleep(FILE_POLL_S)
        try:
            if (workers := await asyncio.to_thread(live.poll)) is not None:
                step.resize(workers)
        except Exception as error:  # noqa: BLE001 - one bad value must not end the watch of the file
            log.warning(
                "the number of workers stays as it is, correct %s in the file: %s",
                WORKERS,
                error if isinstance(error, SkewlessError) else repr(error),
            )


async def _until_over(app: App, stopping: asyncio.Event) -> BaseException | None:
    """Wait for the end, whoever brings it, and leave the consumer's thread in good order."""
    consumer = app.consumer
    if not isinstance(consumer, Consumer):
        raise TypeError(f"expected the app's consumer to be {Consumer.__module__}.Consumer, got {type(consumer)}")
    while not stopping.is_set():
        thread = consumer.stopped_thread
        if thread is not None and thread.done():
            return thread.result()
        if app.session.finished:
            break
        if app.start_failure is not None or app.should_stop:
            reason: BaseException | None = app.start_failure or app.crash_reason
            return reason
        try:
            await asyncio.wait_for(stopping.wait(), FINISHED_POLL_S)
        except TimeoutError:
            continue
    try:
        return await asyncio.wait_for(consumer.stop_thread(leave=stopping.is_set()), STOP_S)
    except TimeoutError:
        return UnreachableError(f"no answer from Kafka while stopping, within {STOP_S:g} s: nothing more was committed")
