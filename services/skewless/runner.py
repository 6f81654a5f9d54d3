"""Runs one stage in this process: builds step, transport and Faust app, and ends when it is told or when it is done."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass

from skewless import exporter, metrics, topology
from skewless.errors import SkewlessError, UnreachableError
from skewless.settings import PipelineSettings
from skewless.step import Step
from skewless.transport import topics
from skewless.transport.app import App, Wiring
from skewless.transport.driver import Consumer
from skewless.transport.outbox import FlushingOutbox, Outbox, TransactionalOutbox
from skewless.transport.session import Session, State

log = logging.getLogger(__name__)

FINISHED_POLL_S = 0.05
STOP_S = 25.0
"""Longest clean stop: a commit that hangs longer than this is left to the broker to abort."""


@dataclass(frozen=True)
class Stage:
    """A stage, built but not started."""

    step: Step
    declare: Callable[[App], None]
    restore: Callable[[int, str | None], State] = lambda _partition, _position: ()
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

    return Stage(agent.step(settings), agent.declare)


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
        restore=lambda partition, position: agent.restore(settings, partition, position),
    )


def _observer(settings: PipelineSettings, _drain: bool) -> Stage:  # noqa: FBT001
    from skewless.observer import agent

    return Stage(
        agent.step(settings),
        agent.declare,
        restore=lambda partition, position: agent.restore(settings, partition, position),
    )


_BUILDERS: dict[str, Callable[[PipelineSettings, bool], Stage]] = {
    "splitter": _splitter,
    "router": _router,
    "worker": _worker,
    "aggregator": _aggregator,
    "observer": _observer,
}


def run_stage(stage: str, settings: PipelineSettings, instance: int = 0, *, drain: bool = False) -> None:
    """Run a stage until SIGTERM, SIGINT or, with `drain`, until everything that is in its topic is processed.

    Raises SkewlessError when it cannot go on. What is processed is committed before it returns.
    """
    topics.partition_count(settings, settings.topic(topology.stage(stage).source))
    built = build(stage, settings, drain=drain)
    wiring = wire(stage, built, settings, instance, drain=drain)
    shown = settings.metrics
    with metrics.served(lambda: exporter.samples(stage, wiring), address=shown.address, port=shown.port):
        asyncio.run(_run(f"{stage}-{instance}", built, wiring))


def wire(name: str, stage: Stage, settings: PipelineSettings, instance: int, *, drain: bool) -> Wiring:
    """Connect a stage with Kafka."""
    member = f"{settings.name}-{name}-{instance}"
    outbox: Outbox
    if settings.transport.guarantee == "exactly_once":
        outbox = TransactionalOutbox(settings.kafka, settings.transport, settings.topic, member)
    else:
        outbox = FlushingOutbox(settings.kafka, settings.transport, settings.topic)
    return Wiring(
        kafka=settings.kafka,
        transport=settings.transport,
        session=Session(stage.step, drain=drain),
        outbox=outbox,
        topic=settings.topic(topology.stage(name).source),
        group=f"{settings.name}-{name}",
        member=member,
        restore=stage.restore,
        end_of_partition=stage.end_of_partition or drain,
        patience_s=stage.patience_s,
    )


async def _run(name: str, stage: Stage, wiring: Wiring) -> None:
    app = App(wiring, loop=asyncio.get_running_loop())
    stage.declare(app)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with app.running():
        log.info("%s: started", name)
        failure = await _until_over(app, stopping)
    if failure is not None:
        raise failure
    log.info("%s: stopped, everything processed is committed", name)


async def _until_over(app: App, stopping: asyncio.Event) -> BaseException | None:
    """Wait for the end, whoever brings it, and leave the consumer's thread in good order."""
    consumer = app.consumer
    if not isinstance(consumer, Consumer):
        raise SkewlessError(f"the app's transport is {type(consumer).__name__}, not ours")
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
        return await asyncio.wait_for(consumer.stop_thread(), STOP_S)
    except TimeoutError:
        return UnreachableError(f"no answer from Kafka while stopping, within {STOP_S:g} s: nothing more was committed")
