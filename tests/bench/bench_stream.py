"""Compares `skewless stream` with a plain query of Spark over the same records, and with the stages.

JSON records in 16 partitions of an embedded broker, counted and summed by windows of 60 s and key. In `hot` half of the
records have one key, `zipf` has the exponent 1.4, `uniform` has none; all over 50,000 keys. The plain query is
`from_json`, `withWatermark`, `groupBy(window, key)` and Spark's sink for Kafka, with 16 shuffle partitions. With
`--cost-ms` each tuple takes this time: `worker.cost` here, and a function after a shuffle by key there. `stages` is
`skewless up --drain`, `batch` is `skewless batch`. CPU time is that of all processes of a run, with their start. The
rate of queries is that of the micro-batches, without the start. One JSON line per run, with the load average before it.

    PYTHONPATH=services:tests python tests/bench/bench_stream.py [--data hot,uniform] [--records 1000000]
        [--systems stream,plain,stages] [--master 'local[2]'] [--cost-ms 0]
    PYTHONPATH=services:tests python tests/bench/bench_stream.py --latency-s 60 --records 2000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.usage import measured
from skewless.lab.local.broker import Broker

PARTITIONS = 16
KEYS = 50_000
WINDOW_S = 60
SPAN_S = 600
START_MS = 1_767_225_600_000
LATENESS_S = 10
TRIGGER_S = 2.0
DATA = ("hot", "zipf", "uniform")


@dataclass(frozen=True)
class Query:
    """A query of a process of its own."""

    system: str
    master: str
    bootstrap: str
    topic: str
    cost_ms: float
    folder: str

    def arguments(self) -> list[str]:
        return [__file__, "--query", json.dumps(asdict(self))]


def keys_of(data: str, records: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(3)
    if data == "zipf":
        steps = np.cumsum(np.arange(1, KEYS + 1, dtype=np.float64) ** -1.4)
        return np.searchsorted(steps / steps[-1], random.random(records))
    keys = random.integers(0, KEYS, records)
    return np.where(random.random(records) < 0.5, 0, keys) if data == "hot" else keys


def filled(bootstrap: str, topic: str, keys: np.ndarray[Any, Any]) -> None:
    """Create a topic with a record for each key, in the order of event time."""
    create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number, key in enumerate(keys.tolist()):
        value = b'{"key":"key-%05d","value":%d,"time":%d}' % (key, number % 100, time_of(number, len(keys)))
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
            while len(producer) > 500_000:
                producer.poll(0.1)
    producer.flush()


def time_of(number: int, records: int) -> int:
    return START_MS + number * SPAN_S * 1000 // records


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()


def pipeline(name: str, bootstrap: str, topic: str, cost_ms: float) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"topic": topic},
        "kafka": {"bootstrap_servers": bootstrap},
        "splitter": {"format": "json", "key": {"field": "key"}, "value": {"field": "value"}, "time": {"field": "time"}},
        "event_time": {"allowed_lateness_s": LATENESS_S},
        "router": {"workers": PARTITIONS},
        **({"worker": {"cost": {"cycle": 1, "process_duration_ms": cost_ms}}} if cost_ms else {}),
        "aggregator": {"window_s": WINDOW_S, "aggregates": ["count", "sum", "max"]},
    }


def spark_session(master: str, *, plain: bool) -> Any:
    """Start Spark; a plain query has Spark's own options for Java."""
    from pyspark.sql import SparkSession

    from skewless.lab.local.jars import ensure
    from skewless.spark.spark_session import SparkOptions

    options = SparkOptions(master, jars=[str(jar) for jar in ensure("spark")], memory="1g", ui=True).all()
    if plain:
        options["spark.driver.extraJavaOptions"] = options["spark.driver.extraJavaOptions"].split(" ")[0]
        options["spark.sql.shuffle.partitions"] = str(PARTITIONS)
    builder = SparkSession.builder.appName("bench")
    for name, value in options.items():
        builder = builder.config(name, value)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return builder.getOrCreate()


