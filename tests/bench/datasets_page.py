"""Generates the page docs/reference/datasets.md from the results of bench_datasets.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Facts = dict[str, Any]

INTRO = """\
<!-- Made by `make datasets` from runs. Change tests/bench, not this page. -->
# Every data set, through the whole pipeline

Each data set went into a topic of four partitions, then through the pipeline twice, once per grouping, with a process
per stage and W = 10. `skewless audit` then computed every result again from the source with Spark, and compared. `make
datasets`, with the folder of real data in `SKEWLESS_DATA`, generates this page and fails on any difference.

- p1: share of the hottest key in the tuples.
- late and unreadable: tuples in topic `late`, records in topic `dead-letters`; the audit expects the same ones.
- results: windows and keys that were compared, and how many differed.
- most loaded worker: its tuples, as a multiple of the mean; and the mean number of workers per key.
"""

HEAD = (
    "| data set | records | tuples | late | unreadable | keys | p1 | window | results | differ "
    "| partial_key: peak / mean, per key | even: peak / mean, per key |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)

REAL = "Real files"
SYNTHETIC = "Made up by `skewless produce`"


def render(found: Sequence[Facts]) -> str:
    """Render the page. `found` has one entry for each data set and grouping."""
    parts = [INTRO]
    for title, real in ((REAL, True), (SYNTHETIC, False)):
        rows = [entries for entries in found if bool(entries["files"]) == real]
        if rows:
            parts.append("\n".join((f"## {title}\n", HEAD, *_rows(rows))) + "\n")
    return "\n".join(parts)


def _rows(found: Sequence[Facts]) -> Iterator[str]:
    by_data: dict[tuple[str, ...], dict[str, Facts]] = {}
    for entries in found:
        by_data.setdefault((entries["dataset"], *entries["files"]), {})[entries["grouping"]] = entries
    for (name, *files), runs in by_data.items():
        partial_key, even = runs["partial_key"], runs["even"]
        yield (
            f"| {name}{_files(files)} | {even['records']:,} | {even['tuples']:,} | {even['late']:,} "
            f"| {even['dead_letters']:,} | {even['keys']:,} | {even['p1']:.3f} | {_window(even['window_s'])} "
            f"| {even['compared']:,} in {even['windows']:,} | {partial_key['differences'] + even['differences']:,} "
            f"| {_balance(partial_key)} | {_balance(even)} |"
        )


def _files(files: Sequence[str]) -> str:
    if not files:
        return ""
    first = files[0].removesuffix(".zst")
    return f", `{first}`" if len(files) == 1 else f", `{first}` and {len(files) - 1} more"


def _window(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _balance(entries: Facts) -> str:
    return f"{entries['max_over_avg']:.3f}, {entries['replication_factor']:.2f}"
