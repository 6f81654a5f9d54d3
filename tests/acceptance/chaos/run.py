"""One seeded run: feed a pipeline, hurt it, let it finish, compare with the batch answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from confluent_kafka import TopicPartition

from acceptance.chaos import data
from acceptance.chaos.crew import Crew
from acceptance.chaos.journal import Journal
from acceptance.chaos.progress import Progress
from acceptance.chaos.proxy import Proxy
from acceptance.chaos.server import Server
from acceptance.chaos.table import FAULTS, Fault
from acceptance.chaos.world import SESSION_S, TRANSACTION_S, World
from skewless import topology
from skewless.transport import topics
from support_kafka import STAGES, WRITES, Feed, Pipeline, Source, until

PARTITIONS = 4
LANES = 2
"""Faults that go on at the same time."""
PAUSE_S = (0.3, 1.5)
SPAN_S = 15.0
FIRST_S = 60.0
SETTLED_S = 60.0
DRAIN_S = 300.0


@dataclass(frozen=True)
class Plan:
    """What to do to a pipeline."""

    seed: int
    faults: Sequence[str]
    """Names in the table of faults."""
    records: int = 100_000
    seconds: float = 60.0
    """For how long faults go on."""


@dataclass
class Outcome:
    """What a run showed."""

    plan: Plan
    wrong: list[str]
    """Differences from the batch answer, and what else must not be."""
    counts: dict[str, int]
    recoveries: list[float]
    pauses: list[tuple[str, float]]
    drained_s: float
    largest: dict[str, int] = field(default_factory=dict)


def run(plan: Plan, folder: Path, *, shown: bool = False) -> Outcome:
    """Run one plan; its journal and the logs of all processes are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "journal.log", shown=shown)
    journal.say(f"seed {plan.seed}, {plan.records:,} records, {plan.seconds:g} s of {', '.join(plan.faults)}")
    with Proxy() as proxy:
        server = Server(folder / "broker", proxy.port)
        proxy.target = server.behind
        try:
            server.start()
            source = Source(server.bootstrap, PARTITIONS)
            pipeline = _pipeline(server.bootstrap, proxy.port, folder, source)
            world, wrong = _under_fire(plan, journal, pipeline, server, proxy)
            drained_s = _drain(journal, pipeline)
            wrong += data.wrong(server.bootstrap, pipeline)
            wrong += [f"{topic}: a transaction is open" for topic in WRITES.values() if pipeline.is_open(topic)]
        finally:
            server.broker.stop()
    for line in wrong or ["exact"]:
        journal.say(line)
    journal.close()
    return Outcome(plan, wrong, dict(journal.counts), world.recoveries, world.pauses, drained_s, world.crew.largest)


def _pipeline(bootstrap: str, port: int, folder: Path, source: Source) -> Pipeline:
    return Pipeline(
        bootstrap,
        folder,
        source,
        kafka={"bootstrap_servers": f"127.0.0.1:{port}"},
        event_time={"allowed_lateness_s": data.LATENESS_S, "idle_timeout_s": None},
        transport={
            "commit_interval_s": 0.3,
            "poll_records": 1_000,
            "session_timeout_s": SESSION_S,
            "transaction_timeout_s": TRANSACTION_S,
        },
    )


def _under_fire(
    plan: Plan, journal: Journal, pipeline: Pipeline, server: Server, proxy: Proxy
) -> tuple[World, list[str]]:
    crew = Crew(pipeline, journal)
    rate = plan.records / (plan.seconds + SETTLED_S)
    feed = Feed(pipeline.source, data.records(plan.records, PARTITIONS, plan.seed), rate)
    with feed, Progress(server.bootstrap, _groups(pipeline)) as progress:
        world = World(Random(plan.seed), journal, pipeline, crew, server, proxy, progress)  # noqa: S311 - seeded, not secret
        try:
            for name in pipeline.processes():
                crew.join(name)
            until(lambda: progress.recovered(0.0) is not None and feed.sent > 0, each=crew.poll, limit_s=FIRST_S)
            _attack(world, plan)
            wrong = _settle(world)
            world.pauses += _pauses(world)
            crew.stop()
        finally:
            for member in list(crew.members):
                crew.end(member)
    return world, wrong + _wrong_ends(crew)


def _groups(pipeline: Pipeline) -> dict[str, tuple[str, list[TopicPartition]]]:
    """Name each stage's consumer group, and the partitions that it reads."""
    settings = pipeline.settings
    sizes = {spec.name: spec.partitions for spec in topics.desired_topics(settings, PARTITIONS)}
    sizes[settings.source.topic] = PARTITIONS
    reads = {row.name: settings.topic(row.source) for row in topology.STAGES}
    return {
        stage: (
            f"{pipeline.name}-{stage}",
            [TopicPartition(reads[stage], number) for number in range(sizes[reads[stage]])],
        )
        for stage in STAGES
    }


def _attack(world: World, plan: Plan) -> None:
    """Let faults go on in lanes until the time is over and the last one has ended."""
    faults, end = [FAULTS[name] for name in plan.faults], time.monotonic() + plan.seconds
    dice = [Random(f"{plan.seed}/{lane}") for lane in range(LANES if len(faults) > 1 else 1)]  # noqa: S311 - as above
    lanes = [_lane(replace(world, chance=each), faults, end) for each in dice]
    due = [(0.0, lane) for lane in lanes]
    while due:
        now = time.monotonic()
        waiting = []
        for at, lane in due:
            if at > now:
                waiting.append((at, lane))
            elif (pause := next(lane, None)) is not None:
                waiting.append((now + pause, lane))
        due = waiting
        world.crew.poll()
        world.crew.weigh()
        time.sleep(0.01)


def _lane(world: World, faults: list[Fault], end: float) -> Iterator[float]:
    while time.monotonic() < end:
        yield world.chance.uniform(*PAUSE_S)
        yield from world.chance.choice(faults)(world)


def _settle(world: World) -> list[str]:
    """Wait until every partition of every stage goes on again."""
    since = world.now()
    try:
        until(lambda: world.progress.recovered(since) is not None, each=world.crew.poll, limit_s=SETTLED_S)
    except AssertionError:
        return [f"after the last fault {world.progress.waiting(since)} did not go on within {SETTLED_S:g} s"]
    world.journal.say(f"all stages went on within {world.now() - since:.1f} s after the last fault")
    return []


def _pauses(world: World) -> list[tuple[str, float]]:
    return [
        (what, seconds)
        for what, stage, at in world.spans
        for seconds in world.progress.pauses(stage, at, min(at + SPAN_S, time.monotonic()))
    ]


def _wrong_ends(crew: Crew) -> list[str]:
    """Say which processes ended as none should."""
    logs = crew.pipeline.folder.glob("*.log")
    tracebacks = [f"{log.name} has a traceback" for log in logs if "Traceback" in log.read_text(errors="replace")]
    return [*crew.wrong, *tracebacks]


def _drain(journal: Journal, pipeline: Pipeline) -> float:
    journal.say("drain")
    began = time.monotonic()
    for event in pipeline.drain(limit_s=DRAIN_S):
        journal.say(f"    {event.name} {event.kind}: {event.detail.splitlines()[0]}")
    seconds = time.monotonic() - began
    journal.say(f"drained within {seconds:.1f} s")
    return seconds
