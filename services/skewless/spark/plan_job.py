"""The job of `skewless plan`: reads a topic as blocks of tuples, for the simulation of the groupings in the driver."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from skewless.lab.simulation.planning import plan as planning_of
from skewless.lab.simulation.recommend import Demand
from skewless.lab.simulation.simulation import Simulation
from skewless.lab.simulation.tuple_blocks import Block, BlockBuilder, ReadPlan
from skewless.spark import kafka_source, user_module
from skewless.spark.record_columns import record_columns

BLOCKS = pa.schema(zip(Block._fields, (pa.int32(), pa.float64(), pa.binary(), *([pa.int64()] * 3)), strict=True))


def blocks_of(records: DataFrame, read_plan: ReadPlan) -> DataFrame:
    """Parse records of Spark's Kafka source into blocks of tuples. Each task must read its part in offset order."""
    user_module.send(records.sparkSession, read_plan.splitter)
    columns = kafka_source.of_topic(records, read_plan.splitter)
    return columns.mapInArrow(partial(to_blocks, read_plan=read_plan), from_arrow_schema(BLOCKS))


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
    return pa.RecordBatch.from_pylist([block._asdict()], schema=BLOCKS)


def plan(records: DataFrame, read_plan: ReadPlan, simulation: Simulation, demand: Demand) -> dict[str, Any]:
    """Return the plan for a topic as a JSON object, given its records as rows of Spark's Kafka source.

    Spark parses the records to blocks and sorts these, so that source partitions are interleaved by progress, as
    routers read them. The driver runs the candidates over them. It holds the blocks of one partition of Spark at once.
    Raises CheckFailedError if no record contains a tuple.
    """
    blocks = blocks_of(records, read_plan).persist()
    rows = blocks.orderBy("progress", "partition").toLocalIterator(prefetchPartitions=True)
    planning = planning_of((Block(*row) for row in rows), simulation, demand)
    blocks.unpersist()
    return planning
