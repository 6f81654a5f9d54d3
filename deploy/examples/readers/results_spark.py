"""Print the results of a pipeline with Spark: spark-submit --packages CONNECTOR results_spark.py BOOTSTRAP PIPELINE.

CONNECTOR is org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION with the version of your Spark.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, max_by, struct, to_json

RESULT = "key string, window_start long, window_end long, count long, sum decimal(38, 9), revision long"


def results(spark: SparkSession, bootstrap: str, pipeline: str) -> DataFrame:
    """Read `aggregates`. For each key and window, the last record is valid. Without a value it deletes the result."""
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", f"{pipeline}.aggregates")
        .load()
    )
    latest = records.groupBy("key").agg(max_by("value", "offset").alias("value")).where("value is not null")
    return latest.select(from_json(col("value").cast("string"), RESULT).alias("result")).select("result.*")


def main(bootstrap: str, pipeline: str) -> None:
    """Print a line of JSON per result."""
    spark = SparkSession.builder.appName("results").getOrCreate()
    for (line,) in results(spark, bootstrap, pipeline).select(to_json(struct("*"))).collect():
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
