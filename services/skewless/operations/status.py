"""State of a pipeline, from its topics and consumer groups: processes, lag, event time, load, and problems.

Where the metrics ports of processes can be reached, these are asked whether they are ready.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from skewless import topology
from skewless.algorithms.grouping.base import HotKey
from skewless.algorithms.watermark import MAX_WATERMARK, NOTHING_REPORTED, WatermarkState, WatermarkTracker
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.errors import BrokerError
from skewless.kafka.admin.client import Admin
from skewless.kafka.admin.groups import GroupDescription, GroupReader
from skewless.kafka.consumer.offsets import OffsetRanges, OffsetReader, newest_offsets
from skewless.kafka.consumer.topic_reader import first_records, read_ranges
from skewless.lab.local.published_processes import recently_ended
from skewless.operations.data_quality import (
    MAX_LATE_SHARE,
    QUALITY_TOPICS,
    Invalid,
    Reasons,
    data_quality,
    invalid_record,
    warnings,
)
from skewless.operations.hot_keys import hot_keys
from skewless.operations.readiness import readiness
from skewless.operations.recent_records import RecentRecords, recent_records
from skewless.operations.running_processes import own_addresses
from skewless.wire.changelog import decode_checkpoint
from skewless.wire.distribution import TickDistribution
from skewless.wire.offset_metadata import engine_of
from skewless.wire.state_schema import Engine
from skewless.wire.topic_partition import CommittedOffset

MAX_WINDOWS = 10_000
"""Windows that are counted at most."""
HELD_BACK_MS = 10_000
"""Watermark lag of one source partition that is reported as a reason to wait."""
SHOWN = 5
"""Partitions that one line names at most."""


@dataclass(frozen=True)
class StageStatus:
    """State of one stage, as of its last commit."""

    name: str
    group: GroupDescription
    lag: Mapping[str, Mapping[int, int]]
    """Offsets from the first record that is not processed to the end, by full name of the topic and partition."""
    oldest_unprocessed_ms: int | None = None
    """Kafka timestamp of the oldest record that is not processed."""
    partitions: Sequence[WatermarkState] = ()
    """Event time of each input partition; empty for a stage without."""
    closed_until: int | None = None
    """Time up to which windows are closed in all partitions."""
    problems: tuple[str, ...] = ()
    engine: Engine | None = None
    """What the last commit names as running the pipeline; None if it names nothing, or before the first commit."""
    readiness: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For each process whose metrics port was reached, why it is not ready; empty if it is."""

    @property
    def is_ready(self) -> bool:
        """Whether no process is known not to be ready, and no partitions are being assigned."""
        return not (self.group.is_rebalancing or any(self.readiness.values()))

    @property
    def lag_records(self) -> int:
        """Lag of all partitions. It may include markers of transactions, but is 0 if all records are processed."""
        return sum(lag for by_partition in self.lag.values() for lag in by_partition.values())

    @property
    def event_time(self) -> WatermarkState:
        """Event time of the stage: the combined watermark of its partitions."""
        if not self.partitions:
            return NOTHING_REPORTED
        tracker = WatermarkTracker(len(self.partitions), exclude_idle=topology.stage(self.name).follows_source)
        reported = {
            partition: state.watermark for partition, state in enumerate(self.partitions) if state.watermark is not None
        }
        # The end of an earlier run is marked as idle. To a user it is an end.
        idle = [p for p, state in enumerate(self.partitions) if state.idle and state.watermark != MAX_WATERMARK]
        tracker.update(reported, idle)
        return tracker.state()

    @property
    def has_ended(self) -> bool:
        """Whether all of its input has ended, in a bounded run."""
        return self.event_time.watermark == MAX_WATERMARK


