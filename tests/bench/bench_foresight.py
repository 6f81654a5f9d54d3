"""Predictions of `skewless plan` compared with live runs of the same tuples, for every grouping.

JSON records (Zipf 1.1 over 50,000 keys) in 4 partitions of an embedded broker. A pipeline of one process per stage runs
to the end with each grouping in turn. Its router uses event time, as a plan does. Then `evaluate` measures the runs.
One JSON line per grouping: `off` is live / predicted - 1. The imbalance is a fraction of all tuples. Where it is a few
tuples among millions, its `off` is not meaningful.

    PYTHONPATH=tests python tests/bench/bench_foresight.py [--records 1000000] [--workers 20] [--routers 1]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.usage import measured, produced
from skewless.lab.local.broker import Broker

GROUPINGS = "key,shuffle,partial_key,dynamic_key,d_choices,even"
MEASURES = ("imbalance", "max_over_avg", "replication_factor")
SPARK = ("--master", "local[2]", "--driver-memory", "1g")


def ran(bootstrap: str, topic: str, grouping: str, options: argparse.Namespace, folder: Path) -> Path:
    """Run a pipeline to the end of the topic; returns its file."""
    file = folder / f"{grouping}.yaml"
    document = {
        "name": f"{topic}-{grouping.replace('_', '-')}",
        "source": {"topic": topic},
        "kafka": {"bootstrap_servers": bootstrap},
        "splitter": {"format": "json", "key": {"field": "key"}, "time": {"field": "time"}},
        "router": {"grouping": grouping, "workers": options.workers, "clock": "event"},
        "worker_input": {"max_workers": options.workers},
        "replicas": {"router": options.routers},
    }
    file.write_text(yaml.safe_dump(document))
    measured(["-m", "skewless", "up", "-f", str(file), "--drain", "--log-dir", str(folder / "logs")])
    return file


def evaluated(files: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """Measure the runs, in the order of their files."""
    named = [part for file in files for part in ("-f", str(file))]
    measured(["-m", "skewless", "evaluate", *named, "--out", str(folder / "live"), *SPARK])
    runs: list[dict[str, Any]] = json.loads((folder / "live" / "evaluation.json").read_text())["runs"]
    return runs


def foreseen(file: Path, groupings: str, options: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """Plan for the same tuples; grouping -> measures."""
    what = ("--sample", "all", "--grouping", groupings, "--workers", str(options.workers))
    measured(["-m", "skewless", "plan", "-f", str(file), *what, "--out", str(folder / "plan"), *SPARK])
    entries = json.loads((folder / "plan" / "plan.json").read_text())
    return {each["grouping"]: each for each in entries["candidates"]}


def line(grouping: str, plan: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, object]:
    """Print the prediction and the measurement of each grouping."""
    off = {name: round(live[name] / plan[name] - 1, 5) if plan[name] else None for name in MEASURES}
    sides = {side: {name: entries[name] for name in MEASURES} for side, entries in (("plan", plan), ("live", live))}
    return {"bench": "foresight", "grouping": grouping, "tuples": live["tuples"], **sides, "off": off}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--groupings", default=GROUPINGS)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--routers", type=int, default=1)
    options = parser.parse_args()
    groupings, topic = options.groupings.split(","), f"bench-{options.records}"
    with contextlib.ExitStack() as stack:
        bootstrap = stack.enter_context(Broker()).bootstrap
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        produced(bootstrap, topic, options.records)
        files = [ran(bootstrap, topic, grouping, options, folder) for grouping in groupings]
        plan = foreseen(files[0], options.groupings, options, folder)
        for grouping, live in zip(groupings, evaluated(files, folder), strict=True):
            print(json.dumps(line(grouping, plan[grouping], live)), flush=True)


if __name__ == "__main__":
    main()
