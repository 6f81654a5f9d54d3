"""The check itself: where in the source the records go, what must come out, and when it has."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from skewless.errors import CheckFailedError, ConfigurationError
from skewless.flow_check import records
from skewless.settings import PipelineSettings
from skewless.splitter.formats import Format, create_format
from skewless.transport.admin import Admin
from skewless.transport.sender import Sender
from skewless.transport.tail import Tail

LOOKED_AT = 1_000
"""Newest records of each source partition whose event times are read."""
OLDEST_MS = 86_400_000
"""Event time where nothing was ever written: a Kafka record cannot say 0."""
POLL_S = 0.2
SETTLED_S = 3.0
"""Counts must stay right for so long: what is counted twice would come after what is counted once."""

Cells = Counter[tuple[int, str]]
"""Tuples by (start of the window in ms, key)."""


class Result(msgspec.Struct):
    """What matters of a record of the topic `aggregates`."""

    key: str
    window_start: int
    count: int


@dataclass(frozen=True)
class Passed:
    """A check that went well."""

    records: int
    cells: int
    partition: int
    seconds: float
    """From the first record sent to the last count that was right."""


def run(settings: PipelineSettings, count: int, prefix: str, timeout_s: float) -> Passed:
    """Send `count` records whose keys begin with `prefix`, and wait until all their counts are right and stay so.

    Raises CheckFailedError with the differences after `timeout_s`, ConfigurationError for a pipeline that cannot be
    checked so, UnreachableError without a broker.
    """
    if "count" not in settings.aggregator.aggregates:
        raise ConfigurationError("aggregator.aggregates: has no count, which is what this checks")
    partitions = Admin(settings.kafka).partition_counts()
    read = create_format(settings.splitter)
    topic = settings.source.topic
    with Tail(settings.kafka, topic, _known(partitions, topic), LOOKED_AT) as tail:
        partition, newest = _place(tail, read, settings.splitter.time.earliest)
    values, time_ms = records.make(settings.splitter, records.keys(count, prefix), newest)
    expected = _expected(read, values, time_ms, settings.aggregator.window_ms)
    _refuse(expected, values, prefix)
    results = settings.topic("aggregates")
    with Tail(settings.kafka, results, _known(partitions, results)) as tail:
        begun = time.monotonic()
        sender = Sender(settings.kafka, topic, 1, first=partition)
        sender.send(values, [time_ms] * count)
        sender.flush()
        seconds = _wait(tail, expected, prefix, begun, timeout_s)
    return Passed(count, len(expected), partition, seconds)


def _known(partitions: Mapping[str, int], topic: str) -> int:
    if topic not in partitions:
        raise CheckFailedError(f"topic {topic} does not exist, or this user may not see it")
    return partitions[topic]


def _place(tail: Tail, read: Format, earliest: int) -> tuple[int, int]:
    """Find the partition whose event time has come furthest, and that time; now, where no records are left.

    Older records would be late there, and newer ones would make those late that others send: in a topic that was never
    written to ours are as old as they may be.
    """
    if tail.untouched:
        return 0, max(OLDEST_MS, earliest)
    found = [(partition, _times(read, entries)) for partition, entries in tail.read_to_end().items()]
    furthest = [(max(times), partition) for partition, times in found if times]
    if not furthest:
        return 0, round(time.time() * 1000)
    newest, partition = max(furthest)
    return partition, newest


def _times(read: Format, entries: Sequence[tuple[bytes | None, int]]) -> list[int]:
    parsed = read.parse([value for value, _ in entries], np.array([at for _, at in entries], dtype=np.int64))
    bad = {index for index, _ in parsed.bad}
    return [int(at) for index, at in enumerate(parsed.times.tolist()) if index not in bad]


def _expected(read: Format, values: Sequence[bytes], time_ms: int, window_ms: int) -> Cells:
    """Count what the splitter makes of the records, by its own reader."""
    parsed = read.parse(values, np.full(len(values), time_ms, dtype=np.int64))
    windows = parsed.times[parsed.records] // window_ms * window_ms
    return Counter(zip(windows.tolist(), parsed.keys, strict=True))


def _refuse(expected: Cells, values: Sequence[bytes], prefix: str) -> None:
    """Refuse settings under which the keys do not come out as they went in: others would be counted with them."""
    if not expected or any(not key.startswith(prefix) for _, key in expected):
        raise ConfigurationError(
            f"splitter: makes something else than the key of a record such as {values[0].decode()!r}; "
            "this pipeline cannot be checked with records that are made up"
        )


def _wait(tail: Tail, expected: Cells, prefix: str, begun: float, timeout_s: float) -> float:
    decode = msgspec.json.Decoder(Result).decode
    found: Cells = Counter()
    right_since: float | None = None
    while time.monotonic() < begun + timeout_s:
        for value in tail.poll(POLL_S):
            if value is not None and prefix.encode() in value:
                fact = decode(value)
                found[fact.window_start, fact.key] = fact.count
        if found != expected:
            right_since = None
        elif right_since is None:
            right_since = time.monotonic()
        elif time.monotonic() > right_since + SETTLED_S:
            return right_since - begun
    raise CheckFailedError(
        "\n  ".join([f"after {timeout_s:g} s counts are not right:", *_differences(expected, found)])
    )


def _differences(expected: Cells, found: Cells) -> list[str]:
    wrong = sorted(cell for cell in expected | found if expected[cell] != found[cell])
    lines = [f"window {at}, key {key}: {found[at, key]:,} instead of {expected[at, key]:,}" for at, key in wrong]
    return [*lines[:5], *([f"and {len(lines) - 5} more"] if len(lines) > 5 else [])]
