"""What a pipeline has written, read back from its topics."""

from __future__ import annotations

from collections import Counter

import msgspec

from skewless.demo.expected import Cells
from skewless.errors import CheckFailedError
from skewless.public_records import TickDistribution
from skewless.settings import PipelineSettings
from skewless.transport.positions import Positions
from skewless.transport.reader import read_latest


class Aggregate(msgspec.Struct):
    """What the demo needs of a record of topic `aggregates`."""

    key: str
    window_start: int
    count: int


def read_counts(settings: PipelineSettings) -> Cells:
    """Count of every window and key."""
    decode = msgspec.json.Decoder(Aggregate).decode
    cells: Cells = Counter()
    for partition in range(settings.topics.aggregator_partitions):
        for _, value in _latest(settings, "aggregates", partition):
            fact = decode(value)
            cells[fact.window_start, fact.key] += fact.count
    return cells


def read_distribution(settings: PipelineSettings) -> TickDistribution:
    """Distribution of the last tick; its `run` is that of the whole run."""
    told = _latest(settings, "distribution", 0)
    if not told:
        raise CheckFailedError(f"{settings.topic('distribution')} is empty: the observer told nothing")
    return max((msgspec.json.decode(value, type=TickDistribution) for _, value in told), key=lambda tick: tick.tick_end)


def read_seconds(settings: PipelineSettings) -> float:
    """Wall-clock seconds from the first record of `tuples` to the commit of the last one of `partials`."""
    positions = Positions(settings.kafka)
    tuples, partials = (positions.written(settings.topic(topic)) for topic in ("tuples", "partials"))
    return (partials[1] - tuples[0]) / 1000 if tuples and partials else 0.0


def _latest(settings: PipelineSettings, topic: str, partition: int) -> list[tuple[bytes, bytes]]:
    return read_latest(settings.kafka, settings.topic(topic), partition, lambda _key: True)
