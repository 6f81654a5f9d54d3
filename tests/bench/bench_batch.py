"""Records per CPU-second of `skewless batch`, compared with a plain windowed count in PySpark of the same topic.

JSON records (Zipf 1.1 over 50,000 keys) in 4 partitions of an embedded broker, counted by windows of 60 s and key, and
written as Parquet. CPU time and memory are those of all processes of a run: Python, Java, and Spark's Python workers.
The plain count (from_json, window, groupBy, count) ignores lateness. It runs with Spark's default options for Java and
with the options of `skewless batch`. The systems take turns. One JSON line per run, and one with the ratio.

    PYTHONPATH=tests python tests/bench/bench_batch.py [--records 2000000,10000000] [--repeats 1]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from bench.usage import measured, produced
from skewless.lab.local.broker import Broker

WINDOW_S = 60
SYSTEMS = ("skewless batch", "plain", "plain, same Java options")


def plain(bootstrap: str, topic: str, out: str, *, same: bool) -> None:
    """Count with PySpark alone, as a user would write the job."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    from skewless.lab.local.jars import ensure
    from skewless.spark.spark_session import SparkOptions

    options = SparkOptions("local[2]", jars=[str(jar) for jar in ensure("spark")], memory="1g").all()
    if not same:
        options.pop("spark.driver.extraJavaOptions")
    builder = SparkSession.builder.appName("plain")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    records = spark.read.format("kafka").options(**source).load()
    entry = F.from_json(F.col("value").cast("string"), "key string, time bigint").alias("fact")
    window = F.window(F.timestamp_millis("fact.time"), f"{WINDOW_S} seconds")
    counted = records.select(entry).groupBy(window.alias("window"), "fact.key").count()
    counted.write.parquet(out)
    spark.stop()


def pipeline(bootstrap: str, topic: str) -> dict[str, Any]:
    return {
        "name": "bench",
        "source": {"topic": topic},
        "kafka": {"bootstrap_servers": bootstrap},
        "splitter": {"format": "json", "key": {"field": "key"}, "time": {"field": "time"}},
        "event_time": {"allowed_lateness_s": 5},
        "aggregator": {"window_s": WINDOW_S, "aggregates": ["count"]},
    }


def arguments_of(system: str, bootstrap: str, topic: str, folder: Path) -> list[str]:
    out = str(folder / "out")
    if system == "skewless batch":
        file = folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(pipeline(bootstrap, topic)))
        spark = ("--master", "local[2]", "--driver-memory", "1g")
        return ["-m", "skewless", "batch", "-f", str(file), "--out", out, *spark]
    return [__file__, "--plain", "same" if "same" in system else "own", bootstrap, topic, out]


def total(folder: Path) -> int:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    return int(pc.sum(pq.read_table(folder / "out", columns=["count"])["count"]).as_py())


def main() -> None:
    if sys.argv[1:2] == ["--plain"]:
        plain(*sys.argv[3:], same=sys.argv[2] == "same")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", default="2000000,10000000")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--bootstrap-servers", help="A running broker, which keeps its topics bench-N.")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        bootstrap = options.bootstrap_servers or stack.enter_context(Broker()).bootstrap
        for records in map(int, options.records.split(",")):
            compare(bootstrap, records, options.repeats)


def compare(bootstrap: str, records: int, repeats: int) -> None:
    topic = f"bench-{records}"
    produced(bootstrap, topic, records)
    cpu: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    for _ in range(repeats):
        for system in SYSTEMS:
            with tempfile.TemporaryDirectory() as folder:
                usage = measured(arguments_of(system, bootstrap, topic, Path(folder)))
                counted = total(Path(folder))
            cpu[system].append(usage["cpu_s"])
            line = {"bench": "batch", "system": system, "records": records, "counted": counted}
            print(json.dumps(line | {"records_per_cpu_s": round(records / usage["cpu_s"])} | usage), flush=True)
    ours, *others = (statistics.median(cpu[system]) for system in SYSTEMS)
    line = {"bench": "batch", "records": records, "cost_beside_plain": round(ours / min(others), 3)}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
