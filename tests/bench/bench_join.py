"""Records per CPU-second of the join's step, memory per held record, and time to take over held records.

Impressions and clicks of 200 bytes as JSON, of which 9 of 10 match, mostly within a second. The step parses, joins and
encodes outputs and changelog records; no broker takes part, so clients and transactions are not included. Memory and
restore are measured with left records of 100 bytes that wait for a partner: growth of the resident memory, and the time
from stored records to a step that can process. One JSON line per measurement.

    PYTHONPATH=tests python tests/bench/bench_join.py [--records 1000000] [--held 1000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Sequence

import numpy as np
import psutil

from helpers.in_memory_batch import InMemoryBatch
from helpers.join_stage import NOW, PARTITIONS, TOPICS, step_rules
from skewless.algorithms.join.held_records import records_of
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.lab.datasets import DATASETS, DatasetOptions
from skewless.stages.join.step import JoinState, JoinStep
from skewless.wire.join_changelog import JoinCheckpoint, encode_checkpoint
from skewless.wire.record import OutputRecord

RULES = JoinRules(apart_ms=5_000, left_disorder_ms=0, right_disorder_ms=5_000)
RECORD_BYTES, HELD_BYTES = 200, 100
POLLED = 5_000
"""Records of a batch."""
BATCHES_PER_COMMIT = 10


def padded(value: bytes, size: int) -> bytes:
    """Return a JSON object with a field that fills it up to `size` bytes."""
    return value[:-1] + b',"padding":"' + b"x" * (size - len(value) - 13) + b'"}'


def as_json(value: bytes) -> bytes:
    """Return an impression or a click, whose first columns are id and time, as a JSON object."""
    identifier, at, *_ = value.decode().split(";")
    return json.dumps({"id": identifier, "time": int(at)}).encode()


def records(name: str, count: int) -> list[OutputRecord]:
    options = DatasetOptions(event_rate=5_000, records=count)
    return [
        OutputRecord(name, padded(as_json(value), RECORD_BYTES), key)
        for batch in DATASETS[name].batches(options)
        for key, value in zip(batch.keys or (), batch.values, strict=True)
    ]


def joined(left: Sequence[OutputRecord], right: Sequence[OutputRecord]) -> tuple[float, int]:
    """Join both logs at the same pace; returns CPU seconds and the number of pairs."""
    step = JoinStep(step_rules(RULES, max_ahead_ms=10**15, buffer_records=10**7))
    for partition in PARTITIONS.values():
        step.assign(partition, None, ())
    rounds = -(-len(left) // POLLED)
    logs = {Side.LEFT: left, Side.RIGHT: right}
    batches = [
        InMemoryBatch(0, part, range(first, first + len(part)), topic=TOPICS[side])
        for number in range(rounds)
        for side, log in logs.items()
        for first in [number * len(log) // rounds]
        for part in [log[first : (number + 1) * len(log) // rounds]]
    ]
    pairs = 0
    started = time.process_time()
    for number, batch in enumerate(batches):
        for output in step.process(batch, NOW):
            pairs += output.topic == "joined"
        if number % BATCHES_PER_COMMIT == 0:
            for _ in step.flush(NOW):
                pass
            for partition in PARTITIONS.values():
                step.checkpoint(partition)
    return time.process_time() - started, pairs


def held(count: int) -> tuple[float, float]:
    """Take over `count` held records; returns bytes per record on top of its own, and seconds."""
    gc.collect()
    before = psutil.Process().memory_info().rss
    numbers = np.arange(count)
    values = (b'{"id":"ad-%09d","time":%d,"padding":"%s"}' % (n, n, b"x" * 50) for n in range(count))
    state = JoinState(records_of((f"ad-{n:09d}" for n in range(count)), numbers, numbers, values))
    size = sum(map(len, state.held.values))
    step = JoinStep(step_rules(RULES, max_ahead_ms=10**15, buffer_records=10**8))
    started = time.perf_counter()
    step.assign(PARTITIONS[Side.LEFT], encode_checkpoint(JoinCheckpoint(0, None, 1)), state)
    step.assign(PARTITIONS[Side.RIGHT], None, ())
    seconds = time.perf_counter() - started
    del state
    gc.collect()
    return (psutil.Process().memory_info().rss - before - size) / count, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--held", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    overhead, seconds = held(args.held)
    line = {"bench": "join-held", "held": args.held, "overhead_bytes_per_record": round(overhead)}
    print(json.dumps(line | {"restore_step_s": round(seconds, 2)}), flush=True)
    left, right = records("impressions", args.records), records("clicks", args.records)
    best, pairs = min(joined(left, right) for _ in range(args.rounds))
    total = len(left) + len(right)
    line = {"bench": "join", "records": total, "record_bytes": RECORD_BYTES, "pairs": pairs}
    print(json.dumps(line | {"records_per_cpu_s": round(total / best)}), flush=True)


if __name__ == "__main__":
    main()