@dataclass(frozen=True)
class PipelineStatus:
    """State of a pipeline."""

    pipeline: str
    time_ms: int
    stages: Sequence[StageStatus]
    newest_event_ms: int | None
    """Largest event time that the splitter has committed."""
    open_windows: int | None
    """Windows between the last closed one and the newest event; None before the first commit."""
    recent: Mapping[str, int]
    """Records that were committed to `late`, `join-late` and `dead-letters` in the period."""
    recent_s: float
    load: TickDistribution | None
    """Load of the workers in the last tick that was emitted."""
    hot_keys: Sequence[HotKey] = field(default=())
    """Hottest keys since they were first counted, if the grouping knows their names."""
    waits: Sequence[str] = field(default=())
    """Reasons why results wait, none of which is a problem."""
    problems: Sequence[str] = field(default=())
    warnings: Sequence[str] = field(default=())
    """Properties of the recent records that make results incomplete, although all stages work."""

    @property
    def engine(self) -> Engine | None:
        """What runs the pipeline, or ran it last; None if that is unknown, and for one that only joins."""
        return next((stage.engine for stage in self.stages if stage.name == topology.SOURCE_STAGE), None)

    @property
    def closing(self) -> StageStatus | None:
        """The stage that closes windows; None if the pipeline only joins."""
        return next((stage for stage in self.stages if stage.name == topology.RESULTS_STAGE), None)

    @property
    def is_ready(self) -> bool:
        """Whether there are no problems, and all processes that were reached are ready."""
        return not self.problems and all(stage.is_ready for stage in self.stages)

    @property
    def state(self) -> str:
        """`running`, `finished` after a bounded run, or `failing` if there are problems."""
        if self.problems:
            return "failing"
        is_running = any(stage.group.members or stage.readiness for stage in self.stages)
        return "running" if is_running else "finished"


def status(
    settings: PipelineSettings,
    now_ms: int,
    *,
    recent_s: float,
    max_lag_s: float | None,
    max_late_share: float = MAX_LATE_SHARE,
) -> PipelineStatus:
    """Return the state of a pipeline. Reads without a consumer group, and writes nothing.

    `max_lag_s` is the age of an unprocessed record above which it is a problem; None: no age is. `max_late_share` is
    the share of recent tuples that may be late without a warning. Raises BrokerError if a topic that the pipeline reads
    does not exist, or the broker refuses a request.
    """
    admin = Admin(settings.kafka)
    partition_counts = admin.partition_counts()
    names = [settings.topic(row.name) for row in topology.needed_topics(settings)]
    missing = [name for name in names if name not in partition_counts]
    unknown_topics = [name for name in settings.user_topics.values() if name not in partition_counts]
    admin.check_visible([*missing, *unknown_topics])
    if unknown_topics:
        missing_inputs = [f"topic {name} does not exist" for name in unknown_topics]
        raise BrokerError(f"{', '.join(missing_inputs)} at {settings.kafka.bootstrap_servers}")
    offsets, groups = OffsetReader(settings.kafka), GroupReader(settings.kafka)
    stages = [
        stage
        for start in (StageStart(row, settings, partition_counts) for row in topology.needed_stages(settings))
        if all(topic in partition_counts for topic, _ in start.input_topics())
        if (stage := _stage_status(start, offsets, groups)) is not None
    ]
    newest = _newest_event(settings, {stage.name: stage for stage in stages}.get(topology.SOURCE_STAGE))
    stages = with_end_of_splitter(_without_ended(settings, _with_readiness(settings, stages)))
    by_name = {stage.name: stage for stage in stages}
    full_names = {name: settings.topic(name) for name in QUALITY_TOPICS}
    topics = {name: full_name for name, full_name in full_names.items() if full_name in partition_counts}
    since_ms = now_ms - round(1000 * recent_s)
    quality = data_quality(offsets, topics, settings.sides, since_ms)
    distribution, closing = settings.topic("distribution"), by_name.get(topology.RESULTS_STAGE)
    problems = (
        ["the pipeline has no topics: `skewless up` and `skewless topics apply` create them"]
        if missing == names
        else [f"topic {name} is missing: `skewless topics apply` creates it" for name in missing]
    )
    problems += _problems(stages, now_ms, max_lag_s)
    # A query writes no topic from which the number of accepted tuples could be estimated.
    shares = {} if _is_query(stages) else warnings(quality, settings, max_late_share)
    if newest is None and topology.SOURCE_STAGE in by_name:
        dead_letters = recent_records(offsets, topics.get("dead-letters"), 0, invalid_record)
        if only_invalid := list(_only_invalid(dead_letters, by_name[topology.SOURCE_STAGE].lag, settings)):
            shares.pop("invalid", None)
            problems += only_invalid
    return PipelineStatus(
        pipeline=settings.full_name,
        time_ms=now_ms,
        stages=stages,
        newest_event_ms=newest,
        open_windows=open_windows(settings.aggregator.windows, _closed_until(closing), newest),
        recent={
            name: count
            for name, count in (
                ("late", quality.late),
                ("join-late", quality.late_of_join),
                ("dead-letters", quality.dead_letters),
            )
            if name in topics
        },
        recent_s=recent_s,
        load=last_tick(settings, offsets) if distribution in partition_counts else None,
        hot_keys=hot_keys(settings, offsets, partition_counts.get(settings.topic("worker-input"), 0))
        if settings.topic("router-state") in partition_counts
        else [],
        waits=list(_waits(settings, stages)),
        problems=problems,
        warnings=[*shares.values(), *_without_partitions(by_name.get(topology.SOURCE_STAGE))],
    )


