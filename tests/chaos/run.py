"""One seeded run: feed a pipeline, inject faults, drain it, and compare it with the batch result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition

from chaos import data
from chaos.completion import Completion, measure
from chaos.context import SESSION_S, TRANSACTION_S, ChaosContext
from chaos.ends import unjustified
from chaos.joins import SHARE, JoinSource, events
from chaos.journal import Journal
from chaos.process_group import ProcessGroup
from chaos.progress import Progress
from chaos.proxy import Proxy
from chaos.scenario import Scenario, draw
from chaos.server import Server
from chaos.table import FAULTS, Fault
from helpers.kafka import Feed, Pipeline, Source, topics_partitions
from helpers.waiting import WAIT_S, until
from skewless import topology

LANES = 2
"""Number of faults at the same time."""
PAUSE_S = (0.3, 1.5)
SPAN_S = 15.0
FIRST_S = 180.0
SETTLED_S = 60.0
DRAIN_S = 300.0
AWAY_S = 8.0
"""Time in s in which several windows end: it corresponds to 40 s of event time."""
POLL_S = 0.02
WEIGH_S = 0.5
"""Delay in s between two looks at the processes under faults, and between two measurements of their memory, each of
which reads a file of every process."""
IDLE_S = 2.0
"""Time in s for the splitter to commit that its partitions are idle."""
MOST_S = 600.0
"""Maximum duration of the feed in s. The feed lasts as long as the faults and the steps after them."""


@dataclass(frozen=True)
class Plan:
    """Parameters of a run."""

    seed: int
    faults: Sequence[str]
    """Names in the table of faults."""
    records: int = 100_000
    """Duration of the faults and of the time to settle, in s."""
    seconds: float = 60.0
    """Duration of the faults in s."""
    modes: Sequence[str] = ()
    """Features that the seed may turn on."""
    always: bool = False
    """Whether each seed has all of these features."""
    pace: float = data.PACE
    """Seconds of event time per second of the feed. A feed that is stopped for long needs more, to close windows."""
    patience: float = 1.0
    """Factor on the deadline of complete results, for a busy machine."""
    brokers: int = 1
    """Brokers of the cluster. Several replicate all topics, and faults hit one at a time."""
    strict: bool = True
    """Whether a process may end by itself only when a fault justifies it."""

    @property
    def scenario(self) -> Scenario:
        """Return the scenario of the seed."""
        return draw(self.seed, self.modes, self.seconds, always=self.always)

    @property
    def absent(self) -> str | None:
        """Return the stage that is stopped when the feed ends."""
        return self.scenario.absent if "absence" in self.faults else None

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / (self.seconds + SETTLED_S)

    @property
    def compares_all(self) -> bool:
        """Whether the run is drained at its end. Every second seed drains an open run, and so does one with a join."""
        return self.scenario.drains or self.seed % 2 == 0 or self.scenario.join is not None


@dataclass
class Outcome:
    """Result of a run."""

    plan: Plan
    failures: list[str]
    """Differences from the batch result, and other errors."""
    counts: dict[str, int]
    recoveries: list[float] = field(default_factory=list)
    pauses: list[tuple[str, float]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    """Exit codes of processes that ended by themselves."""
    completion: Completion | None = None
    """Completion of a run that was compared before it was drained."""
    drained_s: float | None = None
    largest: dict[str, int] = field(default_factory=dict)


def run(plan: Plan, folder: Path, *, shown: bool = False) -> Outcome:
    """Run one plan. `folder` receives the journal and the logs of all processes."""
    folder.mkdir(parents=True, exist_ok=True)
    with Journal(folder / "journal.log", shown=shown) as journal, contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy()) for _ in range(plan.brokers)]
        journal.write(f"seed {plan.seed}, {plan.rate:,.0f} records/s, {plan.seconds:g} s of {', '.join(plan.faults)}")
        journal.write(str(plan.scenario))
        outcome = _run(plan, folder, journal, proxies)
        for line in outcome.failures or ["exact"]:
            journal.write(line)
    return outcome


def _run(plan: Plan, folder: Path, journal: Journal, proxies: Sequence[Proxy]) -> Outcome:
    outcome = Outcome(plan, [], journal.counts)
    server = Server(folder / "broker", *(proxy.port for proxy in proxies))
    for proxy, node in zip(proxies, server.nodes, strict=True):
        proxy.target = node.behind
    try:
        server.start_all()
        join = JoinSource(server.bootstrap, plan.scenario.join) if plan.scenario.join else None
        pipeline = _pipeline(plan.scenario, join, server.bootstrap, proxies, folder)
        context = ChaosContext.of(plan.seed, journal, pipeline, server, proxies[0], strict=plan.strict)
        _inject_faults(outcome, context, join)
        if plan.compares_all:
            outcome.drained_s = _drain(journal, pipeline)
            outcome.failures += data.failures(server.bootstrap, pipeline, plan.scenario, hops=_has_hops(journal))
        if plan.compares_all and join is not None:
            outcome.failures += join.failures(pipeline)
        firsts = [topology.stage(name).outputs[0] for name in context.stages]
        outcome.failures += [f"{topic}: a transaction is open" for topic in firsts if pipeline.is_open(topic)]
    finally:
        server.stop()
    return outcome


def _has_hops(journal: Journal) -> bool:
    """Return whether internal topics still have all their records."""
    return not journal.counts["retentions"]


def _pipeline(
    scenario: Scenario, join: JoinSource | None, bootstrap: str, proxies: Sequence[Proxy], folder: Path
) -> Pipeline:
    return Pipeline(
        bootstrap,
        folder,
        Source(bootstrap, scenario.partitions),
        kafka={"bootstrap_servers": ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)},
        transport={
            "commit_interval_s": scenario.commit_interval_s,
            "max_poll_records": 1_000,
            "session_timeout_s": SESSION_S,
            "transaction_timeout_s": TRANSACTION_S,
        },
        **scenario.parts(),
        **({} if join is None else {"join": join.section}),
    )


def _inject_faults(outcome: Outcome, context: ChaosContext, join: JoinSource | None) -> None:
    plan, process_group = outcome.plan, context.process_group
    records = data.Records(plan.seed, plan.scenario, plan.rate, MOST_S, plan.pace)
    groups = _groups(context.pipeline)
    with (
        _feeds(context.pipeline.source, records, join, plan) as feeds,
        Progress(context.server.bootstrap, groups, lambda: records.silent) as progress,
    ):
        context.progress = progress
        try:
            for name in context.pipeline.processes():
                process_group.join(name)
            until(
                lambda: progress.recovered(0.0) is not None and all(feed.sent for feed in feeds),
                each=process_group.poll,
                limit_s=FIRST_S,
            )
            _attack(context, plan)
            outcome.failures += _settle(context)
            ended_at = _end_feeds(context, plan, feeds)
            if not plan.scenario.drains:
                outcome.completion = _compare_open(context, plan, ended_at)
                outcome.failures += outcome.completion.failures
            process_group.stop()
        finally:
            for member in list(process_group.members):
                process_group.end(member)
    outcome.recoveries, outcome.largest, outcome.ends = (
        context.recoveries,
        process_group.largest,
        dict(process_group.ends),
    )
    outcome.pauses = _pauses(context)
    outcome.failures += _unexpected_ends(process_group)


@contextlib.contextmanager
def _feeds(
    source: Source, records: data.Records, join: JoinSource | None, plan: Plan
) -> Iterator[tuple[Feed[Any], ...]]:
    """Feed the source, and the topics of the join."""
    with contextlib.ExitStack() as stack:
        feeds: list[Feed[Any]] = [stack.enter_context(Feed(source, records, plan.rate))]
        if join is not None:
            rate = SHARE * plan.rate
            feeds.append(stack.enter_context(Feed(join, events(plan.seed, round(rate * MOST_S)), 2 * rate)))
        yield tuple(feeds)


def _end_feeds(context: ChaosContext, plan: Plan, feeds: Sequence[Feed[Any]]) -> float:
    """End the feeds and return the time from which results must become complete.

    If a stage is stopped at that time, this is the time of its first commit afterwards.
    """
    stage = plan.absent
    if stage is None:
        for feed in feeds:
            feed.finish()
        return time.monotonic()
    context.journal.write(f"{stage} is away while the feed ends", "absences")
    context.process_group.stop_stage(stage)
    _wait(context, AWAY_S)
    for feed in feeds:
        feed.finish()
    _wait(context, (plan.scenario.idle_timeout_s or 0.0) + IDLE_S)
    back = time.monotonic()
    context.process_group.away.discard(stage)
    with contextlib.suppress(AssertionError):
        until(lambda: context.progress.moved(stage, back), each=context.process_group.poll, limit_s=SETTLED_S)
    context.journal.write(f"{stage} committed {time.monotonic() - back:.1f} s after its restart")
    return time.monotonic()


def _wait(context: ChaosContext, seconds: float) -> None:
    """Keep the processes running for a time."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, each=context.process_group.poll)


