"""Tuples per second that a pipeline sustains if each row costs a worker 1 ms, without and with local aggregation.

JSON, Zipf 1.4 and 2.0 over 50,000 keys, W = 16, commits every 500 ms, exactly once. Each stage drains its topic in a
separate process. The pipeline sustains what its slowest stage does. A stage needs time to join its group, whatever it
processes; a run over few records measures this time, which is subtracted. One line of JSON per run, and one for each
run with local aggregation with its ratio to the others.

    PYTHONPATH=services:tests python tests/bench/bench_local_cost.py [--records 1000000] [--even 150000] [--key 20000]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.bench_pipeline import MEASURED, drained, pipeline, produce
from skewless.lab.local.broker import Broker

WORKERS = 16
COST_MS = 1
FEW_RECORDS = 1_000
RESOLUTION_S = 0.5
"""Times to join a group differ by as much. A stage that needs less is at least as fast as its figure."""
EXPONENTS = ("1.4", "2.0")
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "even": ("even", {"mode": "none"}),
    "key": ("key", {"mode": "none"}),
    "local, buffer": ("key", {"mode": "buffer"}),
    "local, windows of 5 s": ("key", {"mode": "windows", "window_s": 5}),
}
"""Grouping and local aggregation of each run."""


def document(name: str, bootstrap: str, run: str, topic: str) -> dict[str, Any]:
    grouping, local = RUNS[run]
    made = pipeline(name, bootstrap, "exactly_once", grouping, topic)
    made["splitter"]["local"] = local
    made["router"]["workers"] = made["worker_input"]["max_workers"] = WORKERS
    made["worker"] = {"cost": {"cycle": 1, "process_duration_ms": COST_MS}}
    return made


def measured(bootstrap: str, folder: Path, exponent: str, sizes: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Run a pipeline with each grouping, over as many records as it needs for a stable figure."""
    rates: dict[str, float] = {}
    for number, (run, records) in enumerate(sizes.items()):
        wall_s: dict[int, dict[str, float]] = {}
        for size in (FEW_RECORDS, records):
            topic = f"events-{exponent.replace('.', '-')}-{size}"
            if number == 0 or size not in [FEW_RECORDS, *list(sizes.values())[:number]]:
                produce(bootstrap, topic, size, "--zipf-exponent", exponent, "--event-rate", "100000")
            made = document(f"p{number}-{topic}", bootstrap, run, topic)
            wall_s[size] = {stage: usage["wall_s"] for stage, usage in drained(folder, made)}
        added = records - FEW_RECORDS
        stages = {
            stage: added / max(RESOLUTION_S, wall_s[records][stage] - wall_s[FEW_RECORDS][stage]) for stage in MEASURED
        }
        rates[run] = min(stages.values())
        yield {
            "bench": "local cost",
            "zipf": exponent,
            "run": run,
            "records": records,
            "tuples_per_s": round(rates[run]),
            "by_stage": {stage: round(rate) for stage, rate in stages.items()},
        }
    for run in list(RUNS)[2:]:
        yield {
            "bench": "local cost",
            "zipf": exponent,
            "run": run,
            "of_even": round(rates[run] / rates["even"], 1),
            "of_key": round(rates[run] / rates["key"], 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--even", type=int, default=150_000, help="records without local aggregation, grouping even")
    parser.add_argument("--key", type=int, default=20_000, help="the same, grouping key")
    args = parser.parse_args()
    sizes = dict.fromkeys(RUNS, args.records) | {"even": args.even, "key": args.key}
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        for exponent in EXPONENTS:
            for line in measured(broker.bootstrap, Path(folder), exponent, sizes):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
