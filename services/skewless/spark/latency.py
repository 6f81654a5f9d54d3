"""How long results took: from the last tuple of a (window, key) to the commit that made its result complete.

Start: the largest Kafka timestamp of the records of `tuples` that hold tuples of this window and key: when the splitter
wrote them. End: the Kafka timestamp of the first record of `windows` with which the aggregator's state had all of them;
with `emit: updates` the result itself is in the same transaction, with `emit: final` it follows when the window closes.
Not included: the time that records waited in the source topic, and until a transaction was committed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

QUANTILES = (0.5, 0.95, 0.99)


def completed(chunks: DataFrame) -> DataFrame:
    """When each (window, key) was complete; takes rows of the aggregator's changelog.

    All of them are in one partition. A chunk 0 that is not a key's first starts the count anew: the chunks of its
    window were written again as one.
    """
    log = Window.partitionBy("window", "key").orderBy("offset")
    rewritten = chunks.withColumn("life", F.sum((F.col("number") == 0).cast("int")).over(log))
    life = Window.partitionBy("window", "key", "life").orderBy("offset")
    counted = rewritten.withColumn("so_far", F.sum("tuples").over(life))
    final = Window.partitionBy("window", "key")
    last = counted.withColumn("final", F.max_by("so_far", "offset").over(final))
    return last.where("so_far = final").groupBy("window", "key").agg(F.min("at").alias("complete_at"))


def latencies(tuples: DataFrame, chunks: DataFrame) -> DataFrame:
    """Milliseconds of each (window, key); `tuples` are cells of topic `tuples`, whose buckets are windows."""
    sent = tuples.groupBy(F.col("bucket").alias("window"), "key").agg(F.max("at").alias("sent_at"))
    both = sent.join(completed(chunks), ["window", "key"])
    return both.select("window", "key", (F.col("complete_at") - F.col("sent_at")).alias("latency_ms"))


def quantiles(latencies: DataFrame) -> DataFrame:
    """Exact quantiles of the latencies in ms: of each window, and under window null of all."""
    wanted = F.array(*map(F.lit, QUANTILES))
    return latencies.rollup("window").agg(
        F.count("*").alias("results"),
        F.percentile("latency_ms", wanted).alias("quantiles"),
        F.max("latency_ms").alias("most"),
    )
