"""Records per CPU-second of a join's process, exactly once, and of the left join of Kafka Streams on the same broker.

Impressions and clicks of 200 bytes as JSON, of which 9 of 10 match, in 4 partitions of two prepared topics. A process
of the join drains both topics; then two processes do. CPU time is that of the whole processes, including librdkafka's
threads and the JVM's, minus that of a run over few records, which is the time to start. Commits every 500 ms. One JSON
line per run, and one that compares. The join of this project parses id and time from the JSON. Kafka Streams gets them
as record key and timestamp, and parses nothing. Its stores are RocksDB, its default, or memory. It reports an unmatched
record only while later ones arrive, so it has fewer at the end.

With --held, a process of the join reads this many impressions that wait for a partner. A share of all impressions,
--held-matched, has one. The process is then started again. The lines have its resident memory per held record on top of
the record of 100 bytes, without that of a process that holds nothing, and the time from the assignment to its end of
the restore, also per million records of both topics.

    PYTHONPATH=tests python tests/bench/bench_join_process.py [--records 1000000] [--repeats 1]
    [--stores rocksdb] [--held 0] [--held-matched 0.1667]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from bench.bench_join import HELD_BYTES, RECORD_BYTES, as_json, padded
from bench.java_programs import JOIN, compiled
from helpers.waiting import until
from skewless.lab.datasets import DATASETS, DatasetOptions
from skewless.lab.local.broker import Broker
from skewless.lab.local.ports import find_free_ports

PARTITIONS = 4
SIDES = {"left": "impressions", "right": "clicks"}
"""Data set of each side."""
EVENT_RATE = 5_000
FEW_RECORDS = 20_000
COMMIT_S = 0.5
APART_S, SYNC_DELAY_S = 5, 10
DAY_S = 86_400
LIMIT_S = 900.0
OUTPUTS = ("joined", "unmatched-left")
PROPERTIES = {"group.initial.rebalance.delay.ms": "5000"}
"""Both of two processes are in the first assignment. Otherwise the first one would begin alone, and lose half of it."""


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        made.result(timeout=30)


def produce(bootstrap: str, suffix: str, size: int, options: DatasetOptions) -> int:
    """Write both topics, with the ids as keys and the event times as timestamps; returns the number of records."""
    create(bootstrap, *(f"{dataset}-{suffix}" for dataset in SIDES.values()))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
    count = 0
    for dataset in SIDES.values():
        for batch in DATASETS[dataset].batches(options):
            for key, value, at in zip(batch.keys or (), batch.values, batch.times.tolist(), strict=True):
                producer.produce(f"{dataset}-{suffix}", padded(as_json(value), size), key, timestamp=at)
            producer.flush()
            count += len(batch.values)
    return count


def pipeline(bootstrap: str, name: str, suffix: str, **join: Any) -> dict[str, Any]:
    sides = {
        side: {"topic": f"{dataset}-{suffix}", "id": {"field": "id"}, "time": {"field": "time"}}
        for side, dataset in SIDES.items()
    }
    return {
        "name": name,
        "kafka": {"bootstrap_servers": bootstrap},
        "join": {**sides, "apart_s": APART_S, "sync_delay_s": SYNC_DELAY_S, **join},
        "transport": {"commit_interval_s": COMMIT_S},
    }


def written(folder: Path, document: dict[str, Any]) -> Path:
    """Write the file of a pipeline, and create its topics."""
    file = folder / f"{document['name']}.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "skewless", "topics", "apply", "-f", str(file)]
    subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return file


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def spent(commands: Sequence[Sequence[str]]) -> tuple[float, float, list[str]]:
    """Run processes at the same time; returns their CPU seconds, the wall time, and what each has printed."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        files = [[stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)] for _ in commands]
        children = [
            subprocess.Popen(command, env=environment(), stdout=out, stderr=errors)
            for command, (out, errors) in zip(commands, files, strict=True)
        ]
        cpu_s, printed = 0.0, []
        for child, (out, errors) in zip(children, files, strict=True):
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            for file in (out, errors):
                file.seek(0)
            if child.returncode:
                raise SystemExit(f"{child.args!r} ended with {child.returncode}:\n{errors.read()[-3000:]}")
            cpu_s += usage.ru_utime + usage.ru_stime
            printed.append(out.read())
    return cpu_s, time.monotonic() - began, printed


def drain(bootstrap: str, folder: Path, name: str, suffix: str, processes: int) -> dict[str, Any]:
    """Let processes of the join drain both topics."""
    file = written(folder, pipeline(bootstrap, name, suffix))
    run = [sys.executable, "-m", "skewless", "run", "join", "--drain", "-f", str(file), "--instance"]
    cpu_s, wall_s, _ = spent([[*run, str(instance)] for instance in range(processes)])
    pairs, unmatched = (count(bootstrap, f"{name}.{output}") for output in OUTPUTS)
    return {"cpu_s": cpu_s, "wall_s": round(wall_s, 1), "pairs": pairs, "unmatched": unmatched}


def streams(  # noqa: PLR0913, PLR0917 - what a run depends on
    bootstrap: str, program: Sequence[str], name: str, suffix: str, records: int, stores: str
) -> dict[str, Any]:
    """Let Kafka Streams read both topics."""
    create(bootstrap, f"{name}.out")
    inputs = [f"{dataset}-{suffix}" for dataset in SIDES.values()]
    times = [str(round(1000 * seconds)) for seconds in (APART_S, SYNC_DELAY_S - APART_S, COMMIT_S)]
    with tempfile.TemporaryDirectory() as state:
        arguments = [bootstrap, name, *inputs, f"{name}.out", str(records), *times, stores, state]
        cpu_s, wall_s, (line,) = spent([[*program, *arguments]])
    return {"cpu_s": cpu_s, "wall_s": round(wall_s, 1), **json.loads(line)}


