"""Records per CPU-second of each stage and of the pipeline, exactly once and at least once, compared with stock Faust.

Zipf 1.1 over 50,000 keys, JSON, W = 8, commits every 500 ms. Each stage drains its topic in a separate process. CPU
time is that of the whole process including librdkafka's threads, without start-up. One JSON line per run.

With --local, each pipeline runs without and with local aggregation instead, exactly once and with grouping `key`, for
Zipf 1.4 and 2.0. Event time advances as fast as 100,000 records per second. The lines have the bytes of the values in
`tuples` and `worker-input`, and the last line of each pair compares CPU time per source record. A stage needs CPU time
to join its group, whatever it processes. A run over few records measures this time, and the comparison leaves it out.

    python tests/bench/bench_pipeline.py [--records 2000000] [--stock-records 20000] [--repeats 1] [--local]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from skewless.lab.local.broker import Broker

HERE = Path(__file__).parent
STAGES = ("splitter", "router", "worker", "aggregator", "observer")
PARTITIONS = {"events": 4, "tuples": 4, "worker-input": 8, "partials": 4, "aggregates": 4}
FEW_RECORDS = 20_000
PATH = ("tuples", "worker-input")
"""Topics between the splitter and the workers."""
MEASURED = ("splitter", "router", "worker", "aggregator")


def pipeline(
    name: str, bootstrap: str, guarantee: str, grouping: str = "partial_key", topic: str = "events"
) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"topic": topic},
        "kafka": {"bootstrap_servers": bootstrap},
        "transport": {"guarantee": guarantee, "commit_interval_s": 0.5},
        "splitter": {
            "format": "json",
            "key": {"field": "key"},
            "value": {"field": "value"},
            "time": {"field": "time", "unit": "ms"},
        },
        "router": {"grouping": grouping, "workers": 8},
        "worker_input": {"max_workers": 8},
    }


def run(*args: str) -> str:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise SystemExit(f"{' '.join(args)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def produce(bootstrap: str, topic: str, records: int, *options: str) -> None:
    run(
        *("-m", "skewless", "produce", "zipf", "--topic", topic, "--bootstrap-servers", bootstrap),
        *("--records", str(records), "--partitions", "4", *options),
    )


def ours(bootstrap: str, folder: Path, guarantee: str, records: int, repeat: int) -> Iterator[dict[str, Any]]:
    name = f"{guarantee.replace('_', '-')}-{repeat}"
    total = 0.0
    for stage, usage in drained(folder, pipeline(name, bootstrap, guarantee)):
        total += usage["cpu_s"] if stage in MEASURED else 0.0
        yield figure(f"skewless {guarantee}", stage, records, usage["cpu_s"]) | usage
    yield figure(f"skewless {guarantee}", "pipeline", records, total)


def drained(
    folder: Path, document: dict[str, Any], stages: Sequence[str] = STAGES
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run a pipeline stage by stage; yields the usage of each stage."""
    file = folder / f"{document['name']}.yaml"
    file.write_text(yaml.safe_dump(document))
    run("-m", "skewless", "topics", "apply", "-f", str(file))
    for stage in stages:
        yield stage, json.loads(run(str(HERE / "stage_process.py"), stage, str(file)).splitlines()[-1])


