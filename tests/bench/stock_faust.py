"""The same four stages in stock Faust (aiokafka, at least once), one record at a time.

`python stock_faust.py STAGE BOOTSTRAP PREFIX RECORDS` processes that many records and prints a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import faust
import mmh3

WORKERS = 8
PARTITIONS = 4
PANE_MS = 15_000
WINDOW_MS = 60_000
FLUSH_S = 0.5
TOPICS = {"splitter": "events", "router": "tuples", "worker": "worker-input", "aggregator": "partials"}
NEXT = {"splitter": "tuples", "router": "worker-input", "worker": "partials", "aggregator": "aggregates"}


class Meter:
    """Counts records and ends the process after the last one. CPU time is taken from the first record to the last."""

    def __init__(self, records: int) -> None:
        self.left = self.records = records
        self.cpu = self.wall = 0.0

    async def tick(self, before_end: Callable[[], Awaitable[None]]) -> None:
        if self.left == self.records:
            self.cpu, self.wall = time.process_time(), time.monotonic()
        self.left -= 1
        if self.left == 0:
            await before_end()
            usage = {"cpu_s": time.process_time() - self.cpu, "wall_s": time.monotonic() - self.wall}
            print(json.dumps({name: round(value, 3) for name, value in usage.items()}), flush=True)
            os._exit(0)  # the shutdown of Faust that follows is not measured


def main() -> None:
    stage, bootstrap, prefix, records = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    app = faust.App(
        f"{prefix}-stock-{stage}",
        broker=f"kafka://{bootstrap}",
        datadir=tempfile.mkdtemp(),
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
    )
    source = app.topic(f"{prefix}.{TOPICS[stage]}", value_serializer="raw")
    target = app.topic(f"{prefix}.{NEXT[stage]}", value_serializer="raw")
    meter = Meter(records)
    declare = {"splitter": splitter, "router": router, "worker": worker, "aggregator": aggregator}[stage]
    declare(app, source, target, meter)

    async def run() -> None:
        await app.start()
        await asyncio.sleep(600)

    asyncio.run(run())


def splitter(app: Any, source: Any, target: Any, meter: Meter) -> None:
    async def flush() -> None:
        await app.producer.flush()

    async def split(stream: Any) -> None:
        async for event in stream.events():
            record = json.loads(event.value)
            value = json.dumps({"key": record["key"], "value": record["value"], "time": record["time"]}).encode()
            await target.send(value=value, partition=event.message.partition)
            await meter.tick(flush)

    app.agent(source)(split)


def router(app: Any, source: Any, target: Any, meter: Meter) -> None:
    loads = [0] * WORKERS

    async def flush() -> None:
        await app.producer.flush()

    async def route(stream: Any) -> None:
        async for value in stream:
            key = json.loads(value)["key"]
            first, second = (abs(mmh3.hash64(key, seed, x64arch=True)[0]) % WORKERS for seed in (13, 17))
            chosen = first if loads[first] <= loads[second] else second
            loads[chosen] += 1
            await target.send(value=value, partition=chosen)
            await meter.tick(flush)

    app.agent(source)(route)


def worker(app: Any, source: Any, target: Any, meter: Meter) -> None:
    panes: defaultdict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])

    async def flush() -> None:
        used = dict(panes)
        panes.clear()
        for (pane, key), (count, total) in used.items():
            partition = mmh3.hash(key) % PARTITIONS
            value = json.dumps({"pane": pane, "key": key, "count": count, "sum": total}).encode()
            await target.send(value=value, partition=partition)
        await app.producer.flush()

    app.timer(FLUSH_S)(flush)

    async def work(stream: Any) -> None:
        async for value in stream:
            record = json.loads(value)
            slot = panes[record["time"] // PANE_MS * PANE_MS, record["key"]]
            slot[0] += 1
            slot[1] += record["value"]
            await meter.tick(flush)

    app.agent(source)(work)


def aggregator(app: Any, source: Any, target: Any, meter: Meter) -> None:
    windows: defaultdict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    changed: set[tuple[int, str]] = set()

    async def flush() -> None:
        used = list(changed)
        changed.clear()
        for window, key in used:
            count, total = windows[window, key]
            value = json.dumps({"window_start": window, "key": key, "count": count, "sum": total}).encode()
            await target.send(key=f"{window}/{key}".encode(), value=value)
        await app.producer.flush()

    app.timer(FLUSH_S)(flush)

    async def merge(stream: Any) -> None:
        async for value in stream:
            record = json.loads(value)
            at = (record["pane"] // WINDOW_MS * WINDOW_MS, record["key"])
            slot = windows[at]
            slot[0] += record["count"]
            slot[1] += record["sum"]
            changed.add(at)
            await meter.tick(flush)

    app.agent(source)(merge)


if __name__ == "__main__":
    main()