def _stage_status(start: StageStart, offsets: OffsetReader, groups: GroupReader) -> StageStatus | None:
    """Return the state of a stage; None with `replicas` of 0 if no process has ever run: its user does without it."""
    name, group = start.stage.name, start.group
    members = groups.describe(group)
    is_used = bool(members.members or start.settings.replicas.of(name))
    lag: dict[str, dict[int, int]] = {}
    oldest: list[int] = []
    problems: list[str] = []
    states: list[WatermarkState] = []
    closed: list[int | None] = []
    engines: set[Engine | None] = set()
    for topic, input_name in start.input_topics():
        # In this order, so that the lag of a running pipeline is not negative.
        committed = offsets.committed(group, topic)
        retained = offsets.ranges(topic)
        unprocessed = {
            partition: (max(begin, committed[partition].offset) if partition in committed else begin, end)
            for partition, (begin, end) in retained.items()
        }
        is_used = is_used or bool(committed)
        problems += _offset_problems(topic, committed, retained)
        engines |= {engine_of(offset.metadata) for offset in committed.values()}
        lag[topic] = dict.fromkeys(retained, 0)
        for partition, message in first_records(start.settings.kafka, topic, unprocessed).items():
            lag[topic][partition] = retained[partition][1] - message.offset()
            oldest += [time for kind, time in [message.timestamp()] if kind]
        checkpoints = [committed[p].checkpoint if p in committed else None for p in retained]
        states += event_times(start, input_name, checkpoints)
        closed += [
            decode_checkpoint(checkpoint).closed_until for checkpoint in checkpoints if name == topology.RESULTS_STAGE
        ]
    if not is_used:
        return None
    known = [time for time in closed if time is not None]
    return StageStatus(
        name=name,
        group=members,
        lag=lag,
        oldest_unprocessed_ms=min(oldest, default=None),
        partitions=states,
        closed_until=min(known) if known and len(known) == len(closed) else None,
        problems=tuple(problems),
        engine=next(filter(None, engines), None),
    )


def _with_readiness(settings: PipelineSettings, stages: Sequence[StageStatus]) -> list[StageStatus]:
    """Return the stages with the answers of their processes."""
    hosts = {
        member.removeprefix(f"{settings.full_name}-"): host
        for stage in stages
        for member, host in stage.group.members.items()
    }
    found = readiness(settings, hosts)
    return [
        replace(stage, readiness={name: found[name] for name in sorted(found) if name.rpartition("-")[0] == stage.name})
        for stage in stages
    ]


def _without_ended(settings: PipelineSettings, stages: Sequence[StageStatus]) -> list[StageStatus]:
    """Return the stages without the members that a command on this machine ran until it ended.

    The broker lists an ended process until its session expires. One that answers has been started again.
    """
    ended = recently_ended(settings)
    own = own_addresses() if ended else frozenset()

    def runs(stage: StageStatus, member: str, host: str) -> bool:
        process = member.removeprefix(f"{settings.full_name}-")
        return process not in ended or process in stage.readiness or host not in own

    found = []
    for stage in stages:
        running = {member: host for member, host in stage.group.members.items() if runs(stage, member, host)}
        found.append(replace(stage, group=stage.group._replace(members=running)))
    return found


