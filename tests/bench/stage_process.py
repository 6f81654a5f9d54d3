"""Drains one stage in this process and prints a line of JSON with its CPU time, without start-up."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from pathlib import Path

from skewless.cli.run import COLLECTION
from skewless.config.loader import load
from skewless.service import run_stage


def main() -> None:
    stage, file = sys.argv[1:3]
    settings = load(Path(file), os.environ)
    gc.freeze()
    gc.set_threshold(*COLLECTION)
    cpu, wall = time.process_time(), time.monotonic()
    run_stage(stage, settings, drain=True)
    usage = {
        "cpu_s": round(time.process_time() - cpu, 3),
        "wall_s": round(time.monotonic() - wall, 3),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(usage))


if __name__ == "__main__":
    main()
