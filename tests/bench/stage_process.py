"""Drains one stage in this process and prints a line of JSON with its CPU time, without start-up."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import time
from pathlib import Path

from skewless.cli.commands.run import COLLECTION
from skewless.config.loader import load
from skewless.service import run_stages


def peak_rss_bytes() -> int:
    """Return the peak of the resident memory. `ru_maxrss` does not serve: it begins with the peak of the parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])  # type: ignore[index]  # Linux has this line


def main() -> None:
    stage, file = sys.argv[1:3]
    settings = load(Path(file), os.environ)
    gc.freeze()
    gc.set_threshold(*COLLECTION)
    cpu, wall = time.process_time(), time.monotonic()
    run_stages([stage], settings, drain=True)
    usage = {
        "cpu_s": round(time.process_time() - cpu, 3),
        "wall_s": round(time.monotonic() - wall, 3),
        "rss_mb": round(peak_rss_bytes() / 1e6),
    }
    print(json.dumps(usage))


if __name__ == "__main__":
    main()
