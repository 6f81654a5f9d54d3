"""The job of `skewless plan`: runs each grouping over the tuples of a topic, and recommends one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.errors import CheckFailedError
from skewless.spark import candidate_shards, kafka_source, tuple_blocks
from skewless.spark.recommend import Demand, recommend

BLOCKS_PER_BATCH = 64
"""Rows that Spark passes to Python at once. A block of 20,000 tuples has about 100 kB."""
_BATCH_OPTION = "spark.sql.execution.arrow.maxRecordsPerBatch"


def blocks_of(records: DataFrame, read_plan: tuple_blocks.ReadPlan) -> DataFrame:
    """Parse records of Spark's Kafka source into blocks of tuples. Each task must read its part in offset order."""
    columns = kafka_source.of_topic(records, read_plan.splitter)
    return columns.mapInArrow(partial(tuple_blocks.blocks, read_plan=read_plan), tuple_blocks.BLOCKS)


def stream_totals(blocks: DataFrame) -> dict[str, Any]:
    """Return the totals of the blocks: tuples, late tuples, invalid records, first and last event time."""
    row = blocks.agg(
        *(F.sum(name).alias(name) for name in ("tuples", "late", "bad")),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    ).first()
    totals: dict[str, Any] = row.asDict()
    return {name: value or 0 for name, value in totals.items()}


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once. Works with Spark Connect too, which has no SparkContext."""
    return int(spark.range(10_000).select(F.spark_partition_id()).distinct().count())


def simulate(spark: SparkSession, blocks: DataFrame, candidates: candidate_shards.Candidates) -> list[dict[str, Any]]:
    """Run all candidates over the blocks, one task per shard, and return their measures.

    Source partitions are interleaved by progress, as routers read them.
    """
    shards = candidates.shards(parallelism(spark))
    blocks_by_shard = blocks.select("partition", "progress", "block").withColumn(
        "shard", F.explode(F.sequence(F.lit(0), F.lit(len(shards) - 1)))
    )
    ordered = blocks_by_shard.repartitionById(len(shards), "shard").sortWithinPartitions("progress", "partition")
    run = partial(candidate_shards.run, shards=shards, setup=candidates.setup)
    previous_batch_size = spark.conf.get(_BATCH_OPTION)
    spark.conf.set(_BATCH_OPTION, BLOCKS_PER_BATCH)
    try:
        rows = ordered.select("shard", "partition", "block").mapInArrow(run, candidate_shards.RESULTS).collect()
    finally:
        spark.conf.set(_BATCH_OPTION, str(previous_batch_size))
    measures: Iterable[dict[str, Any]] = (msgspec.json.decode(row.candidate_json) for row in rows)
    order = {pair: index for index, pair in enumerate(product(candidates.groupings, candidates.workers))}
    return sorted(measures, key=lambda candidate: order[candidate["grouping"], candidate["workers"]])


def plan(
    spark: SparkSession,
    records: DataFrame,
    read_plan: tuple_blocks.ReadPlan,
    candidates: candidate_shards.Candidates,
    demand: Demand,
) -> dict[str, Any]:
    """Return the plan for a topic as a JSON object, given its records as rows of Spark's Kafka source.

    Raises CheckFailedError if no record contains a tuple.
    """
    blocks = blocks_of(records, read_plan).persist()
    stream = stream_totals(blocks)
    if not stream["tuples"]:
        raise CheckFailedError(_no_tuples_text(stream))
    measures = simulate(spark, blocks, candidates)
    blocks.unpersist()
    duration_s = (stream["last_ms"] - stream["first_ms"]) / 1000
    stream |= {name: measures[0][name] for name in ("keys", "p1")}
    stream["tuples_per_s"] = stream["tuples"] / duration_s if duration_s > 0 else None
    demand = demand.of(stream["tuples_per_s"])
    return {"stream": stream, **demand.to_json(), **recommend(measures, demand)}


def _no_tuples_text(stream: Mapping[str, Any]) -> str:
    if stream["bad"]:
        return (
            f"none of {stream['bad']:,} records can be read: check splitter, or without a pipeline that keys are UTF-8"
        )
    return "the records that were read contain no tuples: check the topic's name, or read more of it (--sample)"
