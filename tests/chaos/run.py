"""One seeded run: feed a pipeline, hurt it, let it finish, compare with the batch answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from confluent_kafka import IsolationLevel, TopicPartition

from chaos import data
from chaos.completion import Completion, measure
from chaos.crew import Crew
from chaos.ends import unjustified
from chaos.journal import Journal
from chaos.progress import Progress
from chaos.proxy import Proxy
from chaos.scenario import Scenario, draw
from chaos.server import Server
from chaos.table import FAULTS, Fault
from chaos.world import SESSION_S, TRANSACTION_S, World
from helpers.kafka import STAGES, WRITES, Feed, Pipeline, Source, until
from skewless import topology
from skewless.config import topic_plan

LANES = 2
"""Faults that go on at the same time."""
PAUSE_S = (0.3, 1.5)
SPAN_S = 15.0
FIRST_S = 180.0
SETTLED_S = 60.0
DRAIN_S = 300.0
AWAY_S = 8.0
"""Several windows end in this time, which is 40 s of event time."""
IDLE_S = 2.0
"""Time for the splitter to commit that its partitions are idle."""
MOST_S = 600.0
"""The feed lasts as long as the faults and what follows them; its records are made for so long at most."""


@dataclass(frozen=True)
class Plan:
    """What to do to a pipeline."""

    seed: int
    faults: Sequence[str]
    """Names in the table of faults."""
    records: int = 100_000
    """For as long as `seconds` and the time to settle."""
    seconds: float = 60.0
    """For how long faults go on."""
    modes: Sequence[str] = ()
    """Features that the seed may turn on."""
    always: bool = False
    """Whether each seed has all of these features."""
    patience: float = 1.0
    """Factor on the time within which results must be complete, for a machine that has much else to do."""
    strict: bool = True
    """Whether a process may end by itself only where a fault justifies it."""

    @property
    def scenario(self) -> Scenario:
        """Return the scenario of the seed."""
        return draw(self.seed, self.modes, self.seconds, always=self.always)

    @property
    def absent(self) -> str | None:
        """Return the stage that is away when the feed ends."""
        return self.scenario.absent if "absence" in self.faults else None

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / (self.seconds + SETTLED_S)

    @property
    def compares_all(self) -> bool:
        """Whether the run is drained at last. An open run is drained by every second seed."""
        return self.scenario.drains or self.seed % 2 == 0


@dataclass
class Outcome:
    """What a run showed."""

    plan: Plan
    wrong: list[str]
    """Differences from the batch answer, and what else must not be."""
    counts: dict[str, int]
    recoveries: list[float] = field(default_factory=list)
    pauses: list[tuple[str, float]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    """Exit codes of processes that ended by themselves."""
    completion: Completion | None = None
    """Of a run that was compared before it was drained, if it was."""
    drained_s: float | None = None
    largest: dict[str, int] = field(default_factory=dict)


def run(plan: Plan, folder: Path, *, shown: bool = False) -> Outcome:
    """Run one plan; its journal and the logs of all processes are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "journal.log", shown=shown)
    journal.say(f"seed {plan.seed}, {plan.rate:,.0f} records/s, {plan.seconds:g} s of {', '.join(plan.faults)}")
    journal.say(str(plan.scenario))
    outcome = Outcome(plan, [], journal.counts)
    with Proxy() as proxy:
        server = Server(folder / "broker", proxy.port)
        proxy.target = server.behind
        try:
            server.start()
            pipeline = _pipeline(plan.scenario, server.bootstrap, proxy.port, folder)
            _under_fire(outcome, World.of(plan.seed, journal, pipeline, server, proxy, strict=plan.strict))
            if plan.compares_all:
                outcome.drained_s = _drain(journal, pipeline)
                outcome.wrong += data.wrong(server.bootstrap, pipeline, plan.scenario, hops=_has_hops(journal))
            outcome.wrong += [f"{topic}: a transaction is open" for topic in WRITES.values() if pipeline.is_open(topic)]
        finally:
            server.broker.stop()
    for line in outcome.wrong or ["exact"]:
        journal.say(line)
    journal.close()
    return outcome


def _has_hops(journal: Journal) -> bool:
    """Return whether internal topics still have all their records."""
    return not journal.counts["retentions"]


def _pipeline(scenario: Scenario, bootstrap: str, port: int, folder: Path) -> Pipeline:
    return Pipeline(
        bootstrap,
        folder,
        Source(bootstrap, scenario.partitions),
        kafka={"bootstrap_servers": f"127.0.0.1:{port}"},
        transport={
            "commit_interval_s": scenario.commit_interval_s,
            "max_poll_records": 1_000,
            "session_timeout_s": SESSION_S,
            "transaction_timeout_s": TRANSACTION_S,
        },
        **scenario.parts(),
    )


