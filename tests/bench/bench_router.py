"""Tuples per CPU-second of the router's own path (decode, decide, encode) with every grouping.

Zipf 1.1 over 50,000 keys, W = 50, records of 16,000 tuples as the splitter writes them under load. The decision alone
is measured on the same batches. The time of `key` is the fixed cost. The groupings take turns, and the best round of
each is reported, because a busy machine slows down rounds but never speeds one up. One JSON line per grouping.

    PYTHONPATH=tests python tests/bench/bench_router.py [--tuples 1600000] [--workers 50] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import time

import msgspec
import numpy as np
import pyarrow as pa

from helpers.batches import FORMAT, ROW_FORMAT, encode_tuples, upstream
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from skewless.algorithms.grouping import GROUPINGS, GroupingOptions, KeyBatch, create
from skewless.lab.datasets.base import START_MS
from skewless.lab.datasets.zipf import cumulative, key_names
from skewless.stages.router.step import RouterStep
from skewless.wire.record import OutputRecord
from skewless.wire.tuples import TUPLES

Z, KEYS = 1.1, 50_000
BATCH = 16_000
PER_MS = 10
"""Tuples per millisecond of event time. The run is long enough for groupings that act once a minute."""
OPTIONS = GroupingOptions.model_validate({"clock": "event"})


def batches(tuples: int) -> list[InMemoryBatch]:
    random = np.random.default_rng(1)
    names = pa.array([name.decode() for name in key_names(random.permutation(KEYS))])
    steps = cumulative(KEYS, Z)
    made = []
    for first in range(0, tuples, BATCH):
        keys = names.take(pa.array(np.searchsorted(steps, random.random(BATCH), side="right"))).dictionary_encode()
        times = START_MS + np.arange(first, first + BATCH) // PER_MS
        record = encode_tuples(keys, np.ones(BATCH, dtype=np.int64), times)
        made.append(
            InMemoryBatch(0, [OutputRecord("tuples", record, headers=internal_headers(TUPLES, {0: int(times[-1])}))])
        )
    return made


def routed(name: str, workers: int, given: list[InMemoryBatch]) -> float:
    """Route all tuples; returns CPU seconds without the first batch."""
    grouping = create(name, workers, OPTIONS)
    step = RouterStep(
        grouping,
        FORMAT,
        ROW_FORMAT,
        max_workers=workers,
        encoding="batch",
        topic="tuples",
        snapshot_ms=1000,
        new_upstream=upstream,
    )
    step.assign(0, None, ())
    started = 0.0
    for index, batch in enumerate(given):
        if index == 1:
            started = time.process_time()
        for _ in (*step.process(batch, START_MS), *step.held_records()):
            pass
    return time.process_time() - started


def decided(name: str, workers: int, given: list[KeyBatch]) -> tuple[float, int]:
    """Decide all tuples; returns CPU seconds without the first batch, and the size of the final state in bytes."""
    grouping = create(name, workers, OPTIONS)
    grouping.assign(given[0], START_MS)
    started = time.process_time()
    for batch in given[1:]:
        grouping.assign(batch, START_MS)
    return time.process_time() - started, len(msgspec.msgpack.encode(grouping.snapshot()))


def decoded(batch: InMemoryBatch) -> KeyBatch:
    (columns,) = FORMAT.read(batch.values[0])
    keys = columns["key"]
    return KeyBatch(keys.dictionary.to_pylist(), keys.indices.to_numpy(), columns["time"].to_numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1_600_000)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    given = batches(args.tuples)
    key_batches = [decoded(batch) for batch in given]
    tuples = BATCH * (len(given) - 1)
    routing = {name: float("inf") for name in GROUPINGS}
    deciding = {name: (float("inf"), 0) for name in GROUPINGS}
    for _ in range(args.rounds):
        for name in GROUPINGS:
            routing[name] = min(routing[name], routed(name, args.workers, given))
            deciding[name] = min(deciding[name], decided(name, args.workers, key_batches))
    for name in GROUPINGS:
        seconds, size = deciding[name]
        line = {
            "bench": "router",
            "grouping": name,
            "workers": args.workers,
            "keys": KEYS,
            "z": Z,
            "tuples": tuples,
            "tuples_per_cpu_s": round(tuples / routing[name]),
            "path_ns_per_tuple": round(routing[name] / tuples * 1e9, 1),
            "decision_ns_per_tuple": round(seconds / tuples * 1e9, 1),
            "state_bytes": size,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
