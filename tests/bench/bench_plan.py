"""Time and memory of `skewless plan` over all of a topic: 6 groupings, 3 numbers of workers.

JSON records (Zipf 1.1 over 50,000 keys) in 4 partitions of an embedded broker. Seconds are wall-clock time. CPU time
and memory are those of all processes of a run: Python, Java (the driver), and Spark's Python workers. One JSON line per
run. Memory should not grow with the number of records.

    PYTHONPATH=tests python tests/bench/bench_plan.py [--records 1000000,5000000]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from pathlib import Path

import yaml

from bench.usage import measured, produced
from skewless.lab.local.broker import Broker

GROUPINGS = "key,shuffle,partial_key,dynamic_key,d_choices,even"
WORKERS = "5,20,80"


def planned(bootstrap: str, records: int) -> dict[str, object]:
    topic = f"bench-{records}"
    produced(bootstrap, topic, records)
    pipeline = {
        "name": "bench",
        "source": {"topic": topic},
        "kafka": {"bootstrap_servers": bootstrap},
        "splitter": {"format": "json", "key": {"field": "key"}, "time": {"field": "time"}},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(yaml.safe_dump(pipeline))
        what = ("--sample", "all", "--grouping", GROUPINGS, "--workers", WORKERS)
        out, spark = str(Path(folder) / "out"), ("--master", "local[2]", "--driver-memory", "1g")
        usage = measured(["-m", "skewless", "plan", "-f", str(file), *what, "--out", out, *spark])
        entries = json.loads((Path(folder) / "out" / "plan.json").read_text())
    chosen = entries["recommendation"]
    found = {"recommended": f"{chosen['grouping']} on {chosen['workers']}", "candidates": len(entries["candidates"])}
    return {"bench": "plan", "tuples": entries["stream"]["tuples"], **found, **usage}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", default="1000000,5000000")
    parser.add_argument("--bootstrap-servers", help="A running broker, which keeps its topics bench-N.")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        bootstrap = options.bootstrap_servers or stack.enter_context(Broker()).bootstrap
        for records in map(int, options.records.split(",")):
            print(json.dumps(planned(bootstrap, records)), flush=True)


if __name__ == "__main__":
    main()
