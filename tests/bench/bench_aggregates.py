"""Cost of each further value and of each aggregate: ns per tuple in each stage, and bytes per key and window.

JSON, Zipf 1.1 over 10,000 keys, four windows, commits of 100,000 tuples. The steps of the stages run one after the
other in this process, without Kafka. The first line has the CPU time of a pipeline that counts one value, and the bytes
of its state per key of a window. The others have what they need more. The cases take turns, and the shortest time of
each stage counts, because a busy machine slows down rounds but never speeds one up.

`--against` compares the pipeline without new settings with another version, such as 0.2.0, of which it names the folder
`services`. Both versions take turns, in processes of their own.

    PYTHONPATH=services:tests python tests/bench/bench_aggregates.py [--tuples 400000] [--rounds 5] [--against FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from helpers.batches import source
from helpers.in_memory_batch import InMemoryBatch
from helpers.stage_start import in_memory
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.step import InputStep, Sample
from skewless.lab.datasets.base import START_MS
from skewless.lab.datasets.zipf import cumulative
from skewless.stages.built_stage import build
from skewless.wire.record import OutputRecord

Z, KEYS, USERS = 1.1, 10_000, 100_000
POLL, COMMIT = 20_000, 100_000
"""Records of a batch, and tuples of a commit."""
WARM_UP = 5_000
"""Records that are processed first, which compiles what the stages compile."""
WINDOWS, WINDOW_MS = 4, 60_000
STAGES = {"splitter": "tuples", "router": "worker-input", "worker": "partials", "aggregator": ""}
"""Stages, and the topic that the next one reads."""
PRICE = {"price": {"field": "price", "decimals": 2}}
USER = {"user": {"field": "user", "kind": "text"}}
PLAIN, BASE = "a pipeline without new settings", "count of one value"
VALUES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    BASE: (PRICE, ["count"]),
    "a second number": ({**PRICE, "quantity": {"field": "quantity"}}, ["count"]),
    "a product": ({**PRICE, "amount": {"field": "price", "times": "quantity", "decimals": 2}}, ["count"]),
    "an optional number": ({**PRICE, "quantity": {"field": "quantity", "missing": "skip"}}, ["count"]),
    "a text": (PRICE | USER, ["count"]),
    **{name: (PRICE, ["count", {name: "price"}]) for name in ("sum", "mean", "min", "max", "first", "last", "stddev")},
    "largest, n: 3": (PRICE, ["count", {"largest": "price", "n": 3}]),
    "smallest, n: 3": (PRICE, ["count", {"smallest": "price", "n": 3}]),
    "quantile, at: [0.5, 0.99]": (PRICE, ["count", {"quantile": "price", "at": [0.5, 0.99]}]),
    "distinct, with its text": (PRICE | USER, ["count", {"distinct": "user"}]),
    "distinct, precision: 16, with its text": (PRICE | USER, ["count", {"distinct": "user", "precision": 16}]),
}
"""Values and aggregates of each case."""
CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    PLAIN: ({"value": PRICE["price"]}, ["count", "sum"]),
    **{name: ({"values": values}, aggregates) for name, (values, aggregates) in VALUES.items()},
}
"""Settings of the splitter, and aggregates, of each case."""
WORKERS = 8


def settings_of(splitter: Mapping[str, Any], aggregates: Sequence[Any]) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "name": "bench",
            "source": {"topic": "source"},
            "splitter": {"format": "json", "key": {"field": "key"}, "time": {"field": "time"}, **splitter},
            "router": {"grouping": "key", "workers": WORKERS},
            "worker_input": {"max_workers": WORKERS},
            "topics": {"aggregator_partitions": 1},
            "aggregator": {"window_s": WINDOW_MS / 1000, "aggregates": aggregates, "emit": "final"},
        }
    )


def source_records(tuples: int) -> list[OutputRecord]:
    """Return records of one source partition whose times are in the first windows, in order."""
    random = np.random.default_rng(1)
    keys = np.searchsorted(cumulative(KEYS, Z), random.random(tuples), side="right")
    users, prices = random.integers(0, USERS, tuples), random.lognormal(6, 1.5, tuples).astype(np.int64)
    line = b'{"key":"key%d","time":%d,"price":%d.%02d,"quantity":%d,"user":"user-%d"}'
    rows = zip(keys.tolist(), prices.tolist(), users.tolist(), strict=True)
    return [
        OutputRecord(
            "source",
            line % (key, START_MS + number * WINDOWS * WINDOW_MS // tuples, price // 100, price % 100, user % 9, user),
        )
        for number, (key, price, user) in enumerate(rows)
    ]


def by_partition(records: Iterable[OutputRecord], size: int) -> list[InMemoryBatch]:
    """Return records in batches of one partition each."""
    partitions: defaultdict[int, list[OutputRecord]] = defaultdict(list)
    for record in records:
        partitions[record.partition or 0].append(record)
    return [
        InMemoryBatch(partition, part[first : first + size])
        for partition, part in sorted(partitions.items())
        for first in range(0, len(part), size)
    ]


def measured(settings: PipelineSettings, records: Sequence[OutputRecord]) -> tuple[dict[str, float], float]:
    """Run all stages over some records. Returns ns per tuple by stage, and bytes of state per key and window."""
    steps: dict[str, InputStep[Any]] = {stage: build(in_memory(stage, settings, 1)).step for stage in STAGES}
    for stage, step in steps.items():
        for partition in range(WORKERS if stage == "worker" else 1):
            step.assign(step.key_of(source(partition)), None, ())
    spent = dict.fromkeys(STAGES, 0.0)
    for first in range(0, len(records), COMMIT):
        outputs = list(records[first : first + COMMIT])
        for stage, topic in STAGES.items():
            batches = by_partition(outputs, POLL)
            started = time.process_time()
            sent = [output for batch in batches for output in steps[stage].process(batch, START_MS)]
            sent += steps[stage].flush(START_MS)
            spent[stage] += time.process_time() - started
            outputs = [output for output in sent if output.topic == topic]
    metrics = steps["aggregator"].collect_metrics()
    samples = {sample.name: sample.value for sample in metrics if isinstance(sample, Sample)}
    keys = samples["skewless_aggregator_keys"]
    return {stage: seconds / len(records) * 1e9 for stage, seconds in spent.items()}, (
        samples["skewless_state_bytes"] / keys
    )


def best_of(names: Iterable[str], tuples: int, rounds: int) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the shortest time of each stage, and the bytes of state, of some cases."""
    settings = {name: settings_of(*CASES[name]) for name in names}
    best: dict[str, dict[str, float]] = {name: dict.fromkeys(STAGES, float("inf")) for name in settings}
    state: dict[str, float] = {}
    records = source_records(tuples)
    for case in settings.values():
        measured(case, records[:WARM_UP])
    for _ in range(rounds):
        for name, case in settings.items():
            spent, state[name] = measured(case, records)
            best[name] = {stage: min(spent[stage], best[name][stage]) for stage in STAGES}
    return best, state


