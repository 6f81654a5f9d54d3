"""Blocks of a shuffle partition reach the partition of Spark with the same number, in each version of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skewless.spark import evaluate_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("partitions", [1, 32])
def test_shuffled_block_of_each_shuffle_partition_is_in_the_partition_of_its_number(
    spark: SparkSession, partitions: int
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    blocks = spark.createDataFrame([(number,) for number in range(partitions)], "shuffle_partition int")
    shuffled = evaluate_job._shuffled(blocks, partitions).select("shuffle_partition", F.spark_partition_id())
    assert sorted(map(tuple, shuffled.collect())) == [(number, number) for number in range(partitions)]
