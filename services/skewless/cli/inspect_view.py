"""Terminal output of `skewless inspect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from skewless.cli.plain_text import duration, field_label, printable
from skewless.cli.wide_console import plain_table, wide_console
from skewless.kafka.consumer.offsets import uncommitted_records
from skewless.lab.inspection.pipeline_file import OF_REGISTERED_KEYS, unread_time_warning
from skewless.parsing.remedies import remedy_of

SHOWN_KEYS = 10
BAR_WIDTH = 30
MAX_NAME = 40
NOTES = """\
max/avg: most loaded worker / average. rate: relative to an even load. workers/key: mean number of workers per key."""
TIME_NOTES = """\
disorder: the largest. > 1 min: share of the records above it. 99.9 %: allowed lateness that covers so many.
Records within the allowed lateness are never late, older ones only if the first-ending of their windows has closed."""


def show(report: Mapping[str, Any]) -> None:
    """Print the measures of a topic."""
    console = wide_console()
    _show_records(console, report)
    if report["has_registered_keys"]:
        console.print(OF_REGISTERED_KEYS, soft_wrap=True)
    if not report["keys"]:
        console.print("\nNo candidate for a key: the records have no keys, and no field that groups them.")
        if not report["format"]["advice"]:
            console.print("docs/how-to/read-any-topic.md shows how a pipeline reads other formats.")
        return
    chosen = report["keys"][0]
    _show_candidates(console, report["keys"])
    _show_top(console, chosen)
    _show_loads(console, chosen["name"], report["loads"])
    if report["times"]:
        _show_times(console, report["times"])
    else:
        console.print("\nNo time: no field has one, and the Kafka timestamps are after the year 9999, so not in ms.")
    if others := report["other_times"]:
        console.print(f"other times in the records: {', '.join(_name(field_label(name)) for name in others)}")
    for line in unread_time_warning(report):
        console.print(escape(line), soft_wrap=True)


def _show_records(console: Console, report: Mapping[str, Any]) -> None:
    partitions, sizes, rate = report["partitions"], report["value_sizes"], report["records_per_s"]
    counts = partitions["records"].values()
    missing = f"{report['null_value_share']:.2%} without a value, {report['null_key_share']:.2%} without a record key"
    size_parts = (
        f"median {sizes['p50_bytes']:,}, 99 % {sizes['p99_bytes']:,}, largest {sizes['max_bytes']:,} bytes per value"
    )
    total = f"{report['records']:,} records of {report['retained_offsets']:,} offsets"
    unread, advice = report["uncommitted_offsets"], report["format"]["advice"]
    lines = [
        f"[bold]{escape(report['topic'])}[/bold]: {total}, {len(report['offsets'])} partitions",
        *([f"not read    {uncommitted_records(unread)}"] if unread else []),
        f"format      {_format(report['format'])}; {missing}",
        *([f"advice      {escape(advice)}"] if advice else []),
        f"partitions  {min(counts):,} to {max(counts):,} records, max/avg {partitions['max_over_avg']:.2f}",
        f"sizes       {size_parts}",
        f"rate        {'unknown' if rate is None else f'{_number(rate)} records/s, by the Kafka timestamps'}",
    ]
    console.print("\n".join(lines), soft_wrap=True)


def _format(found: Mapping[str, Any]) -> str:
    if kinds := found["kinds"]:
        shares = ", ".join(f"{share:.2%} {kind}" for kind, share in kinds.items())
        return f"{found['description']} (of a sample {shares})"
    other = found["other_share"]
    return f"{found['description']} (not {other:.2%} of a sample)" if other else str(found["description"])


def _show_candidates(console: Console, keys: Sequence[Mapping[str, Any]]) -> None:
    table = plain_table(("key", "distinct", "hottest", "share", "Zipf", "R²", "invalid", "records"), left=(0, 2))
    for key in keys:
        zipf = key["zipf"]
        table.add_row(
            _name(field_label(key["name"])),
            f"{'' if key['cardinality_is_exact'] else '~'}{key['cardinality']:,}",
            _name(key["top"][0]["key"], 24) if key["top"] else "-",
            f"{key['max_share']:.2%}",
            f"{zipf['exponent']:.2f}" if zipf else "-",
            f"{zipf['r_squared']:.2f}" if zipf else "-",
            f"{key['invalid_share']:.2%}",
            f"{key['records']:,}",
        )
    console.print("\nCandidates for the key; the first one is used below (--key chooses another)", style="bold")
    console.print(table)
    if invalid := keys[0]["invalid"]:
        reasons = ", ".join(f"{entry['records']:,} {escape(printable(entry['reason']))}" for entry in invalid)
        console.print(f"invalid records of {_name(field_label(keys[0]['name']))}: {reasons}", soft_wrap=True)
        for entry in invalid:
            if remedy := remedy_of(entry["reason"]):
                console.print(f"  {remedy}", soft_wrap=True)


def _show_top(console: Console, key: Mapping[str, Any]) -> None:
    top = key["top"][:SHOWN_KEYS]
    if not top:
        return
    console.print(f"\nHottest keys of {_name(field_label(key['name']))}", style="bold")
    names = [_name(entry["key"]) for entry in top]
    width = max(len(_short(entry["key"])) for entry in top)
    for name, entry in zip(names, top, strict=True):
        padding = " " * (width - len(_short(entry["key"])))
        bar = "█" * max(1, round(BAR_WIDTH * entry["share"] / top[0]["share"]))
        console.print(f"{name}{padding} {bar} {entry['share']:.2%} {entry['count']:,}", soft_wrap=True)


def _show_loads(console: Console, name: str, loads: Sequence[Mapping[str, Any]]) -> None:
    workers = sorted({load["workers"] for load in loads})
    if not workers:
        return
    cells = {(load["grouping"], load["workers"]): load for load in loads}
    measures = (name for number in workers for name in (f"W={number}\nmax/avg", "\nrate", "workers\n/key"))
    table = plain_table(("grouping", *measures))
    for grouping in dict.fromkeys(load["grouping"] for load in loads):
        row = [grouping]
        for number in workers:
            load = cells[grouping, number]
            row += [f"{load['max_over_avg']:.2f}", f"{load['relative_rate']:.0%}", f"{load['workers_per_key']:.2f}"]
        table.add_row(*row)
    console.print(f"\nLoad balance by {_name(field_label(name))}", style="bold")
    console.print(table)
    console.print(NOTES, style="dim", soft_wrap=True)


def _show_times(console: Console, times: Sequence[Mapping[str, Any]]) -> None:
    table = plain_table(
        ("time", "unit", "resolution", "disorder", "> 0 s", "> 1 min", "> 1 h", "99.9 %"), left=(0, 1, 2)
    )
    for time in times:
        late = {entry["allowed_lateness_s"]: entry["share"] for entry in time["late"]}
        lateness = time["recommended_lateness_s"]
        table.add_row(
            _name(field_label(time["name"])),
            time["unit"] or "ms",
            time["resolution"],
            duration(time["max_disorder_ms"] / 1000, digits=4),
            f"{late[0]:.2%}",
            f"{late[60]:.2%}",
            f"{late[3_600]:.2%}",
            "-" if lateness is None else duration(lateness, digits=4),
        )
    console.print(
        "\nTimes, and by how much records are older than the newest one before them in their partition", style="bold"
    )
    console.print(table)
    console.print(TIME_NOTES, style="dim", soft_wrap=True)


def _name(text: str, limit: int = MAX_NAME) -> str:
    """Return a key as it may be printed on a terminal: short, without control characters and markup."""
    return escape(printable(_short(text, limit)))


def _short(text: str, limit: int = MAX_NAME) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