def with_end_of_splitter(stages: Sequence[StageStatus]) -> list[StageStatus]:
    """Return the stages with the end of the splitter after a bounded run: all partitions of the router have it.

    The splitter does not commit its end. It has not ended if its source has new records.
    """
    router_has_ended = not _is_query(stages) and any(
        stage.name == topology.ROUTING_STAGE and stage.has_ended for stage in stages
    )
    return [
        replace(stage, partitions=[WatermarkState(MAX_WATERMARK)] * len(stage.partitions))
        if stage.name == topology.SOURCE_STAGE and router_has_ended and not stage.lag_records
        else stage
        for stage in stages
    ]


def _closed_until(aggregator: StageStatus | None) -> int | None:
    """Return the time up to which windows are closed in all partitions; None if it is unknown."""
    if aggregator is None:
        return None
    return MAX_WATERMARK if aggregator.has_ended else aggregator.closed_until


def event_times(start: StageStart, topic: str, checkpoints: Sequence[str | None]) -> Sequence[WatermarkState]:
    """Return the event time of each partition of an input topic, by its name in the topology and its checkpoints.

    It is empty for a stage without event time.
    """
    if start.stage.event_time is None:
        return ()
    states: Sequence[WatermarkState] = pkgutil.resolve_name(start.stage.event_time)(start, topic, checkpoints)
    return states


def _offset_problems(topic: str, committed: Mapping[int, CommittedOffset], retained: OffsetRanges) -> Iterator[str]:
    """Yield a line for partitions whose committed offset is outside of the log."""
    deleted = [p for p, (begin, _) in retained.items() if p in committed and committed[p].offset < begin]
    beyond = [p for p, (_, end) in retained.items() if p in committed and committed[p].offset > end]
    if deleted:
        yield f"records of topic {topic} were deleted before they were processed: partitions {_some(deleted)}"
    if beyond:
        yield f"topic {topic} ends before the committed offset: partitions {_some(beyond)}; was it deleted?"


def _newest_event(settings: PipelineSettings, splitter: StageStatus | None) -> int | None:
    watermarks = [state.watermark for state in splitter.partitions] if splitter else []
    return max(
        (watermark + settings.event_time.lateness_ms for watermark in watermarks if watermark is not None), default=None
    )


def open_windows(windows: WindowAssigner, closed_until: int | None, newest_event: int | None) -> int | None:
    """Return the number of windows that can contain events up to the newest one and are not closed, at most 10,000.

    None if it is unknown: before the first closed window, before the first event, and for sessions, which only the
    tuples of a key determine.
    """
    if closed_until is None or newest_event is None or isinstance(windows, SessionWindows):
        return None
    found: set[int] = set()
    time = newest_event
    while len(found) < MAX_WINDOWS:
        slice_start = int(windows.slices(np.array([time], dtype=np.int64))[0])
        still_open = {start for start in windows.windows_of(slice_start) if windows.end(start) > closed_until}
        if not still_open:
            break
        found |= still_open
        time = slice_start - 1
    return len(found)


def last_tick(settings: PipelineSettings, offsets: OffsetReader) -> TickDistribution | None:
    """Return the newest record of the topic `distribution`; None if there is none."""
    topic = settings.topic("distribution")
    retained = offsets.ranges(topic)
    # Each tick is a record, and each transaction adds a marker: two offsets from the end there may be none.
    for lookback in (10, 1_000):
        batches = read_ranges(settings.kafka, topic, newest_offsets(retained, lookback))
        values = [message.value() for _, messages in batches for message in messages]
        for tick in map(_tick_of, reversed(values)):
            if tick is not None:
                return tick
    return None


def _tick_of(value: bytes | None) -> TickDistribution | None:
    """Return the tick of a record of the topic distribution; None if it is not one."""
    try:
        return msgspec.json.decode(value or b"", type=TickDistribution)
    except msgspec.DecodeError:
        return None


