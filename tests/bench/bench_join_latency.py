"""Time from writing a record to its outcome in the topics of a join, at a steady rate: pairs and unmatched records.

One process of the join, commits every 100 ms, records of 200 bytes, of which 9 of 10 left ones match, 300 ms later.
Probes are written every 10 ms: a left and a right record with the same id, and a left record without a partner. The
time of a pair is from the right record to the pair. The time of an unmatched record is what it takes longer than
`sync_delay_s`. One JSON line per rate, in seconds. The rate is that of both sides together.

    PYTHONPATH=tests python tests/bench/bench_join_latency.py [--rates 75000] [--seconds 30]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.bench_join import RECORD_BYTES, padded
from bench.bench_join_process import PARTITIONS, SIDES, create, metrics, pipeline, running, written
from bench.bench_latency import compile_fully
from helpers.waiting import until
from skewless.lab.local.broker import Broker

PORTION_S = 0.01
MATCH_S = 0.3
"""Time from a left record to its partner."""
MATCHED_OF_10 = 9
SPANS = {"apart_s": 1, "sync_delay_s": 2}
WARM_UP_S = 30.0
LATE_S = 10.0
READY_S = 120.0
PROBE = re.compile(rb"(pair|lone)-\d+")


def feed(bootstrap: str, suffix: str, rate: float, seconds: float) -> None:
    """Write both topics at this rate, and print when each probe was written. All probes are in partition 0."""
    left, right = (f"{dataset}-{suffix}" for dataset in SIDES.values())
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    began, sent, number = time.monotonic(), 0, 0
    awaited: deque[tuple[float, int, int]] = deque()
    """First and last id of each portion of left records, and the time of their partners."""
    left_rate = rate / (1 + MATCHED_OF_10 / 10)
    head = len(b'{"id":"ad-000000000","time":1234567890123')
    padding = padded(head * b"x" + b"}", RECORD_BYTES)[head:]

    def write(topic: str, record_id: bytes, stamp: int, partition: int) -> None:
        value = b'{"id":"%s","time":%d%s' % (record_id, stamp, padding)
        producer.produce(topic, value, record_id, partition)

    while (elapsed := time.monotonic() - began) < seconds:
        now = time.time()
        stamp = round(now * 1000)
        due = int(elapsed * left_rate)
        for at in range(sent, due):
            write(left, b"ad-%09d" % at, stamp, at % PARTITIONS)
        awaited.append((elapsed + MATCH_S, sent, due))
        sent = due
        while awaited and awaited[0][0] <= elapsed:
            _, first, last = awaited.popleft()
            for at in range(first, last):
                if at % 10 < MATCHED_OF_10:
                    write(right, b"ad-%09d" % at, stamp, at % PARTITIONS)
        pair, lone = b"pair-%d" % number, b"lone-%d" % number
        for topic, probe in ((left, lone), (left, pair), (right, pair)):
            write(topic, probe, stamp, 0)
        print(pair.decode(), now)
        print(lone.decode(), now)
        number += 1
        producer.poll(0)
        time.sleep(max(0.0, PORTION_S - (time.monotonic() - began - elapsed)))
    producer.flush()


def arrivals(bootstrap: str, name: str, feeding: subprocess.Popen[str]) -> dict[str, float]:
    """Read the outcomes of probes while records are written; returns when each was visible."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "fetch.wait.max.ms": 20})
    consumer.assign([TopicPartition(f"{name}.{topic}", 0, 0) for topic in ("joined", "unmatched-left")])
    seen: dict[str, float] = {}
    ends = None
    while ends is None or time.monotonic() < ends:
        for message in consumer.consume(10_000, 0.005):
            if message.error() is None and PROBE.fullmatch(message.key() or b""):
                seen.setdefault((message.key() or b"").decode(), time.time())
        if ends is None and feeding.poll() is not None:
            ends = time.monotonic() + LATE_S
    consumer.close()
    return seen


def measure(broker: Broker, folder: Path, rate: float, seconds: float) -> dict[str, Any]:
    """Run a join at one rate."""
    name = f"latency-{round(rate)}"
    create(broker.bootstrap, *(f"{dataset}-{name}" for dataset in SIDES.values()))
    document = pipeline(broker.bootstrap, name, name, **SPANS)
    document["transport"]["commit_interval_s"] = 0.1
    with running(written(folder, document)) as (process, port), tempfile.TemporaryFile("w+") as printed:
        until(lambda: metrics(port).get("skewless_ready"), limit_s=READY_S)
        options = [broker.bootstrap, name, str(rate), str(WARM_UP_S + seconds)]
        feeding = subprocess.Popen([sys.executable, __file__, "--feed", *options], stdout=printed, text=True)
        cpu_s, began = sum(process.cpu_times()[:2]), time.monotonic()
        seen = arrivals(broker.bootstrap, name, feeding)
        cpu_s = (sum(process.cpu_times()[:2]) - cpu_s) / (time.monotonic() - began)
        records = metrics(port)["skewless_tuples_total"]
        printed.seek(0)
        sent = {probe: float(at) for probe, at in map(str.split, printed)}
    first, last = min(sent.values()) + WARM_UP_S, max(sent.values()) - SPANS["sync_delay_s"]
    found: dict[str, Any] = {
        "bench": "join-latency",
        "rate": rate,
        "records": round(records),
        "cpu_per_s": round(cpu_s, 2),
    }
    for kind, delay_s in (("pair", 0), ("lone", SPANS["sync_delay_s"])):
        probes = {probe: at for probe, at in sent.items() if probe.startswith(kind) and first <= at <= last}
        delays = [seen[probe] - at - delay_s for probe, at in probes.items() if probe in seen]
        p50, p99, most = (round(float(each), 3) for each in np.quantile(delays, [0.5, 0.99, 1.0]))
        unseen = len(probes) - len(delays)
        found[kind] = {"probes": len(delays), "unseen": unseen, "p50_s": p50, "p99_s": p99, "max_s": most}
    return found | {"load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="75000", help="records per second of both sides together")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured time, after a warm-up")
    args = parser.parse_args()
    compile_fully()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        for rate in map(float, args.rates.split(",")):
            print(json.dumps(measure(broker, Path(folder), rate, args.seconds)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--feed"]:
        feed(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
    else:
        main()