def plain_query(spark: Any, query: Query, trigger: dict[str, Any]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    cost_ms = query.cost_ms
    source = {"kafka.bootstrap.servers": query.bootstrap, "subscribe": query.topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**source, maxOffsetsPerTrigger="2000000").load()
    entry = F.from_json(F.col("value").cast("string"), "key string, value bigint, time bigint").alias("fact")
    parsed = rows.select(entry).select("fact.key", "fact.value", F.timestamp_millis("fact.time").alias("time"))
    if cost_ms:

        def slow(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                time.sleep(batch.num_rows * cost_ms / 1000)
                yield batch

        parsed = parsed.repartition(PARTITIONS, "key").mapInArrow(slow, "key string, value bigint, time timestamp")
    window = F.window("time", f"{WINDOW_S} seconds")
    counted = parsed.withWatermark("time", f"{LATENESS_S} seconds").groupBy(window.alias("window"), "key")
    results = counted.agg(F.count("*").alias("count"), F.sum("value").alias("sum"), F.max("value").alias("max"))
    out = results.select(F.to_json(F.struct("*")).alias("value"))
    writer = out.writeStream.format("kafka").outputMode("update").trigger(**trigger)
    sink = {"kafka.bootstrap.servers": query.bootstrap, "topic": f"{query.topic}.plain"}
    return writer.options(**sink, checkpointLocation=f"{query.folder}/plain").start()


def run_query(query: Query) -> dict[str, Any]:
    """Run a query until it has read the topic; returns its rate and the time of its slowest task beside the mean."""
    spark = spark_session(query.master, plain=query.system == "plain")
    if query.system == "plain":
        create(query.bootstrap, f"{query.topic}.plain")
        running = plain_query(spark, query, {"availableNow": True})
        running.awaitTermination()
    else:
        from skewless.config.loader import load
        from skewless.spark.stream_job import StreamJob
        from skewless.spark.stream_start import prepare

        settings = load(Path(query.folder) / "pipeline.yaml", {})
        job = StreamJob(prepare(settings, print), spark, lambda _: None)
        with job.running(f"{query.folder}/checkpoint", None) as running:
            running.awaitTermination()
    progress = [entry for entry in running.recentProgress if "addBatch" in entry["durationMs"]]
    seconds = sum(entry["durationMs"]["triggerExecution"] for entry in progress) / 1000
    # The tasks of Skewless read Kafka themselves, so Spark counts no rows of theirs.
    records = sum(entry["numInputRows"] for entry in progress) if query.system == "plain" else job.records
    result = {"read": records, "batches": len(progress), "seconds": seconds, "records_per_s": round(records / seconds)}
    result |= slowest_to_mean(spark)
    spark.stop()
    return result


def slowest_to_mean(spark: Any) -> dict[str, Any]:
    """Return the time of the slowest task divided by the mean, of the stages that have spent most time."""
    context = spark.sparkContext
    base = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    by_kind: defaultdict[tuple[str, int], list[list[int]]] = defaultdict(list)
    for stage in read_json(base):
        if stage["status"] == "COMPLETE":
            tasks = read_json(f"{base}/{stage['stageId']}/0/taskList?length=1000")
            by_kind[stage["name"], stage["numTasks"]].append([task["taskMetrics"]["executorRunTime"] for task in tasks])
    if not by_kind:
        return {}
    times = max(by_kind.values(), key=lambda of_kind: sum(map(sum, of_kind)))
    slowest, mean = sum(map(max, times)), sum(sum(of_stage) / len(of_stage) for of_stage in times)
    return {"tasks": len(times[0]), "slowest_to_mean": round(slowest / max(mean, 1), 2)}


def read_json(address: str) -> Any:
    with urllib.request.urlopen(address) as answer:  # noqa: S310 - that of Spark on this machine
        return json.load(answer)


def run(system: str, data: str, bootstrap: str, topic: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        load = round(os.getloadavg()[0], 1)
        answer = Path(folder) / "answer.json"
        file = Path(folder) / "pipeline.yaml"
        file.write_text(yaml.safe_dump(pipeline(f"{topic}-{system}", bootstrap, topic, options.cost_ms)))
        if system == "stages":
            arguments = ["-m", "skewless", "up", "-f", str(file), "--drain"]
        elif system == "batch":
            spark = ("--master", options.master, "--driver-memory", "1g")
            arguments = ["-m", "skewless", "batch", "-f", str(file), "--out", str(Path(folder) / "out"), *spark]
        else:
            arguments = Query(system, options.master, bootstrap, topic, options.cost_ms, folder).arguments()
        usage = measured(arguments)
        own = json.loads(answer.read_text()) if answer.exists() else {}
    line: dict[str, Any] = {
        "bench": "stream",
        "system": system,
        "data": data,
        "records": options.records,
        "master": options.master,
    }
    line |= {"cost_ms": options.cost_ms, "load_average": load, "run_s": usage.pop("seconds")}
    return line | usage | {"records_per_cpu_s": round(options.records / usage["cpu_s"])} | own


def feed(bootstrap: str, topic: str, rate: int, over: threading.Event) -> int:
    """Write records with the current time as value until the event; returns their number."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    keys = keys_of("zipf", 100_000).tolist()
    began, sent = time.monotonic(), 0
    while not over.wait(0.02):
        due, now = int((time.monotonic() - began) * rate), int(time.time() * 1000)
        for number in range(sent, due):
            value = b'{"key":"key-%05d","value":%d,"time":%d}' % (keys[number % len(keys)], now, now)
            producer.produce(topic, value, partition=number % PARTITIONS)
        sent = due
        producer.poll(0)
    producer.flush()
    return sent


def results(bootstrap: str, topic: str, over: threading.Event) -> Iterator[tuple[str, int, float]]:
    """Yield key, largest value and the time in ms at which each result was read."""
    options = {"bootstrap.servers": bootstrap, "group.id": "bench", "auto.offset.reset": "earliest"}
    consumer = Consumer(options | {"isolation.level": "read_committed", "fetch.wait.max.ms": 20})
    consumer.subscribe([topic])
    while not over.is_set():
        for message in consumer.consume(10_000, 0.05):
            if message.error() is None and message.value():
                entry = json.loads(message.value() or b"")
                yield entry["key"], entry["max"], time.time() * 1000
    consumer.close()


def latency(system: str, bootstrap: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the time from the writing of a record to a result that has it, at a steady rate."""
    topic = f"live-{system}"
    create(bootstrap, topic)
    over, load = threading.Event(), round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(yaml.safe_dump(pipeline(f"{topic}-stream", bootstrap, topic, 0)))
        out = f"{topic}.plain" if system == "plain" else f"{topic}-stream.aggregates"
        arguments = ["-m", "skewless", "stream", "-f", str(file), "--master", options.master]
        arguments += ["--checkpoint", str(Path(folder) / "checkpoint")]
        if system == "plain":
            create(bootstrap, out)
            arguments = Query("plain-live", options.master, bootstrap, topic, 0, folder).arguments()
        child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
        feeder = threading.Thread(target=feed, args=(bootstrap, topic, options.records, over))
        feeder.start()
        latencies = seen(results(bootstrap, out, over), topic, bootstrap, options.latency_s, over)
        feeder.join()
        child.terminate()
        child.wait(60)
    p50, p99 = np.percentile(latencies, [50, 99]) if latencies else (0, 0)
    line: dict[str, Any] = {
        "bench": "stream latency",
        "system": system,
        "records_per_s": options.records,
        "master": options.master,
    }
    line |= {"trigger_s": TRIGGER_S, "load_average": load, "records": len(latencies)}
    return line | {"p50_s": round(p50 / 1000, 2), "p99_s": round(p99 / 1000, 2)}


def seen(
    found: Iterator[tuple[str, int, float]], topic: str, bootstrap: str, seconds: float, over: threading.Event
) -> list[float]:
    """Return the latency in ms of each record of a period that begins 30 s after the first result."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "source", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    sent: defaultdict[str, deque[int]] = defaultdict(deque)
    latencies: list[float] = []
    begin: float | None = None
    for key, largest, now in found:
        begin = begin or now + 30_000
        for message in consumer.consume(100_000, 0):
            if message.error() is None:
                entry = json.loads(message.value() or b"")
                sent[entry["key"]].append(entry["value"])
        waiting = sent[key]
        while waiting and waiting[0] <= largest:
            written = waiting.popleft()
            if written >= begin:
                latencies.append(now - written)
        if now > begin + seconds * 1000:
            over.set()
    consumer.close()
    return latencies


def main() -> None:
    if sys.argv[1:2] == ["--query"]:
        query = Query(**json.loads(sys.argv[2]))
        if query.system == "plain-live":
            trigger = {"processingTime": f"{TRIGGER_S:g} seconds"}
            plain_query(spark_session(query.master, plain=True), query, trigger).awaitTermination()
            return
        (Path(query.folder) / "answer.json").write_text(json.dumps(run_query(query)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--systems", default="stream,plain,stages")
    parser.add_argument("--records", type=int, default=1_000_000, help="with --latency-s: records per second")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--cost-ms", type=float, default=0.0)
    parser.add_argument("--latency-s", type=float, default=0.0, help="measure the latency for this time")
    options = parser.parse_args()
    with Broker() as broker:
        systems = options.systems.split(",")
        if options.latency_s:
            for system in systems:
                print(json.dumps(latency(system, broker.bootstrap, options)), flush=True)
            return
        for data in options.data.split(","):
            keys = keys_of(data, options.records)
            for system in systems:
                topic = f"{data}-{system}"
                filled(broker.bootstrap, topic, keys)
                print(json.dumps(run(system, data, broker.bootstrap, topic, options)), flush=True)


if __name__ == "__main__":
    main()
