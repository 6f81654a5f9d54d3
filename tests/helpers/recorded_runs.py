"""Pipelines that have run to their end, for tests of the contents of their topics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from helpers.kafka import Pipeline, Source, zipf_records

TUPLES = int(os.environ.get("SKEWLESS_RECORDED_TUPLES", "12000"))
"""Valid records of the source, including late ones; a multiple of its partitions."""
PARTITIONS = 3
INVALID = [(0, b"oops"), (1, None), (2, b'{"key":"far","value":1,"time":9999999999999}')]
"""Invalid records after the valid ones. The last one has a time in the far future."""
WORKERS = 3
WINDOW_MS, TICK_MS = 120_000, 60_000


def recorded(broker: str, folder: Path) -> Iterator[Pipeline]:
    """Run pipelines to the end of one source: `key` with a record for each tuple, `even` with batches, and `local`."""
    source = Source(broker, PARTITIONS)
    source.send(zipf_records(TUPLES, PARTITIONS, seed=3, keys=500))
    source.send(INVALID)
    for grouping, encoding in (("key", "record"), ("even", "batch"), ("local", "batch")):
        pipeline = Pipeline(
            broker,
            folder,
            source,
            worker_input={"max_workers": WORKERS + 1, "encoding": encoding},
            router={"grouping": grouping, "workers": WORKERS},
            topics={"aggregator_partitions": 1},
            aggregator={"window_s": WINDOW_MS / 1000},
            observer={"tick_s": TICK_MS / 1000},
            event_time={"allowed_lateness_s": 5},
        )
        pipeline.drain()
        yield pipeline
