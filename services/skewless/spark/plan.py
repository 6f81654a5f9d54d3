"""What each grouping would have done with a topic: candidates run on the executors, over the topic's own tuples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.errors import CheckFailedError
from skewless.spark import blocks, lanes
from skewless.spark.recommend import Demand, recommend

BLOCKS_PER_BATCH = 64
"""Rows that Spark hands to Python at once: a block of 20,000 tuples has some 100 kB."""
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


def blocks_of(records: DataFrame, reading: blocks.Reading) -> DataFrame:
    """Parse records of Kafka's source into blocks of tuples; each task must read its part in the order of offsets."""
    wanted = records.select("key", "value", "partition", "offset", F.unix_millis("timestamp").alias("at"))
    return wanted.mapInArrow(partial(blocks.blocks, reading=reading), blocks.BLOCKS)


def stream_facts(made: DataFrame) -> dict[str, Any]:
    """Sum up what was read."""
    row = made.agg(
        *(F.sum(name).alias(name) for name in ("tuples", "late", "bad")),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    ).first()
    facts: dict[str, Any] = row.asDict()
    return {name: value or 0 for name, value in facts.items()}


def parallelism(spark: SparkSession) -> int:
    """Tell how many tasks run at once; works through Spark Connect too."""
    return int(spark.range(10_000).select(F.spark_partition_id()).distinct().count())


def simulate(spark: SparkSession, made: DataFrame, candidates: lanes.Candidates) -> list[dict[str, Any]]:
    """Run all candidates over the blocks, each lane of them in a task of its own; returns their measures.

    Source partitions are interleaved as far as they have come, which is how routers read them.
    """
    dealt = candidates.lanes(parallelism(spark))
    numbered = made.select("partition", "progress", "block").withColumn(
        "lane", F.explode(F.sequence(F.lit(0), F.lit(len(dealt) - 1)))
    )
    ordered = numbered.repartitionById(len(dealt), "lane").sortWithinPartitions("progress", "partition")
    run = partial(lanes.run, lanes=dealt, setup=candidates.setup)
    before = spark.conf.get(_BATCH)
    spark.conf.set(_BATCH, BLOCKS_PER_BATCH)
    try:
        rows = ordered.select("lane", "partition", "block").mapInArrow(run, lanes.RESULTS).collect()
    finally:
        spark.conf.set(_BATCH, str(before))
    facts: Iterable[dict[str, Any]] = (msgspec.json.decode(row.facts) for row in rows)
    order = {pair: place for place, pair in enumerate(product(candidates.groupings, candidates.workers))}
    return sorted(facts, key=lambda each: order[each["grouping"], each["workers"]])


def plan(
    spark: SparkSession, records: DataFrame, reading: blocks.Reading, candidates: lanes.Candidates, demand: Demand
) -> dict[str, Any]:
    """Plan for a topic, given its records as Kafka's source gives them; the answer is one JSON object.

    Raises CheckFailedError when there are no tuples in the records.
    """
    made = blocks_of(records, reading).persist()
    stream = stream_facts(made)
    if not stream["tuples"]:
        raise CheckFailedError(_nothing(stream))
    found = simulate(spark, made, candidates)
    made.unpersist()
    span_s = (stream["last_ms"] - stream["first_ms"]) / 1000
    stream |= {name: found[0][name] for name in ("keys", "p1")}
    stream["tuples_per_s"] = stream["tuples"] / span_s if span_s > 0 else None
    demand = demand.of(stream["tuples_per_s"])
    return {"stream": stream, **demand.facts(), **recommend(found, demand)}


def _nothing(stream: Mapping[str, Any]) -> str:
    if stream["bad"]:
        return (
            f"none of {stream['bad']:,} records can be read: check splitter, or without a pipeline that keys are UTF-8"
        )
    return "there are no tuples in what was read: check the topic's name, or read more of it (--sample)"
