"""`skewless inspect`: accuracy on recorded files, time of a million records, and memory with ten million keys.

The files are compared with exact counts: the share of each of the 20 hottest keys, and the exponent of Zipf's law. One
JSON line per measurement. The exit code is 1 if a measurement is above its limit.

    PYTHONPATH=tests python tests/bench/bench_inspect.py [--data FOLDER] [--records 1000000] [--keys 10000000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from skewless.lab.datasets import DatasetOptions, find_dataset
from skewless.lab.inspection.zipf_fit import fit
from skewless.lab.local.broker import Broker
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

FILES = {
    "ticker": ("twitter_ticker_2014-01_2015-03.jsonl.zst", "ticker"),
    "pages": ("http_nasa_by_page_19950701.tsv.zst", "1"),
    "sales": ("retail_hour_category_2010-12_2011-06.csv.zst", "1"),
    "pagecounts": ("pagecounts-20160801-000000.txt.zst", "1"),
}
"""Data set -> file, and the field that is the key."""
PARTITIONS = 4
LIMITS: dict[str, dict[str, float]] = {
    "inspect-accuracy": {"worst_share_error": 0.01, "zipf_error": 0.01, "other_hottest_keys": 0},
    "inspect-cost": {"seconds_per_million": 10, "memory_mb": 300},
}
"""Largest magnitude of each measure, by bench."""
COMMAND = """
import atexit, pathlib, sys
from skewless.cli.main import main

def report_peak():
    status = pathlib.Path("/proc/self/status").read_text()
    print(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1], file=sys.stderr)

atexit.register(report_peak)
main()
"""
"""Runs the command line, and prints the peak of its resident memory in KiB.

The peak that the parent of a process gets is at least the parent's own memory at the fork.
"""


def write(bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must outlive its futures
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=number // 100 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise SystemExit(f"{topic}: not all records were delivered")


def inspect(bootstrap: str, topic: str, *options: str) -> tuple[dict[str, Any], float, float]:
    """Run the command; return its measures, its seconds, and its peak resident memory in MB."""
    started = time.monotonic()
    command = [sys.executable, "-c", COMMAND, "inspect", topic, "-b", bootstrap, "--json", "-q", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{topic}: {done.stderr}")
    return json.loads(done.stdout), time.monotonic() - started, int(done.stderr.split()[-1]) * 1024 / 1e6


def accuracy(bootstrap: str, folder: Path, dataset: str) -> dict[str, Any]:
    """Compare the measures of a file with exact counts."""
    file, key = FILES[dataset]
    batches = find_dataset(dataset).batches(DatasetOptions(input=(folder / file,)))
    values = [value for batch in batches for value in batch.values]
    write(bootstrap, dataset, values)
    found, seconds, memory_mb = inspect(bootstrap, dataset, "--key", key)
    chosen = found["keys"][0]
    parser = RecordParser(ParsingSettings.model_validate(chosen["splitter"]))
    parsed = parser.parse(RecordColumns.of_values(values, np.zeros(len(values), dtype=np.int64)))
    exact = Counter(parsed.keys)
    expected = fit(np.array(sorted(exact.values(), reverse=True)))
    share_errors = [abs(entry["count"] / exact[entry["key"]] - 1) for entry in chosen["top"]]
    zipf_error = chosen["zipf"]["exponent"] / expected["exponent"] - 1 if expected and chosen["zipf"] else None
    return {
        "bench": "inspect-accuracy",
        "file": file,
        "records": len(values),
        "keys": len(exact),
        "worst_share_error": max(share_errors),
        "other_hottest_keys": len({entry["key"] for entry in chosen["top"]} - hottest_keys(exact)),
        "zipf_error": zipf_error,
        "seconds": round(seconds, 2),
        "memory_mb": round(memory_mb),
    }


def hottest_keys(exact: Counter[str]) -> set[str]:
    """Return the 20 hottest keys, and those with as many tuples as the last of them."""
    (_, smallest), *_ = reversed(exact.most_common(20))
    return {key for key, count in exact.items() if count >= smallest}


def json_records(records: int, keys: int) -> Iterator[bytes]:
    """Yield records whose keys are uniform (`keys` distinct ones in turn), or Zipf if there are fewer than records."""
    if keys >= records:
        ranks: Iterable[int] = range(records)
    else:
        weights = 1 / np.arange(1, keys + 1)
        ranks = np.random.default_rng(1).choice(keys, records, p=weights / weights.sum()).tolist()
    return (
        b'{"user":"u%d","value":%d,"time":%d}' % (rank, i % 100, 1_767_225_600_000 + i) for i, rank in enumerate(ranks)
    )


def cost(bootstrap: str, records: int, keys: int) -> dict[str, Any]:
    """Measure the command on a topic of JSON records."""
    topic = f"records-{records}-keys-{keys}"
    write(bootstrap, topic, json_records(records, keys))
    found, seconds, memory_mb = inspect(bootstrap, topic, "--records", str(records), "--key", "user")
    chosen = found["keys"][0]
    return {
        "bench": "inspect-cost",
        "records": found["records"],
        "keys": chosen["cardinality"],
        "seconds": round(seconds, 2),
        "seconds_per_million": round(seconds / max(1, found["records"] / 1_000_000), 2),
        "memory_mb": round(memory_mb),
    }


def misses(measured: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each measure above its limit."""
    for name, limit in LIMITS[measured["bench"]].items():
        if measured[name] is not None and abs(measured[name]) > limit:
            yield f"{measured['bench']}: {name} is {measured[name]}, more than {limit:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the recorded files; default: no measurement of accuracy")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000_000)
    options = parser.parse_args()
    missed: list[str] = []
    with Broker() as broker:
        for measured in measurements(broker.bootstrap, options):
            print(json.dumps(measured), flush=True)
            missed += misses(measured)
    if missed:
        raise SystemExit("\n".join(missed))


def measurements(bootstrap: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield all measurements."""
    if options.data is not None:
        for dataset in FILES:
            yield accuracy(bootstrap, options.data, dataset)
    yield cost(bootstrap, options.records, min(50_000, options.records // 2))
    yield cost(bootstrap, options.keys, options.keys)


if __name__ == "__main__":
    main()
