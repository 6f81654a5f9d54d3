"""Measures how long a running pipeline takes until its results below the source's watermark are complete."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from chaos import data
from chaos.scenario import LATENESS_S, Scenario
from helpers.kafka import Pipeline, Record, Source, Truth, read
from helpers.waiting import until

EVER_S = 60.0
"""Deadline in s for late results, which are waited for to distinguish them from missing results."""
PASSED_S = 20.0
ACTIVE_INTERVAL_S = 0.2

At = tuple[int, str]
"""Start of a window, and key."""
Answer = tuple[int, int]
"""Count and sum."""


class Tail(threading.Thread):
    """Reads the committed results, and records when each of them arrived."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(name="tail")
        options = {"bootstrap.servers": pipeline.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        self._consumer = Consumer({**options, "fetch.wait.max.ms": 20, "log_level": 0})
        topic, partitions = pipeline.settings.topic("aggregates"), pipeline.settings.topics.aggregator_partitions
        self._consumer.assign([TopicPartition(topic, at, OFFSET_BEGINNING) for at in range(partitions)])
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._last: dict[At, tuple[Answer, float]] = {}

    def run(self) -> None:
        """Read until the end of the block."""
        while not self._over.is_set():
            messages = [message for message in self._consumer.consume(10_000, 0.05) if message.error() is None]
            now = time.monotonic()
            entries = [msgspec.json.decode(message.value()) for message in messages]
            with self._lock:
                for entry in entries:
                    self._last[entry["window_start"], entry["key"]] = ((entry["count"], entry["sum"]), now)
        self._consumer.close()

    def last(self) -> dict[At, tuple[Answer, float]]:
        """Last result of every window and key, and its arrival time."""
        with self._lock:
            return self._last.copy()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


@dataclass
class Completion:
    """State of a pipeline that was compared while it ran."""

    seconds: float | None
    """Time from the last record to complete results; None if results are missing."""
    allowed_s: float
    closed_to: int | None
    """The source's watermark."""
    failures: list[str] = field(default_factory=list)


@contextlib.contextmanager
def beating(source: Source, scenario: Scenario, newest: int) -> Iterator[None]:
    """Keep partition 0 active, if the scenario requires it."""
    over = threading.Event()

    def beat() -> None:
        time_ms = newest
        while not over.wait(ACTIVE_INTERVAL_S):
            time_ms += 1
            source.send([(0, json.dumps({"key": "beat", "value": 1, "time": time_ms}).encode())])

    thread = threading.Thread(target=beat, name="beat")
    if scenario.beats:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if scenario.beats:
            thread.join()


def newest_times(sent: list[Record]) -> dict[int, int]:
    """Return the largest event time of each source partition."""
    newest: defaultdict[int, int] = defaultdict(int)
    for record in sent:
        if record.value not in data.INVALID:
            newest[record.partition] = max(newest[record.partition], json.loads(record.value or b"")["time"])
    return dict(newest)


def watermarks_of(sent: list[Record]) -> dict[int, int]:
    """Return the watermark of each source partition."""
    return {partition: time_ms - LATENESS_S * 1000 for partition, time_ms in newest_times(sent).items()}


def measure(  # noqa: PLR0913 - by name
    pipeline: Pipeline,
    scenario: Scenario,
    *,
    ended_at: float,
    patience: float,
    hops: bool,
    write: Callable[[str], None],
    each: Callable[[], None],
) -> Completion:
    """Wait for the results below the watermark, and compare them. `ended_at` is the end of the feed.

    `each` is called during the wait.
    """
    source = pipeline.source
    sent = list(read(pipeline.bootstrap, source.topic))
    with Tail(pipeline) as tail, beating(source, scenario, newest_times(sent).get(0, 0)):
        closed_to = scenario.watermark(watermarks_of(sent))
        expected = data.expected_of(sent, scenario)
        found = Completion(None, patience * scenario.complete_within_s, closed_to)
        wanted = _below(expected, closed_to, scenario)
        write(f"{len(wanted):,} results below {closed_to} must be there within {found.allowed_s:.1f} s")
        _wait(tail, wanted, found, ended_at, each)
    found.failures += _unwanted(pipeline, tail, scenario)
    sent = list(read(pipeline.bootstrap, source.topic))
    expected = data.expected_of(sent, scenario)
    with contextlib.suppress(AssertionError):
        until(
            lambda: (
                _passed_on(pipeline, expected, hops=hops)
                and not _missing_ticks(pipeline, scenario, expected, closed_to)
            ),
            each=each,
            limit_s=patience * PASSED_S,
            every_s=0.1,
        )
    found.failures += data.open_errors(pipeline, scenario, sent, closed_to, hops=hops)
    found.failures += _missing_ticks(pipeline, scenario, expected, closed_to)
    return found


def _below(expected: Truth, closed_to: int | None, scenario: Scenario) -> dict[At, Answer]:
    if closed_to is None:
        return {}
    return {
        at: (count, expected.sums[at])
        for at, count in expected.counts.items()
        if at[0] + scenario.window_ms <= closed_to
    }


def _wait(tail: Tail, wanted: dict[At, Answer], found: Completion, ended_at: float, each: Callable[[], None]) -> None:
    """Wait for results. Their delay is computed from arrival times, so it does not depend on when they are compared."""

    def missing() -> list[At]:
        last = tail.last()
        return [at for at, answer in wanted.items() if at not in last or last[at][0] != answer]

    with contextlib.suppress(AssertionError):
        until(lambda: not missing(), each=each, limit_s=found.allowed_s + EVER_S, every_s=0.1)
    if never := missing():
        last = tail.last()
        shown = ", ".join(f"{at}: {last[at][0] if at in last else None}, not {wanted[at]}" for at in sorted(never)[:3])
        found.failures.append(
            f"{len(never)} of {len(wanted)} results below the watermark {found.closed_to} never came: {shown}"
        )
        return
    last = tail.last()
    found.seconds = max(0.0, max((last[at][1] for at in wanted), default=ended_at) - ended_at)
    if found.seconds > found.allowed_s:
        found.failures.append(f"results were complete after {found.seconds:.1f} s, allowed are {found.allowed_s:g} s")


def _unwanted(pipeline: Pipeline, tail: Tail, scenario: Scenario) -> list[str]:
    """Return the windows that `emit: final` closed before the watermark can have passed them."""
    if scenario.emit == "updates":
        return []
    results = tail.last()
    highest = scenario.highest(watermarks_of(list(read(pipeline.bootstrap, pipeline.source.topic))))
    early = [at for at in results if highest is None or at[0] + scenario.window_ms > highest]
    return [f"aggregates: {at} was closed above the watermark {highest} (one of {len(early)})" for at in early[:5]]


def _passed_on(pipeline: Pipeline, expected: Truth, *, hops: bool) -> bool:
    """Return whether the splitter has processed the source, and the router what the splitter wrote."""
    late = pipeline.count("late") >= len(expected.late)
    return late and (not hops or pipeline.tuples("worker-input") >= expected.tuples)


def _missing_ticks(pipeline: Pipeline, scenario: Scenario, expected: Truth, closed_to: int | None) -> list[str]:
    """Return the ticks below the watermark that are missing. Partition 0 has tuples in every tick."""
    if closed_to is None or not expected.counts:
        return []
    first = min(start for start, _ in expected.counts)
    begin = -(-first // scenario.tick_ms) * scenario.tick_ms + scenario.tick_ms
    wanted = set(range(begin, closed_to - scenario.tick_ms + 1, scenario.tick_ms))
    entries: list[dict[str, Any]] = [json.loads(record.value or b"") for record in pipeline.read("distribution")]
    missing = sorted(wanted - {entry["tick_start"] for entry in entries})
    return [f"distribution: ticks {missing[:5]} below the watermark {closed_to} are missing"] if missing else []