def compared(bootstrap: str, folder: Path, exponent: str, records: int, repeat: int) -> Iterator[dict[str, Any]]:
    """Run a pipeline without and with local aggregation, on the same topic."""
    topic = f"events-{exponent.replace('.', '-')}"
    few = f"{topic}-few"
    if not repeat:
        produce(bootstrap, topic, records, "--zipf-exponent", exponent, "--event-rate", "100000")
        produce(bootstrap, few, FEW_RECORDS, "--zipf-exponent", exponent, "--event-rate", "100000")
        for grouping in ("key", "local"):
            # The first process of a stage compiles functions and stores them for the others.
            deque(drained(folder, pipeline(f"{grouping}-{topic}-first", bootstrap, "exactly_once", grouping, few)), 0)
    cpu_us: dict[str, dict[str, float]] = {}
    sent: dict[str, int] = {}
    for grouping in ("key", "local"):
        name = f"{grouping}-{topic}-{repeat}"
        short = pipeline(f"{name}-few", bootstrap, "exactly_once", grouping, few)
        start_s = {stage: usage["cpu_s"] for stage, usage in drained(folder, short)}
        cpu_us[grouping] = {}
        for stage, usage in drained(folder, pipeline(name, bootstrap, "exactly_once", grouping, topic)):
            cpu_us[grouping][stage] = (usage["cpu_s"] - start_s[stage]) * 1e6 / (records - FEW_RECORDS)
            usage["start_s"] = start_s[stage]
            yield figure(f"grouping {grouping}", stage, records, usage["cpu_s"]) | usage | {"zipf": exponent}
        by_topic = {each: value_bytes(bootstrap, f"{name}.{each}", PARTITIONS[each]) for each in PATH}
        sent[grouping] = sum(by_topic.values())
        yield {"bench": "local", "grouping": grouping, "zipf": exponent, "bytes": by_topic}
    none, local = cpu_us["key"], cpu_us["local"]
    yield {
        "bench": "local",
        "zipf": exponent,
        "records": records,
        "router_and_worker_us": [round(each["router"] + each["worker"], 3) for each in (none, local)],
        "router_and_worker_ratio": (local["router"] + local["worker"]) / (none["router"] + none["worker"]),
        "splitter_added_us": local["splitter"] - none["splitter"],
        "pipeline_us": [round(sum(each[stage] for stage in MEASURED), 3) for each in (none, local)],
        "bytes_ratio": sent["local"] / sent["key"],
    }


def value_bytes(bootstrap: str, topic: str, partitions: int) -> int:
    """Return the bytes of the values in a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    total = ended = 0
    while ended < partitions:
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                total += len(message.value() or b"")
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended += 1
    consumer.close()
    return total


def stock(bootstrap: str, records: int, repeat: int) -> Iterator[dict[str, Any]]:
    prefix = f"stock{repeat}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"{prefix}.{name}", count, 1) for name, count in PARTITIONS.items()]
    for made in admin.create_topics(topics).values():
        made.result(timeout=30)
    copy(bootstrap, "events", f"{prefix}.events", records)
    left, total = records, 0.0
    for stage, output in zip(MEASURED, ("tuples", "worker-input", "partials", "aggregates"), strict=True):
        usage = json.loads(run(str(HERE / "stock_faust.py"), stage, bootstrap, prefix, str(left)).splitlines()[-1])
        total += usage["cpu_s"]
        yield figure("stock faust", stage, left, usage["cpu_s"]) | usage
        left = written(bootstrap, f"{prefix}.{output}", PARTITIONS[output])
    yield figure("stock faust", "pipeline", records, total)


def copy(bootstrap: str, source: str, target: str, records: int) -> None:
    """Copy the first records of a topic without compression: the dependencies of stock Faust cannot read lz4."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(source, partition, 0) for partition in range(PARTITIONS["events"])])
    producer = Producer({"bootstrap.servers": bootstrap})
    left = dict.fromkeys(range(PARTITIONS["events"]), records // PARTITIONS["events"])
    while any(left.values()):
        for message in consumer.consume(1000, 1.0):
            if message.error() is None and left[message.partition()]:
                left[message.partition()] -= 1
                producer.produce(target, message.value(), partition=message.partition())
        producer.poll(0)
    producer.flush()
    consumer.close()


def written(bootstrap: str, topic: str, partitions: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in range(partitions)]
    consumer.close()
    return sum(ends)


def figure(system: str, stage: str, records: int, cpu_s: float) -> dict[str, Any]:
    return {
        "bench": "pipeline",
        "system": system,
        "stage": stage,
        "records": records,
        "records_per_cpu_s": round(records / cpu_s),
        "cpu_s": round(cpu_s, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--stock-records", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--local", action="store_true", help="compare runs without and with local aggregation")
    args = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        if args.local:
            for exponent, repeat in itertools.product(("1.4", "2.0"), range(args.repeats)):
                for line in compared(broker.bootstrap, Path(folder), exponent, args.records, repeat):
                    print(json.dumps(line), flush=True)
            return
        produce(broker.bootstrap, "events", args.records)
        for repeat in range(args.repeats):
            for guarantee in ("exactly_once", "at_least_once"):
                for line in ours(broker.bootstrap, Path(folder), guarantee, args.records, repeat):
                    print(json.dumps(line), flush=True)
            for line in stock(broker.bootstrap, args.stock_records, repeat):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