def _problems(stages: Sequence[StageStatus], now_ms: int, max_lag_s: float | None) -> Iterator[str]:
    is_query = _is_query(stages)
    is_ending = not is_query and _has_ended(stages)
    for stage in stages:
        yield from (f"{stage.name}: {problem}" for problem in stage.problems)
        process = _process_of(stage) if is_query else stage.name
        if process and not (stage.group.members or stage.readiness) and (stage.lag_records or not is_ending):
            unprocessed = f"; unprocessed records: {stage.lag_records:,}" if stage.lag_records else ""
            yield f"{process}: no process runs{unprocessed}"
        age_s = lag_s(stage, now_ms)
        if max_lag_s is not None and age_s is not None and age_s > max_lag_s:
            yield f"{stage.name}: the oldest unprocessed record is {age_s:,.0f} s old, more than {max_lag_s:g} s"


def _has_ended(stages: Sequence[StageStatus]) -> bool:
    """Return whether the stages end as soon as they have processed everything, in a bounded run.

    The router has the end of the source in all partitions. A pipeline that only joins has no router.
    """
    ended = {stage.name: stage.has_ended for stage in stages}
    return ended.get(topology.ROUTING_STAGE, ended.get(topology.JOIN_STAGE, False))


def _without_partitions(splitter: StageStatus | None) -> Iterator[str]:
    """Yield a line if the splitter has more processes than the largest source topic has partitions.

    The partitions of each topic are assigned on their own, to the first processes.
    """
    if splitter is None:
        return
    processes, partitions = len(splitter.group.members), max(map(len, splitter.lag.values()), default=0)
    if processes > partitions:
        of_topic = " of the largest topic" if len(splitter.lag) > 1 else ""
        yield (
            f"{splitter.name}: {processes} processes for {partitions} source partitions{of_topic}, so "
            f"{processes - partitions} without work: set replicas.{splitter.name}, or add partitions to the source"
        )


def _is_query(stages: Sequence[StageStatus]) -> bool:
    return any(stage.name == topology.SOURCE_STAGE and stage.engine == "spark" for stage in stages)


def _process_of(stage: StageStatus) -> str | None:
    """Return what runs a stage while a query of Spark runs the pipeline; None for the stages that need no process."""
    if stage.name == topology.SOURCE_STAGE:
        return topology.QUERY
    return None if topology.stage(stage.name) in topology.QUERIED_STAGES else stage.name


def _only_invalid(
    dead_letters: RecentRecords[Invalid | None], sources: Collection[str], settings: PipelineSettings
) -> Iterator[str]:
    """Yield a line if there are invalid records of the source topics. No other one had an event time so far."""
    # The topics that a join or an enricher reads may have valid records, too.
    found = [letter for letter in dead_letters.contents if letter is not None and letter.position.topic in sources]
    if found:
        # Of many records, the number is that of their offsets, which contain the markers of transactions.
        about = "about " if dead_letters.number > len(dead_letters.contents) else ""
        number = f"{about}{round(dead_letters.number * len(found) / len(dead_letters.contents)):,}"
        reasons = Reasons(found)
        line = f"{topology.SOURCE_STAGE}: all {number} records so far are invalid: {reasons}"
        yield "; ".join([line, *reasons.remedies(settings)])


def _waits(settings: PipelineSettings, stages: Sequence[StageStatus]) -> Iterator[str]:
    for stage in stages:
        if stage.group.is_rebalancing:
            yield f"{stage.name}: its group is rebalancing ({stage.group.state})"
        not_ready = ((process, reasons) for process, reasons in stage.readiness.items() if reasons)
        yield from (f"{process} is not ready: {', '.join(reasons)}" for process, reasons in not_ready)
        if stage.name == topology.SOURCE_STAGE and stage.group.members:
            yield from _held_back(settings, stage)


