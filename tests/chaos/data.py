"""Records of the source: skewed, out of order, some late, some invalid; and the comparison with a plain count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from random import Random

from chaos.scenario import LATENESS_S, Scenario
from helpers.kafka import Pipeline, Record, Sent, Truth, differences, read, truth, zipf_records

INVALID_SHARE = 0.002
INVALID: dict[bytes | None, str] = {
    None: "empty record",
    b"": "malformed JSON",
    b"{": "malformed JSON",
    b'{"key":"\xff\xfe","value":1,"time":1}': "not UTF-8",
    b'{"key":' + b"[" * 1000 + b"]" * 1000 + b"}": "nested deeper than 32",
    b'{"key":"a","value":1}': "time field time is missing",
    b'{"key":"a","value":1e400,"time":1}': "value field value has the wrong type or is out of range",
    b'{"key":"a","value":1,"time":99999999999999}': "time too far ahead of the clock",
    b'{"key":"a","value":1,"time":-1}': "time before splitter.time.earliest",
}
"""Value of an invalid record -> reason of its dead letter."""
COORDINATES = "__skewless.errors."
PACE = 5.0
"""Seconds of event time per second of the feed."""


class Records:
    """Records for a source, identical for a seed; `rate` per second while no partition is silent."""

    def __init__(self, seed: int, scenario: Scenario, rate: float, seconds: float, pace: float = PACE) -> None:
        """Make records for this many seconds, each of which is `pace` seconds of event time."""
        self._seed = seed
        self._scenario = scenario
        self._rate = rate
        self._seconds = seconds
        self._pace = pace
        self.silent: frozenset[int] = frozenset()
        """Partitions without records now."""

    def __iter__(self) -> Iterator[Sent]:
        rng = Random(self._seed)  # noqa: S311 - seeded, not secret
        count, partitions = round(self._rate * self._seconds), self._scenario.partitions
        held: defaultdict[int, list[Sent]] = defaultdict(list)
        made = zipf_records(count, partitions, self._seed, keys=5_000, span_s=round(self._seconds * self._pace))
        for number, (partition, value) in enumerate(made):
            if number % partitions == 0:
                yield from self._wake(number / self._rate, held)
            if partition in self.silent:
                held[partition].append((partition, value))
                continue
            yield partition, value
            if rng.random() < INVALID_SHARE:
                yield partition, rng.choice(list(INVALID))

    def _wake(self, second: float, held: dict[int, list[Sent]]) -> Iterator[Sent]:
        """Update the silent partitions of this second; yields the delayed records of those that are active again."""
        now = frozenset(each.partition for each in self._scenario.silences if each.covers(second))
        delayed = {each.partition for each in self._scenario.silences if each.delayed}
        for partition in self.silent - now:
            waiting = held.pop(partition, [])
            yield from waiting if partition in delayed else ()
        self.silent = now


def expected_of(sent: list[Record], scenario: Scenario) -> Truth:
    """Count the valid records of a source."""
    good = (record for record in sent if record.value not in INVALID)
    return truth(good, lateness_ms=LATENESS_S * 1000, window_ms=scenario.window_ms)


def failures(bootstrap: str, pipeline: Pipeline, scenario: Scenario, *, hops: bool = True) -> list[str]:
    """List the differences between a drained pipeline and the batch result of its source; empty if it is exact.

    A tick is not corrected by later records of an idle partition, nor by records of a window that is open for longer
    than the tick. `hops` is off when internal records were deleted.
    """
    sent = list(read(bootstrap, pipeline.source.topic))
    expected = expected_of(sent, scenario)
    complete_ticks = scenario.idle_timeout_s is None and scenario.tick_ms % scenario.window_ms == 0
    return [
        *differences(pipeline, expected, ticks=complete_ticks),
        *(_hop_errors(pipeline, expected) if hops else ()),
        *_dead_letter_errors(pipeline, sent),
        *_revision_errors(pipeline, scenario),
    ]


def open_errors(
    pipeline: Pipeline, scenario: Scenario, sent: list[Record], closed_to: int | None, *, hops: bool
) -> list[str]:
    """List the differences of a running pipeline below the watermark `closed_to`."""
    expected = expected_of(sent, scenario)
    return [
        *differences(pipeline, expected, ticks=False, closed_to=closed_to if closed_to is not None else -1),
        *(_hop_errors(pipeline, expected) if hops else ()),
        *_dead_letter_errors(pipeline, sent),
        *_revision_errors(pipeline, scenario),
    ]


def _revision_errors(pipeline: Pipeline, scenario: Scenario) -> list[str]:
    """Return results that `emit: final` wrote more than once although no partition can be idle."""
    if scenario.emit != "final" or scenario.idle_timeout_s is not None:
        return []
    results, _ = pipeline.results()
    again = [entry for entry in results.values() if entry["revision"]]
    return [f"aggregates: {entry} is final and was written before (one of {len(again)})" for entry in again[:5]]


def _hop_errors(pipeline: Pipeline, expected: Truth) -> list[str]:
    found = {topic: pipeline.tuples(topic) for topic in ("tuples", "worker-input")}
    return [
        f"{topic}: holds {count} tuples, should hold {expected.tuples}"
        for topic, count in found.items()
        if count != expected.tuples
    ]


def _dead_letter_errors(pipeline: Pipeline, sent: list[Record]) -> list[str]:
    wanted = {(at.partition, at.offset): (at.value, INVALID[at.value]) for at in sent if at.value in INVALID}
    found: dict[tuple[int, int], tuple[bytes | None, str]] = {}
    problems = []
    for dead_letter in pipeline.read("dead-letters"):
        where = {name: dead_letter.headers[COORDINATES + name].decode() for name in ("partition", "offset", "reason")}
        at = (int(where["partition"]), int(where["offset"]))
        problems += [f"dead-letters: {at} is there twice"] if at in found else []
        found[at] = (dead_letter.value, where["reason"])
    unlike = sorted(at for at in found.keys() | wanted.keys() if found.get(at) != wanted.get(at))
    return [
        *problems[:5],
        *(f"dead-letters: {at} is {found.get(at)}, should be {wanted.get(at)}" for at in unlike[:5]),
    ]
