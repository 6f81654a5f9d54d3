"""Generates the page docs/reference/growth.md from the lines of bench_growth.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from skewless.algorithms.watermark import MAX_SOURCE_PARTITIONS
from skewless.kafka.settings import TransportSettings

Facts = Mapping[str, Any]

STAGES = ("splitter", "router", "worker", "aggregator", "observer")
TITLES = {
    "records": "records",
    "keys": "keys of the window",
    "workers": "W",
    "partitions": "partitions of the source",
    "record_bytes": "bytes of a record",
}
RATES = (100_000, 1_000_000, 10_000_000)
"""Records per second of the extrapolation."""
UTILIZATION = 0.7
"""Share of a core that a process uses at most, so that it can catch up after a pause."""

INTRO = """\
<!-- Made by `make growth` from runs. Change tests/bench, not this page. -->
# What it costs as it grows

Each run differs in one number from the base: {records:,} records, {keys:,} keys, W = {workers}, {partitions} partitions
of the source, {record_bytes} bytes per record. `make growth` runs all of them, here on {cores} cores, and makes this
page again. JSON records of uniform keys, all of one window, are in a topic of a local broker; `skewless up --drain`
processes them with the default settings. So each commit writes all results that have changed: uniform keys are the
dearest for the aggregator, and the cheapest for the router.

- Microseconds of CPU time per record, by stage without the start of the processes, and of the broker.
- Bytes on the broker per record, in all topics of the pipeline, compressed, with one replica.
- Memory: the sum of the stages' peaks, with their shared memory once per process.
- Records of 1,000 and 10,000 bytes have text that compresses by half. Text that compresses by a hundred makes a
  splitter much larger, because librdkafka's read-ahead is 1 MB of compressed records per partition.
"""
LATENCY = """\
## Latency

From a record to the first result that counts it, at {rate:,} records per second, with the default commit interval of
{commit_interval_s:g} s.
"""
RESTORE = """\
## Restart

The time in which an aggregator, which is restarted while the window is open, reads its state from the changelog.

| keys of the window | bytes of state in memory | restore |
| ---: | ---: | ---: |
"""
EXTRAPOLATION = """\
## Extrapolated

Computed from the base, not measured. Assumptions:

- The CPU time of a stage is proportional to the records, and a process uses at most {utilization:.0%} of a core.
- There are as many workers, and partitions of each other topic, as processes, and all windows together have 10,000,000
  keys.
- Each process commits every {commit_interval_s:g} s. A transaction has one coordinator, and a marker in each partition
  that it writes: a router writes to all workers, a worker to all aggregators.
- A restarted aggregator restores its share of the keys.

| records/s | processes: {stages} | partitions of the source | transactions/s | markers/s | restore of an aggregator |
| ---: | --- | ---: | ---: | ---: | ---: |
"""
KEYS = 10_000_000


def render(lines: Iterable[Facts]) -> str:
    """Write the whole page. Of several runs of one load, the last one counts."""
    runs = {(line["measure"], line["dimension"], *(line[name] for name in TITLES)): line for line in lines}
    drains = [line for line in runs.values() if line["measure"] == "drain"]
    latencies, restores = (
        [line for line in runs.values() if line["measure"] == name] for name in ("latency", "restore")
    )
    start, base = (_one(drains, dimension) for dimension in ("start", "base"))
    parts = [INTRO.format(**base)]
    for dimension, title in TITLES.items():
        rows = sorted((base, *_of(drains, dimension)), key=lambda line: line[dimension])
        parts.append("\n".join((f"## By {title}\n", *_drain_table(dimension, rows, start), "")))
    if latencies:
        parts.append(LATENCY.format(rate=latencies[0]["rate"], **_transport()))
        parts.append("\n".join((*_latency_table(latencies), "")))
    if restores:
        restores.sort(key=lambda line: int(line["keys"]))
        parts.append(RESTORE + "\n".join((*map(_restore_row, restores), "")))
        described = {"utilization": UTILIZATION, "stages": ", ".join(STAGES), **_transport()}
        needs = (_needs(rate, base, start, restores[-1]) for rate in RATES)
        parts.append(EXTRAPOLATION.format(**described) + "\n".join((*needs, "")))
    return "\n".join(parts)


def _transport() -> dict[str, float]:
    return {"commit_interval_s": TransportSettings().commit_interval_s}


def _one(lines: Sequence[Facts], dimension: str) -> Facts:
    (found,) = _of(lines, dimension)
    return found


def _of(lines: Sequence[Facts], dimension: str) -> list[Facts]:
    return [line for line in lines if line["dimension"] == dimension]


def cpu_us(stage: str, line: Facts, start: Facts) -> float:
    """Return the CPU time of a stage per record in microseconds, without that of its start."""
    return max(0.0, float(line[f"{stage}_cpu_s"] - start[f"{stage}_cpu_s"])) * 1e6 / int(line["records"])


def _drain_table(dimension: str, rows: Iterable[Facts], start: Facts) -> Iterator[str]:
    heads = (TITLES[dimension], *STAGES, "all", "broker", "bytes", "memory")
    yield f"| {' | '.join(heads)} |"
    yield "| ---: " * len(heads) + "|"
    for line in rows:
        spent = [cpu_us(stage, line, start) for stage in STAGES]
        yield (
            f"| {line[dimension]:,} | {' | '.join(f'{us:.2f}' for us in spent)} | {sum(spent):.2f} "
            f"| {line['broker_cpu_s'] * 1e6 / line['records']:.2f} | {line['bytes'] / line['records']:,.1f} "
            f"| {sum(line['peak_mb'].values()):,} MB |"
        )


def _latency_table(lines: Sequence[Facts]) -> Iterator[str]:
    yield "| W | partitions of the source | keys | bytes of a record | p50 | p99 | longest |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for line in lines:
        yield (
            f"| {line['workers']} | {line['partitions']} | {line['keys']:,} | {line['record_bytes']:,} "
            f"| {line['p50_s']:.2f} s | {line['p99_s']:.2f} s | {line['max_s']:.2f} s |"
        )


def _restore_row(line: Facts) -> str:
    return f"| {line['keys']:,} | {line['state_bytes']:,.0f} | {line['restore_s']:.2f} s |"


def _needs(rate: int, base: Facts, start: Facts, restored: Facts) -> str:
    """Return the row of a rate in records per second."""
    count = {stage: math.ceil(rate * cpu_us(stage, base, start) / 1e6 / UTILIZATION) for stage in STAGES}
    per_s = 1 / TransportSettings().commit_interval_s
    aggregators = count["aggregator"]
    markers = count["splitter"] + count["router"] * count["worker"] + count["worker"] * aggregators + 2 * aggregators
    # One more for each transaction: in the topic of the committed offsets.
    markers += sum(count.values())
    seconds = KEYS / aggregators * restored["restore_s"] / restored["keys"]
    partitions = min(count["splitter"], MAX_SOURCE_PARTITIONS)
    return (
        f"| {rate:,} | {', '.join(map(str, count.values()))} | {partitions:,} | {sum(count.values()) * per_s:,.0f} "
        f"| {markers * per_s:,.0f} | {seconds:,.1f} s |"
    )
