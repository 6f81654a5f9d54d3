"""The job of `skewless plan`: runs each grouping over the tuples of a topic, and recommends one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.lab.simulation.candidate import SimulationConfig
from skewless.lab.simulation.candidate_shards import Candidates, Shard
from skewless.lab.simulation.planning import planning, require_tuples
from skewless.lab.simulation.recommend import Demand
from skewless.lab.simulation.tuple_blocks import Block, BlockBuilder, ReadPlan, StreamTotals
from skewless.spark import kafka_source
from skewless.spark.record_columns import record_columns

BLOCKS_PER_BATCH = 64
"""Rows that Spark passes to Python at once. A block of 20,000 tuples has about 100 kB."""
_BATCH_OPTION = "spark.sql.execution.arrow.maxRecordsPerBatch"
BLOCKS = "partition int, progress double, block binary, tuples long, late long, bad long, first_ms long, last_ms long"
"""Columns of `Block`."""
_BLOCK_TYPES = (pa.int32(), pa.float64(), pa.binary(), *([pa.int64()] * 5))
RESULTS = "shard int, candidate_json string"
_INPUTS = ("shard", "partition", "block")


def blocks_of(records: DataFrame, read_plan: ReadPlan) -> DataFrame:
    """Parse records of Spark's Kafka source into blocks of tuples. Each task must read its part in offset order."""
    columns = kafka_source.of_topic(records, read_plan.splitter)
    return columns.mapInArrow(partial(to_blocks, read_plan=read_plan), BLOCKS)


def to_blocks(batches: Iterator[pa.RecordBatch], read_plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Convert records (see `kafka_source`), which are in the order of their source partition, to rows of blocks."""
    builder = BlockBuilder(read_plan)
    for batch in batches:
        row_partitions = batch["source_partition"].to_numpy()
        for number in np.unique(row_partitions).tolist():
            in_partition = row_partitions == number
            rows = batch if in_partition.all() else batch.filter(pa.array(in_partition))
            yield from map(_row, builder.add(number, rows["offset"].to_numpy(), record_columns(rows, number)))
    yield from map(_row, builder.finish())


def _row(block: Block) -> pa.RecordBatch:
    columns = (pa.array([value], type_) for value, type_ in zip(block, _BLOCK_TYPES, strict=True))
    return pa.record_batch(list(columns), names=list(Block._fields))


def run_shards(
    batches: Iterator[pa.RecordBatch], shards: Sequence[Sequence[tuple[str, int]]], setup: SimulationConfig
) -> Iterator[pa.RecordBatch]:
    """Run the candidates of a task's shards over their blocks (shard, partition, block), in their order."""
    running: dict[int, Shard] = {}
    for batch in batches:
        for number, partition, block in zip(*(batch[name].to_pylist() for name in _INPUTS), strict=True):
            if number not in running:
                running[number] = Shard(shards[number], setup)
            running[number].add(partition, block)
    for number, shard in running.items():
        measures = [msgspec.json.encode(candidate).decode() for candidate in shard.measures()]
        numbers = pa.array([number] * len(measures), pa.int32())
        yield pa.record_batch({"shard": numbers, "candidate_json": pa.array(measures)})


def stream_totals(blocks: DataFrame) -> StreamTotals:
    """Return the totals of the blocks: tuples, late tuples, invalid records, first and last event time."""
    row = blocks.agg(
        *(F.sum(name).alias(name) for name in ("tuples", "late", "bad")),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    ).first()
    values: StreamTotals = {name: value or 0 for name, value in row.asDict().items()}  # type: ignore[assignment]  # Spark's rows have no types
    return values


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once. Works with Spark Connect too, which has no SparkContext."""
    return int(spark.range(10_000).select(F.spark_partition_id()).distinct().count())


def simulate(spark: SparkSession, blocks: DataFrame, candidates: Candidates) -> list[dict[str, Any]]:
    """Run all candidates over the blocks, one task per shard, and return their measures.

    Source partitions are interleaved by progress, as routers read them.
    """
    shards = candidates.shards(parallelism(spark))
    blocks_by_shard = blocks.select("partition", "progress", "block").withColumn(
        "shard", F.explode(F.sequence(F.lit(0), F.lit(len(shards) - 1)))
    )
    ordered = blocks_by_shard.repartitionById(len(shards), "shard").sortWithinPartitions("progress", "partition")
    run = partial(run_shards, shards=shards, setup=candidates.setup)
    previous_batch_size = spark.conf.get(_BATCH_OPTION)
    spark.conf.set(_BATCH_OPTION, BLOCKS_PER_BATCH)
    try:
        rows = ordered.select("shard", "partition", "block").mapInArrow(run, RESULTS).collect()
    finally:
        spark.conf.set(_BATCH_OPTION, str(previous_batch_size))
    measures: Iterable[dict[str, Any]] = (msgspec.json.decode(row.candidate_json) for row in rows)
    order = {pair: index for index, pair in enumerate(product(candidates.groupings, candidates.workers))}
    return sorted(measures, key=lambda candidate: order[candidate["grouping"], candidate["workers"]])


def plan(
    spark: SparkSession,
    records: DataFrame,
    read_plan: ReadPlan,
    candidates: Candidates,
    demand: Demand,
) -> dict[str, Any]:
    """Return the plan for a topic as a JSON object, given its records as rows of Spark's Kafka source.

    Raises CheckFailedError if no record contains a tuple.
    """
    blocks = blocks_of(records, read_plan).persist()
    stream = stream_totals(blocks)
    require_tuples(stream)
    measures = simulate(spark, blocks, candidates)
    blocks.unpersist()
    return planning(stream, measures, demand)
