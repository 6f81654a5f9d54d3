"""Runs `skewless` with the garbage collected every few seconds, so that allocated blocks are what is really held.

CPython collects its oldest generation only when a quarter more objects have come, which looks like growth for minutes.
"""

from __future__ import annotations

import gc
import threading
import time

from skewless.cli.main import main

EVERY_S = 5.0


def collect() -> None:
    """Collect for as long as the process lives."""
    while True:
        time.sleep(EVERY_S)
        gc.collect()


if __name__ == "__main__":
    threading.Thread(target=collect, name="collect", daemon=True).start()
    main()