def _under_fire(outcome: Outcome, world: World) -> None:
    plan, crew = outcome.plan, world.crew
    records = data.Records(plan.seed, plan.scenario, plan.rate, MOST_S)
    groups = _groups(world.pipeline)
    with (
        Feed(world.pipeline.source, records, plan.rate) as feed,
        Progress(world.server.bootstrap, groups, lambda: records.silent) as progress,
    ):
        world.progress = progress
        try:
            for name in world.pipeline.processes():
                crew.join(name)
            until(lambda: progress.recovered(0.0) is not None and feed.sent > 0, each=crew.poll, limit_s=FIRST_S)
            _attack(world, plan)
            outcome.wrong += _settle(world)
            ended_at = _end_feed(world, plan, feed)
            if not plan.scenario.drains:
                outcome.completion = _compare_open(world, plan, ended_at)
                outcome.wrong += outcome.completion.wrong
            crew.stop()
        finally:
            for member in list(crew.members):
                crew.end(member)
    outcome.recoveries, outcome.largest, outcome.ends = world.recoveries, crew.largest, dict(crew.ends)
    outcome.pauses = _pauses(world)
    outcome.wrong += _wrong_ends(crew)


def _end_feed(world: World, plan: Plan, feed: Feed) -> float:
    """End the feed and return the time from which results must become complete.

    Where a stage is away meanwhile, that is the time of its first commit.
    """
    stage = plan.absent
    if stage is None:
        feed.finish()
        return time.monotonic()
    world.journal.say(f"{stage} is away while the feed ends", "absences")
    world.crew.take_away(stage)
    _wait(world, AWAY_S)
    feed.finish()
    _wait(world, (plan.scenario.idle_timeout_s or 0.0) + IDLE_S)
    back = time.monotonic()
    world.crew.away.discard(stage)
    with contextlib.suppress(AssertionError):
        until(lambda: world.progress.moved(stage, back), each=world.crew.poll, limit_s=SETTLED_S)
    world.journal.say(f"{stage} committed {time.monotonic() - back:.1f} s after it came back")
    return time.monotonic()


def _wait(world: World, seconds: float) -> None:
    """Let the processes run for a time."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, each=world.crew.poll)


def _compare_open(world: World, plan: Plan, ended_at: float) -> Completion:
    """Compare a pipeline that runs with the answer up to the watermark of its source."""
    found = measure(
        world.pipeline,
        plan.scenario,
        ended_at=ended_at,
        patience=plan.patience,
        hops=_has_hops(world.journal),
        say=world.journal.say,
        each=world.crew.poll,
    )
    took = "never complete" if found.seconds is None else f"complete within {found.seconds:.1f} s"
    world.journal.say(f"results below {found.closed_to} were {took}")
    return found


def _groups(pipeline: Pipeline) -> dict[str, tuple[str, list[TopicPartition]]]:
    """Name each stage's consumer group, and the partitions that it reads."""
    settings, partitions = pipeline.settings, pipeline.source.partitions
    sizes = {spec.name: spec.partitions for spec in topic_plan.desired_topics(settings, partitions)}
    sizes[settings.source.topic] = partitions
    reads = {row.name: settings.topic(row.input) for row in map(topology.stage, STAGES)}
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
    """Wait until every stage has committed what its input held after the last fault, and goes on."""
    since, crew, progress = world.now(), world.crew, world.progress
    try:
        for row in map(topology.stage, STAGES):
            ends = world.pipeline.ends(row.input, IsolationLevel.READ_COMMITTED)
            # The last offset of a topic may be the marker of a transaction, which no commit has to pass.
            wanted = {partition: end - 1 for partition, end in ends.items()}
            until(lambda of=row.name, up_to=wanted: not progress.behind(of, up_to), each=crew.poll, limit_s=SETTLED_S)  # type: ignore[misc]
        until(lambda: progress.recovered(since) is not None, each=crew.poll, limit_s=SETTLED_S)
    except AssertionError:
        return [f"after the last fault {progress.waiting(since)} did not go on within {SETTLED_S:g} s"]
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
    ends = unjustified(crew.ends, crew.journal.counts) if crew.strict else []
    return [*crew.wrong, *ends, *tracebacks]


def _drain(journal: Journal, pipeline: Pipeline) -> float:
    journal.say("drain")
    began = time.monotonic()
    for event in pipeline.drain(limit_s=DRAIN_S):
        journal.say(f"    {event.name} {event.kind}: {event.detail.splitlines()[0]}")
    seconds = time.monotonic() - began
    journal.say(f"drained within {seconds:.1f} s")
    return seconds