def _held_back(settings: PipelineSettings, splitter: StageStatus) -> Iterator[str]:
    """Yield a line for source partitions that hold windows open, since the others are ahead of them."""
    labels = (
        (f"{settings.aggregated.prefix_of(topic)}{p}", lag)
        for topic, by_partition in splitter.lag.items()
        for p, lag in sorted(by_partition.items())
    )
    watermarks = {
        label: state.watermark
        for (label, lag), state in zip(labels, splitter.partitions, strict=True)
        if not (state.idle or lag)
    }
    newest = max((state.watermark for state in splitter.partitions if state.watermark is not None), default=None)
    timeout = settings.event_time.idle_timeout_s
    until = "event_time.idle_timeout_s is null" if timeout is None else f"for up to {timeout:g} s without a record"
    if newest is None:
        return
    if silent := [p for p, watermark in watermarks.items() if watermark is None]:
        yield f"windows wait for the first record of source partitions {_some(silent)} ({until})"
    behind = {p: newest - time for p, time in watermarks.items() if time is not None and newest - time > HELD_BACK_MS}
    if behind:
        yield (
            f"windows wait for newer records of source partitions {_some(list(behind))}, whose event time is up to "
            f"{max(behind.values()) / 1000:,.0f} s behind that of the newest partition ({until})"
        )


def _some(partitions: Sequence[Any]) -> str:
    """Return partitions as a text, not too many of them."""
    listed = ", ".join(map(str, sorted(partitions)[:SHOWN]))
    return listed if len(partitions) <= SHOWN else f"{listed} and {len(partitions) - SHOWN} others"


def as_json(report: PipelineStatus) -> dict[str, Any]:
    """Return the state of a pipeline as JSON."""
    return {
        "pipeline": report.pipeline,
        "time_ms": report.time_ms,
        "state": report.state,
        "engine": report.engine,
        "stages": [_stage_json(stage, report) for stage in report.stages],
        "newest_event_ms": report.newest_event_ms,
        "open_windows": report.open_windows,
        "recent": {"seconds": report.recent_s, **report.recent},
        "load": None if report.load is None else msgspec.to_builtins(report.load),
        "hot_keys": [hot._asdict() for hot in report.hot_keys],
        "waits": list(report.waits),
        "warnings": list(report.warnings),
        "problems": list(report.problems),
    }


def lag_s(stage: StageStatus, now_ms: int) -> float | None:
    """Return the age of the oldest unprocessed record in seconds, by its Kafka timestamp; 0 if there is none.

    None for a stage that reads results, whose timestamps are event times.
    """
    if topology.stage(stage.name).reads_results:
        return None
    return 0.0 if stage.oldest_unprocessed_ms is None else max(0.0, (now_ms - stage.oldest_unprocessed_ms) / 1000)


def largest_lag_s(report: PipelineStatus) -> float:
    """Return the age of the oldest unprocessed record of any stage in seconds, as `lag_s` does; 0 if there is none."""
    return max((lag_s(stage, report.time_ms) or 0.0 for stage in report.stages if stage.lag_records), default=0.0)


def behind_s(stage: StageStatus, newest_event_ms: int | None) -> float | None:
    """Return the watermark lag in seconds: the newest event time minus the watermark."""
    watermark = stage.event_time.watermark
    if watermark is None or watermark == MAX_WATERMARK or newest_event_ms is None:
        return None
    return max(0.0, (newest_event_ms - watermark) / 1000)


def processes(stage: StageStatus, pipeline: str) -> list[str]:
    """Return the names of the processes of a stage, such as `router-0`."""
    return sorted(member.removeprefix(f"{pipeline}-") for member in stage.group.members)


def _stage_json(stage: StageStatus, report: PipelineStatus) -> dict[str, Any]:
    state, age_s = stage.event_time, lag_s(stage, report.time_ms)
    return {
        "stage": stage.name,
        "processes": processes(stage, report.pipeline),
        "group_state": stage.group.state,
        "not_ready": {process: list(reasons) for process, reasons in stage.readiness.items() if reasons},
        "lag_records": stage.lag_records,
        "lag_s": None if age_s is None else round(age_s, 3),
        "lag_by_partition": {topic: {str(p): lag for p, lag in lags.items()} for topic, lags in stage.lag.items()},
        "watermark_ms": None if state.watermark == MAX_WATERMARK else state.watermark,
        "ended": stage.has_ended,
        "idle": state.idle,
        "behind_s": behind_s(stage, report.newest_event_ms),
        "closed_until_ms": stage.closed_until,
    }
