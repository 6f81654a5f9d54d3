"""Print the results of a pipeline with Spark: spark-submit --packages CONNECTOR results_spark.py BOOTSTRAP PIPELINE.

CONNECTOR is org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION with the version of your Spark.
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, max_by, struct

FACT = "key string, window_start long, window_end long, count long, sum double, revision long"


def results(spark: SparkSession, bootstrap: str, pipeline: str) -> DataFrame:
    """Read `aggregates`; of each key of a window the record with the highest revision is the valid one."""
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", f"{pipeline}.aggregates")
        .load()
    )
    facts = records.select(from_json(col("value").cast("string"), FACT).alias("fact"))
    latest = max_by(col("fact"), col("fact.revision")).alias("fact")
    return facts.groupBy(struct("fact.window_start", "fact.key").alias("of")).agg(latest).select("fact.*")


def main(bootstrap: str, pipeline: str) -> None:
    """Print a line of JSON per result."""
    spark = SparkSession.builder.appName("results").getOrCreate()
    for row in results(spark, bootstrap, pipeline).collect():
        print(json.dumps(row.asDict()))


if __name__ == "__main__":
    main(*sys.argv[1:])
