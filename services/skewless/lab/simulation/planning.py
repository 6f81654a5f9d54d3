"""Plans for a topic: runs each grouping over its tuples, and recommends one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping import GroupingOptions
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.errors import CheckFailedError
from skewless.kafka.consumer.offsets import OffsetReader, newest_fraction, offset_count
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.lab.simulation.recommend import Demand, recommend
from skewless.lab.simulation.simulation import Simulation, SimulationConfig
from skewless.lab.simulation.tuple_blocks import Block, BlockBuilder, ReadPlan, decode_block
from skewless.wire.topic_partition import TopicPartition

LOCAL_RECORDS = 5_000_000
"""Largest sample that is read in one process. Its tuples stay in memory."""
QUANTILES = (np.arange(100) + 0.5) / 100
"""Quantiles of the event times of a block, from which those of the stream are computed."""
TRIMMED = 0.01
"""Share of the smallest and of the largest event times that the rate leaves out. A few wrong ones do not change it."""


def simulation_of(
    settings: PipelineSettings, groupings: Iterable[str], workers: Iterable[int], routers: int | None
) -> Simulation:
    """Return the simulation of all candidates. `routers` is by default the pipeline's number of them."""
    chosen = settings.router.model_dump(include=set(GroupingOptions.model_fields))
    # Wall-clock time has no meaning for recorded tuples, so the groupings use event time.
    options = GroupingOptions.model_validate(chosen | {"clock": "event"})
    config = SimulationConfig(
        options,
        routers or max(1, settings.replicas.of("router")),
        settings.aggregator.window_ms,
        longest_pane_ms=settings.pane_ms,
    )
    return Simulation(product(groupings, sorted(workers)), config)


def sample_ranges(settings: PipelineSettings, limit: int | None) -> dict[int, tuple[int, int]]:
    """Return first offset and end offset of the newest records by partition: the same fraction of each partition.

    Raises CheckFailedError if the topic is empty.
    """
    topic = settings.topic("source")
    ranges = OffsetReader(settings.kafka).ranges(topic)
    if not offset_count(ranges):
        raise CheckFailedError(f"topic {topic} is empty: it has no records to plan with")
    return ranges if limit is None else newest_fraction(ranges, limit)


def read_plan_of(
    settings: PipelineSettings, ranges: dict[int, tuple[int, int]], *, parsed: bool, now_ms: int
) -> ReadPlan:
    """Return how to read the records. If they are not `parsed` as a pipeline parses them, none of them is late."""
    rules = settings.event_time_rules()
    if not parsed:
        rules = replace(rules, lateness_ms=MAX_WATERMARK)
    return ReadPlan(settings.splitter, rules, ranges, now=now_ms)


def document(topic: str, read_plan: ReadPlan, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan with the topic and the offsets that were read."""
    offsets = {str(partition): list(offset_range) for partition, offset_range in read_plan.offset_ranges.items()}
    return {"topic": topic, "offsets": offsets, **found}


def read_blocks(
    kafka: KafkaSettings, topic: str, read_plan: ReadPlan, on_progress: Callable[[float, int], None]
) -> list[Block]:
    """Return the tuples of a topic, in the order in which routers read them: source partitions by their progress.

    The order does not depend on the order in which records of several partitions arrive.
    """
    builder, records = BlockBuilder(read_plan), 0
    blocks: list[Block] = []
    for partition, messages in read_ranges(kafka, topic, dict(read_plan.offset_ranges)):
        batch = MessageBatch(TopicPartition(topic, partition), 0, messages)
        blocks += builder.add(partition, np.array(batch.offsets, dtype=np.int64), batch)
        records += len(messages)
        on_progress(time.monotonic(), records)
    blocks += builder.finish()
    return sorted(blocks, key=lambda block: (block.progress, block.partition))


def plan(
    blocks: Iterable[Block],
    simulation: Simulation,
    demand: Demand,
    on_progress: Callable[[float, int], None] = lambda _now, _tuples: None,
) -> dict[str, Any]:
    """Run all candidates over the blocks. Returns the plan as JSON: stream, demand, candidates, recommendation.

    Raises CheckFailedError if no record that was read contains a tuple.
    """
    quantiles: list[NDArray[np.float64]] = []
    sizes: list[int] = []
    ends_ms: list[int] = []
    partitions: set[int] = set()
    tuples = late = bad = 0
    for block in blocks:
        if block.tuples:
            keys, times = decode_block(block.block)
            simulation.add(keys, times, router=block.partition)
            quantiles.append(np.quantile(times, QUANTILES))
            sizes.append(block.tuples)
            partitions.add(block.partition)
            ends_ms += (int(times.min()), int(times.max()))
        tuples, late, bad = tuples + block.tuples, late + block.late, bad + block.bad
        on_progress(time.monotonic(), tuples)
    if not tuples and bad:
        raise CheckFailedError(
            f"none of {bad:,} records can be read: check splitter and event_time.max_ahead_s (`skewless inspect` "
            "prints the reasons); without a pipeline file, records need a key in UTF-8 (`skewless init` writes a file)"
        )
    if not tuples:
        raise CheckFailedError(
            "the records that were read contain no tuples: check the topic's name, or read a larger sample"
        )
    measures = simulation.facts()
    tuples_per_s = mean_rate(quantiles, sizes)
    stream = {"tuples": tuples, "late": late, "bad": bad, "first_ms": min(ends_ms), "last_ms": max(ends_ms)}
    stream_facts = {**stream, **{name: measures[0][name] for name in ("keys", "p1")}, "tuples_per_s": tuples_per_s}
    demand = demand.of(tuples_per_s, len(partitions))
    return {"stream": stream_facts, **demand.to_json(), **recommend(measures, demand)}


def mean_rate(quantiles: Sequence[NDArray[np.float64]], sizes: Sequence[int]) -> float | None:
    """Return the tuples per second of event time, from the QUANTILES (ms) and the number of the tuples of each block.

    None if all times are equal, except the TRIMMED ones.
    """
    times, weights = np.concatenate(quantiles), np.repeat(sizes, len(QUANTILES)) / len(QUANTILES)
    order, tuples = np.argsort(times), sum(sizes)
    ranks = np.cumsum(weights[order]) - weights[order] / 2
    first, last = np.interp([TRIMMED * tuples, (1 - TRIMMED) * tuples], ranks, times[order]).tolist()
    return (1 - 2 * TRIMMED) * tuples * 1000 / (last - first) if last > first else None