def _compare_open(context: ChaosContext, plan: Plan, ended_at: float) -> Completion:
    """Compare a running pipeline with the batch result up to the watermark of its source."""
    found = measure(
        context.pipeline,
        plan.scenario,
        ended_at=ended_at,
        patience=plan.patience,
        hops=_has_hops(context.journal),
        write=context.journal.write,
        each=context.process_group.poll,
    )
    took = "never complete" if found.seconds is None else f"complete within {found.seconds:.1f} s"
    context.journal.write(f"results below {found.closed_to} were {took}")
    return found


def _groups(pipeline: Pipeline) -> dict[str, tuple[str, list[TopicPartition]]]:
    """Return each stage's consumer group, and the partitions that it reads, by the name in `Progress`."""
    found = {}
    for place, (stage, name) in _reads(pipeline).items():
        topic = pipeline.settings.topic(name)
        partitions = range(topics_partitions(pipeline.admin, topic))
        found[place] = (pipeline.settings.group(stage), [TopicPartition(topic, number) for number in partitions])
    return found


def _reads(pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    """Return the stages and each of their inputs by the name in `Progress`, in data order."""
    found: dict[str, tuple[str, str]] = {}
    for row in topology.needed_stages(pipeline.settings):
        inputs = row.inputs_of(pipeline.settings)
        found |= {row.name if len(inputs) == 1 else f"{row.name} {name}": (row.name, name) for name in inputs}
    return found


def _attack(context: ChaosContext, plan: Plan) -> None:
    """Run faults in parallel lanes until the time is over and the last fault has ended."""
    faults, end = [FAULTS[name] for name in plan.faults], time.monotonic() + plan.seconds
    dice = [Random(f"{plan.seed}/{lane}") for lane in range(LANES if len(faults) > 1 else 1)]  # noqa: S311 - as above
    lanes = [_lane(replace(context, rng=each), faults, end) for each in dice]
    due = [(0.0, lane) for lane in lanes]
    weigh_at = 0.0
    while due:
        now = time.monotonic()
        waiting = []
        for at, lane in due:
            if at > now:
                waiting.append((at, lane))
            elif (pause := next(lane, None)) is not None:
                waiting.append((now + pause, lane))
        due = waiting
        context.process_group.poll()
        if now >= weigh_at:
            context.process_group.weigh()
            weigh_at = now + WEIGH_S
        time.sleep(POLL_S)


def _lane(context: ChaosContext, faults: list[Fault], end: float) -> Iterator[float]:
    while time.monotonic() < end:
        yield context.rng.uniform(*PAUSE_S)
        yield from context.rng.choice(faults)(context)


def _settle(context: ChaosContext) -> list[str]:
    """Wait until every stage has committed the input that existed after the last fault, and makes progress."""
    since, process_group, progress = context.now(), context.process_group, context.progress
    limit_s = SETTLED_S if process_group.strict else WAIT_S
    try:
        for place, (_, topic) in _reads(context.pipeline).items():
            ends = context.pipeline.ends(topic, IsolationLevel.READ_COMMITTED)
            # The last offset of a topic may be the marker of a transaction, which no commit has to pass.
            wanted = {partition: end - 1 for partition, end in ends.items()}
            until(
                lambda of=place, up_to=wanted: not progress.behind(of, up_to),  # type: ignore[misc]
                each=process_group.poll,
                limit_s=limit_s,
            )
        until(lambda: progress.recovered(since) is not None, each=process_group.poll, limit_s=limit_s)
    except AssertionError:
        return [f"after the last fault {progress.waiting(since)} made no progress within {limit_s:g} s"]
    context.journal.write(f"all stages made progress within {context.now() - since:.1f} s after the last fault")
    return []


def _pauses(context: ChaosContext) -> list[tuple[str, float]]:
    return [
        (what, seconds)
        for what, stage, at in context.spans
        for seconds in context.progress.pauses(stage, at, min(at + SPAN_S, time.monotonic()))
    ]


def _unexpected_ends(process_group: ProcessGroup) -> list[str]:
    """List the unexpected ends of processes."""
    logs = process_group.pipeline.folder.glob("*.log")
    tracebacks = [f"{log.name} has a traceback" for log in logs if "Traceback" in log.read_text(errors="replace")]
    ends = unjustified(process_group.ends, process_group.journal.counts) if process_group.strict else []
    return [*process_group.failures, *ends, *tracebacks]


def _drain(journal: Journal, pipeline: Pipeline) -> float:
    journal.write("drain")
    began = time.monotonic()
    for event in pipeline.drain(limit_s=DRAIN_S):
        journal.write(f"    {event.name} {event.kind}: {event.detail.splitlines()[0]}")
    seconds = time.monotonic() - began
    journal.write(f"drained within {seconds:.1f} s")
    return seconds
