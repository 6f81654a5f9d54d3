"""Reads the results of a pipeline from its topics."""

from __future__ import annotations

from collections import Counter

import msgspec

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import CheckFailedError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import read_compacted
from skewless.wire.distribution import TickDistribution
from skewless.wire.window_counts import CountRecord, WindowCounts


def read_counts(settings: PipelineSettings) -> WindowCounts:
    """Return the count of every window and key."""
    decode = msgspec.json.Decoder(CountRecord).decode
    counts: WindowCounts = Counter()
    for partition in range(settings.topics.aggregator_partitions):
        for _, value in _read(settings, "aggregates", partition):
            aggregate = decode(value)
            counts[aggregate.window_start, aggregate.key] += aggregate.tuples
    return counts


def read_distribution(settings: PipelineSettings) -> TickDistribution:
    """Return the distribution of the last tick. Its `run` is the distribution of the whole run."""
    records = _read(settings, "distribution", 0)
    if not records:
        raise CheckFailedError(
            f"topic {settings.topic('distribution')} is empty: the observer has not written a tick; see its log"
        )
    ticks = (msgspec.json.decode(value, type=TickDistribution) for _, value in records)
    return max(ticks, key=lambda tick: tick.tick_end)


def read_processing_s(settings: PipelineSettings) -> float:
    """Return the wall-clock seconds from the first record of `tuples` to the commit of the last one of `partials`."""
    offsets = OffsetReader(settings.kafka)
    tuples, partials = (offsets.written(settings.topic(topic)) for topic in ("tuples", "partials"))
    return (partials[1] - tuples[0]) / 1000 if tuples and partials else 0.0


def _read(settings: PipelineSettings, topic: str, partition: int) -> list[tuple[bytes, bytes]]:
    """Return the latest (key, value) of every key of a partition."""
    return read_compacted(settings.kafka, settings.topic(topic), partition)
