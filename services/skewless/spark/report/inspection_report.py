"""Renders the page of `skewless inspect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skewless.spark.report.charts import bars, over_workers
from skewless.spark.report.html_page import Figure, render


def report(inspection: Mapping[str, Any]) -> str:
    """Return the page of an inspection (see `Inspector.report`) as HTML."""
    keys: Sequence[Mapping[str, Any]] = inspection["keys"]
    chosen = keys[0] if keys else None
    figures: dict[str, list[Figure]] = {
        "keys": [_hottest(chosen)] if chosen and chosen["top"] else [],
        "loads": [over_workers(inspection["loads"], "max_over_avg", "max/avg")] if inspection["loads"] else [],
        "partitions": [bars({"records": inspection["partitions"]["records"]}, "records")],
    }
    return render(
        "inspection.html.j2",
        figures,
        inspection=inspection,
        chosen=chosen,
        candidates=[_candidate_row(key) for key in keys],
        top=_top_rows(chosen) if chosen else [],
        loads=[_load_row(load) for load in inspection["loads"]],
        times=[_time_row(time) for time in inspection["times"]],
        sizes=[_size_row("value", inspection["value_sizes"]), _size_row("key", inspection["key_sizes"])],
    )


def _hottest(key: Mapping[str, Any]) -> Figure:
    # The ranks keep long keys apart, of which the chart shows the beginning.
    shares = {f"{rank}. {entry['key']}": entry["share"] for rank, entry in enumerate(key["top"], 1)}
    return bars({"share": shares}, "share of the tuples")


def _candidate_row(key: Mapping[str, Any]) -> list[str]:
    zipf = key["zipf"]
    return [
        key["name"],
        f"{'' if key['cardinality_is_exact'] else '~'}{key['cardinality']:,}",
        key["top"][0]["key"] if key["top"] else "-",
        f"{key['max_share']:.3%}",
        f"{zipf['exponent']:.3f}" if zipf else "-",
        f"{zipf['r_squared']:.3f}" if zipf else "-",
        f"{key['invalid_share']:.3%}",
        f"{key['records']:,}",
    ]


def _load_row(load: Mapping[str, Any]) -> list[str]:
    measures = [f"{load['max_over_avg']:.3f}", f"{load['relative_rate']:.1%}", f"{load['workers_per_key']:.3f}"]
    return [load["grouping"], f"{load['workers']}", *measures]


def _time_row(time: Mapping[str, Any]) -> list[str]:
    late = [f"{entry['share']:.3%}" for entry in time["late"]]
    return [time["name"], time["unit"] or "ms", time["resolution"], f"{time['max_disorder_ms'] / 1000:,.3f}", *late]


def _top_rows(key: Mapping[str, Any]) -> list[list[str]]:
    return [[entry["key"], f"{entry['count']:,}", f"{entry['share']:.3%}"] for entry in key["top"]]


def _size_row(name: str, sizes: Mapping[str, Any]) -> list[str]:
    numbers = [f"{sizes[part]:,}" for part in ("p50_bytes", "p99_bytes", "max_bytes")]
    return [name, f"{sizes['mean_bytes']:,.1f}", *numbers]
