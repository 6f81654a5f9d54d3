"""Cost of adaptive local aggregation where it cannot help: uniform keys, each of them rare, at full speed.

The records of a topic are drained by the splitter, the router and the worker, each in a separate process. Runs without
and with local aggregation alternate. CPU time is that of the whole process without start-up; memory is the peak of the
process. One JSON line per run, and one per number of keys with the comparison.

    PYTHONPATH=tests python tests/bench/bench_local_uniform.py [--records 5000000] [--keys 5000000,50000000]
    [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.bench_inspect import write
from bench.bench_pipeline import drained, pipeline
from skewless.lab.local.broker import Broker

START_MS = 1_767_225_600_000
DRAINED = ("splitter", "router", "worker")
RUNS: dict[str, dict[str, Any]] = {"none": {"mode": "none"}, "adaptive": {"mode": "buffer", "adaptive": True}}


def uniform_records(records: int, keys: int) -> Iterator[bytes]:
    """Yield records whose event time advances by a second per 100,000 records."""
    numbers = np.random.default_rng(1).integers(0, keys, records)
    for index, number in enumerate(numbers.tolist()):
        yield b'{"key":"key-%d","value":1,"time":%d}' % (number, START_MS + index // 100)


def compared(bootstrap: str, folder: Path, keys: int, records: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Alternate runs without and with local aggregation over a topic of uniform keys."""
    topic = f"uniform-{keys}"
    write(bootstrap, topic, uniform_records(records, keys))
    cpu_s: dict[str, list[float]] = {name: [] for name in RUNS}
    peak_mb: dict[str, list[int]] = {name: [] for name in RUNS}
    for repeat in range(repeats):
        for name in list(RUNS) if repeat % 2 == 0 else reversed(RUNS):
            document = pipeline(f"{topic}-{name}-{repeat}", bootstrap, "exactly_once", "key", topic)
            document["splitter"]["local"] = RUNS[name]
            usage = dict(drained(folder, document, DRAINED))
            cpu_s[name].append(sum(each["cpu_s"] for each in usage.values()))
            peak_mb[name].append(usage["splitter"]["rss_mb"])
            yield {"bench": "local uniform", "keys": keys, "records": records, "run": name, **usage}
    none, adaptive = (statistics.median(cpu_s[name]) for name in RUNS)
    yield {
        "bench": "local uniform",
        "keys": keys,
        "records": records,
        "cpu_s": [round(none, 2), round(adaptive, 2)],
        "cpu_ratio": round(adaptive / none, 3),
        "splitter_peak_mb": [max(peak_mb[name]) for name in RUNS],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--keys", default="5000000,50000000")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        for keys in map(int, args.keys.split(",")):
            for line in compared(broker.bootstrap, Path(folder), keys, args.records, args.repeats):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
