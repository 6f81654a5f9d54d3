"""Plans for a topic: runs each grouping over its tuples, and recommends one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from skewless.engine.message_batch import MessageBatch
from skewless.errors import CheckFailedError
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.lab.simulation.candidate_shards import Candidates, Shard
from skewless.lab.simulation.recommend import Demand, recommend
from skewless.lab.simulation.tuple_blocks import Block, BlockBuilder, ReadPlan, StreamTotals
from skewless.wire.topic_partition import TopicPartition


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


def measure(
    blocks: Sequence[Block], candidates: Candidates, on_progress: Callable[[float, int], None]
) -> list[Mapping[str, Any]]:
    """Run all candidates over the blocks and return their measures, by grouping and number of workers."""
    shard, tuples = Shard(list(product(candidates.groupings, candidates.workers)), candidates.setup), 0
    for block in blocks:
        shard.add(block.partition, block.block)
        tuples += block.tuples
        on_progress(time.monotonic(), tuples)
    return shard.measures()


def planning(stream: StreamTotals, measures: Sequence[Mapping[str, Any]], demand: Demand) -> dict[str, Any]:
    """Return the plan as a JSON object: the stream, the demand, the candidates, the recommendation."""
    duration_s = (stream["last_ms"] - stream["first_ms"]) / 1000
    tuples_per_s = stream["tuples"] / duration_s if duration_s > 0 else None
    described = {**stream, **{name: measures[0][name] for name in ("keys", "p1")}, "tuples_per_s": tuples_per_s}
    demand = demand.of(tuples_per_s)
    return {"stream": described, **demand.to_json(), **recommend(measures, demand)}


def require_tuples(stream: StreamTotals) -> None:
    """Raise CheckFailedError if no record that was read contains a tuple."""
    if stream["tuples"]:
        return
    if stream["bad"]:
        raise CheckFailedError(
            f"none of {stream['bad']:,} records can be read: check splitter; without a pipeline file, records need a "
            "key in UTF-8 (`skewless init` writes a file)"
        )
    raise CheckFailedError(
        "the records that were read contain no tuples: check the topic's name, or read more of it (--sample)"
    )