def report(run: str, tuples: int, ns: Mapping[str, float], **more: object) -> None:
    rounded = {stage: round(ns[stage]) for stage in STAGES}
    line = {"bench": "aggregates", "run": run, "tuples": tuples, "ns_per_tuple": rounded, "all": sum(rounded.values())}
    print(json.dumps(line | more), flush=True)


def compare(against: Path, tuples: int, rounds: int) -> None:
    """Measure this version and another one in turn."""
    packages = {"this version": Path(__file__).parents[2] / "services", "the other version": against}
    best = {version: dict.fromkeys(STAGES, float("inf")) for version in packages}
    for _ in range(rounds):
        for version, package in packages.items():
            paths = os.pathsep.join(map(str, (package, Path(__file__).parents[1])))
            command = [sys.executable, __file__, "--only", PLAIN, "--rounds", "2", "--tuples", str(tuples)]
            done = subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": paths})
            found = json.loads(done.stdout)["ns_per_tuple"]
            best[version] = {stage: min(found[stage], best[version][stage]) for stage in STAGES}
    for version, ns in best.items():
        report(f"{PLAIN}, {version}", tuples, ns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=CASES, help="one case, with its whole time")
    parser.add_argument("--against", type=Path)
    args = parser.parse_args()
    if args.against:
        compare(args.against, args.tuples, args.rounds)
        return
    best, state = best_of([args.only] if args.only else VALUES, args.tuples, args.rounds)
    for name, spent in best.items():
        base = BASE if name != BASE and not args.only else None
        less = best[base] if base else dict.fromkeys(STAGES, 0.0)
        ns = {stage: spent[stage] - less[stage] for stage in STAGES}
        more_bytes = round(state[name] - (state[base] if base else 0))
        report(name, args.tuples, ns, bytes_per_key_and_window=more_bytes)


if __name__ == "__main__":
    main()
