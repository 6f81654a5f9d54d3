"""Reads the results of a pipeline from its topics."""

from __future__ import annotations

from collections import Counter

import msgspec

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import CheckFailedError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import read_compacted
from skewless.operations.status import last_tick
from skewless.wire.distribution import TickDistribution
from skewless.wire.window_counts import CountRecord, WindowCounts


def read_counts(settings: PipelineSettings) -> WindowCounts:
    """Return the count of every window and key."""
    decode = msgspec.json.Decoder(CountRecord).decode
    counts: WindowCounts = Counter()
    for partition in range(settings.topics.aggregator_partitions):
        for _, value in read_compacted(settings.kafka, settings.topic("aggregates"), partition):
            aggregate = decode(value)
            counts[aggregate.window_start, aggregate.key] += aggregate.tuples
    return counts


def read_distribution(settings: PipelineSettings) -> TickDistribution:
    """Return the distribution of the last tick. Its `run` is the distribution of the whole run."""
    tick = last_tick(settings, OffsetReader(settings.kafka))
    if tick is None:
        raise CheckFailedError(
            f"topic {settings.topic('distribution')} is empty: the observer has not written a tick; see its log"
        )
    return tick


def read_processing_s(settings: PipelineSettings) -> float:
    """Return the wall-clock seconds from the first record of `tuples` to the commit of the last one of `partials`."""
    offsets = OffsetReader(settings.kafka)
    tuples, partials = (offsets.written(settings.topic(topic)) for topic in ("tuples", "partials"))
    return (partials[1] - tuples[0]) / 1000 if tuples and partials else 0.0
