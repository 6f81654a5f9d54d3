"""Blocks of a shuffle partition reach the partition of Spark with the same number, in each version of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skewless.spark.batch_pipeline import in_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("partitions", [1, 32])
def test_shuffled_block_of_each_shuffle_partition_is_in_the_partition_of_its_number(
    spark: SparkSession, partitions: int
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    blocks = spark.createDataFrame([(number,) for number in range(partitions)], "shuffle_partition int")
    moved = in_partitions(blocks, partitions, "shuffle_partition")
    shuffled = moved.select("shuffle_partition", F.spark_partition_id())
    assert sorted(map(tuple, shuffled.collect())) == [(number, number) for number in range(partitions)]