def count(bootstrap: str, topic: str) -> int:
    """Return the number of committed records of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found = ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                found += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended += 1
    consumer.close()
    return found


def throughput(bootstrap: str, folder: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure the join by one process and by two, and Kafka Streams, in each repeat."""
    sizes = {"few": FEW_RECORDS, "all": args.records}
    totals = {
        suffix: produce(bootstrap, suffix, RECORD_BYTES, DatasetOptions(event_rate=EVENT_RATE, records=size))
        for suffix, size in sizes.items()
    }
    program = compiled(JOIN, folder)
    added = totals["all"] - totals["few"]
    best: dict[str, float] = {}
    for repeat in range(args.repeats):
        for system in ("skewless", "skewless, 2 processes", *(f"kafka streams, {s}" for s in args.stores.split(","))):
            used = {}
            for suffix, total in totals.items():
                name = f"{system.replace(', ', '-').replace(' ', '-')}-{suffix}-{repeat}"
                if system.startswith("skewless"):
                    used[suffix] = drain(bootstrap, folder, name, suffix, 2 if "2" in system else 1)
                else:
                    stores = system.rpartition(" ")[2]
                    used[suffix] = streams(bootstrap, program, name, suffix, total, stores)
            cpu_s = used["all"]["cpu_s"] - used["few"]["cpu_s"]
            per_s = added / cpu_s
            best[system] = max(per_s, best.get(system, 0.0))
            yield {
                "bench": "join-process",
                "system": system,
                "records": totals["all"],
                "record_bytes": RECORD_BYTES,
                "records_per_cpu_s": round(per_s),
                **used["all"],
                "cpu_s": round(used["all"]["cpu_s"], 2),
                "start_cpu_s": round(used["few"]["cpu_s"], 2),
                "load": round(os.getloadavg()[0], 1),
            }
    ours = best["skewless"]
    yield {
        "bench": "join-process",
        "best_records_per_cpu_s": {system: round(per_s) for system, per_s in best.items()},
        "times_kafka_streams": {
            system: round(ours / per_s, 2) for system, per_s in best.items() if system.startswith("kafka")
        },
        "cpu_per_record_of_two_processes": round(ours / best["skewless, 2 processes"], 3),
        "cores_for_500000_per_s": round(500_000 / ours, 1),
    }


@contextlib.contextmanager
def running(file: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Run a process of the join; yields it and the port of its metrics."""
    (port,) = find_free_ports(1)
    command = [sys.executable, "-m", "skewless", "run", "join", "-f", str(file)]
    variables = environment() | {"SKEWLESS__METRICS__PORT": str(port)}
    with subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL) as child:
        try:
            yield psutil.Process(child.pid), port
        finally:
            child.terminate()


def metrics(port: int) -> Mapping[str, float]:
    """Return the metrics of a process, summed over their labels; empty while it does not listen."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    except OSError:
        return {}
    found: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def held(bootstrap: str, folder: Path, count: int, matched: float) -> Iterator[dict[str, Any]]:
    """Measure the memory of held records, and a restart that restores them."""
    impressions = round(count / (1 - matched))
    options = DatasetOptions(event_rate=EVENT_RATE, records=impressions, matched=matched)
    records = produce(bootstrap, "held", HELD_BYTES, options)
    create(bootstrap, *(f"{dataset}-none" for dataset in SIDES.values()))
    spans = {"apart_s": DAY_S, "sync_delay_s": DAY_S, "buffer_records": 2 * count, "buffer_bytes": 2**50}
    rss = {}
    for run, suffix, wanted in (("empty", "none", 0), ("read", "held", count), ("restored", "held", count)):
        name = f"held-{suffix}"
        with running(written(folder, pipeline(bootstrap, name, suffix, **spans))) as (process, port):
            until(
                lambda port=port, wanted=wanted: _is_at_rest(metrics(port), wanted),  # type: ignore[misc]
                limit_s=LIMIT_S,
            )
            found = metrics(port)
            rss[run] = process.memory_info().rss
        restore_s = found["skewless_restore_duration_seconds_sum"]
        per_record = (rss[run] - rss["empty"]) / count - HELD_BYTES
        yield {
            "bench": "join-held-process",
            "run": run,
            "held": round(found["skewless_join_held_records"]),
            "records": records,
            "rss_mb": round(rss[run] / 1e6),
            "overhead_bytes_per_record": round(per_record) if wanted else None,
            "restore_s": round(restore_s, 2),
            "restore_s_per_million": round(restore_s / records * 1e6, 2),
            "load": round(os.getloadavg()[0], 1),
        }


def _is_at_rest(found: Mapping[str, float], records: int) -> bool:
    """Return whether a process has committed its whole input and holds so many records."""
    is_ready = bool(found.get("skewless_ready")) and found.get("skewless_commit_duration_seconds_count", 0) > 2
    is_behind = found.get("skewless_consumer_lag_records", 1) > 0
    return is_ready and not is_behind and round(found["skewless_join_held_records"]) == records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="impressions")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--stores", default="rocksdb", help="stores of Kafka Streams: rocksdb, memory")
    parser.add_argument("--held", type=int, default=0, help="measure held records instead")
    parser.add_argument("--held-matched", type=float, default=1 / 6, help="share of impressions with a click")
    args = parser.parse_args()
    with Broker(properties=PROPERTIES) as broker, tempfile.TemporaryDirectory() as folder:
        measure = held(broker.bootstrap, Path(folder), args.held, args.held_matched) if args.held else None
        for line in measure or throughput(broker.bootstrap, Path(folder), args):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
