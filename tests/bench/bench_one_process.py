"""Measures what a small pipeline costs: all stages in one process, a process per stage, and forks of one process.

Each form runs the same pipeline with the default settings on a local broker: `one` is `skewless run all`, `each` starts
`skewless run STAGE` for each stage, as containers do, and `forks` is `skewless up`, whose processes share the memory of
the imported code. One JSON line per form: time from the start until all stages are ready, and then, for each rate of
source records per second, the CPU time per second, that of the broker, and the memory. `rss` counts shared memory in
each process, `pss` divides it by the processes that share it.

    PYTHONPATH=services:tests python tests/bench/bench_one_process.py [--rates 0,500] [--seconds 20] [--forms one,each]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Producer

from bench.bench_latency import compile_fully
from helpers.kafka import STAGES, Pipeline, Source
from helpers.waiting import until
from skewless.lab.local import child_process
from skewless.lab.local.broker import Broker
from skewless.lab.local.ports import find_free_ports

PARTITIONS = 4
KEYS = 5_000
WARM_UP_S = 5.0
PORTION_S = 0.05
MB = 1e6


def is_ready(port: int) -> bool:
    """Return whether the process at this port is ready."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1):
        return True
    return False


@contextlib.contextmanager
def commands(tested: Pipeline, names: Sequence[str]) -> Iterator[tuple[list[int], list[psutil.Process]]]:
    """Run `skewless run NAME` for each name until the end of the block; yields their ports and processes."""
    ports = find_free_ports(len(names))
    children = [
        child_process.start(
            [sys.executable, "-m", "skewless", "run", name, "--file", str(tested.file)],
            os.environ | {"SKEWLESS__METRICS__PORT": str(port)},
            log=tested.folder / f"{name}.log",
        )
        for name, port in zip(names, ports, strict=True)
    ]
    try:
        yield ports, [psutil.Process(child.pid) for child in children]
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(60)


@contextlib.contextmanager
def forks(tested: Pipeline) -> Iterator[tuple[list[int], list[psutil.Process]]]:
    """Run `skewless up` until the end of the block; yields the ports of its stages and all of its processes."""
    log = tested.folder / "up.log"
    child = child_process.start([sys.executable, "-m", "skewless", "up", "--file", str(tested.file)], log=log)
    try:
        until(lambda: log.read_text().count("metrics on port") >= len(STAGES))
        ports = [int(line.rpartition(" ")[2]) for line in log.read_text().splitlines() if "metrics on port" in line]
        parent = psutil.Process(child.pid)
        yield ports, [parent, *parent.children(recursive=True)]
    finally:
        child.terminate()
        child.wait(60)


def feed(  # noqa: PLR0913, PLR0917 - the arguments of a thread
    bootstrap: str, topic: str, rate: float, over: threading.Event, padding: int = 0, uniform_keys: int = 0
) -> None:
    """Write records with the current time at this rate until the event, with a field of this many bytes in addition.

    There are `uniform_keys` keys of the same frequency, or with 0 keys of a Zipf distribution.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    random = np.random.default_rng(7)
    zipf = np.minimum(random.zipf(1.2, 200_000), KEYS)
    keys = (random.integers(0, uniform_keys, 1_000_000) if uniform_keys else zipf).tolist()
    field = b',"text":"%s"' % (b"x" * padding) if padding else b""
    began, sent = time.monotonic(), 0
    while not over.wait(PORTION_S):
        due, stamp = int((time.monotonic() - began) * rate), int(time.time() * 1000)
        for number in range(sent, due):
            value = b'{"key":"key-%06d","value":1,"time":%d%s}' % (keys[number % len(keys)], stamp, field)
            producer.produce(topic, value, partition=number % PARTITIONS)
        sent = due
        producer.poll(0)
    producer.flush()


def measured(processes: Sequence[psutil.Process], broker: psutil.Process, seconds: float) -> dict[str, float]:
    """Return CPU seconds per second, and the memory in MB."""

    def cpu(*of: psutil.Process) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in of)

    before, broker_before, began = cpu(*processes), cpu(broker), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    memory = [process.memory_full_info() for process in processes]
    return {
        "cpu": round((cpu(*processes) - before) / passed, 3),
        "broker_cpu": round((cpu(broker) - broker_before) / passed, 3),
        "rss_mb": round(sum(each.rss for each in memory) / MB),
        "pss_mb": round(sum(each.pss for each in memory) / MB),
    }


def run(form: str, broker: Broker, folder: Path, rates: Sequence[float], seconds: float) -> dict[str, Any]:
    """Measure one form of the pipeline."""
    source = Source(broker.bootstrap, PARTITIONS)
    # The settings of a small pipeline are the defaults, not those of the tests.
    tested = Pipeline(broker.bootstrap, folder, source, transport=None, worker_input=None, topics=None, event_time=None)
    started = {"one": lambda: commands(tested, ["all"]), "each": lambda: commands(tested, STAGES)}
    began = time.monotonic()
    with started.get(form, lambda: forks(tested))() as (ports, processes):
        until(lambda: all(map(is_ready, ports)))
        result: dict[str, Any] = {"form": form, "ready_s": round(time.monotonic() - began, 2)}
        for rate in rates:
            over = threading.Event()
            feeder = threading.Thread(target=feed, args=(broker.bootstrap, source.topic, rate, over))
            feeder.start()
            time.sleep(WARM_UP_S)
            result[f"{rate:g}/s"] = measured(processes, psutil.Process(broker.pid), seconds)
            over.set()
            feeder.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="0,500", help="source records per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="time of each measurement")
    parser.add_argument("--forms", default="one,each,forks")
    options = parser.parse_args()
    compile_fully()
    rates = list(map(float, options.rates.split(",")))
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        run("one", broker, Path(folder), (), 0)  # the first start makes the broker create its own topics
        for form in options.forms.split(","):
            print(json.dumps(run(form, broker, Path(folder), rates, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
