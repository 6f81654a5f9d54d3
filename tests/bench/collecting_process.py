"""Runs `skewless` with a garbage collection every few seconds, so that allocated blocks are live objects.

CPython collects its oldest generation only after the number of objects has grown by a quarter, which looks like a leak
for minutes.
"""

from __future__ import annotations

import gc
import threading
import time

from skewless.cli.main import main

EVERY_S = 5.0


def collect() -> None:
    """Collect garbage until the process ends."""
    while True:
        time.sleep(EVERY_S)
        gc.collect()


if __name__ == "__main__":
    threading.Thread(target=collect, name="collect", daemon=True).start()
    main()
