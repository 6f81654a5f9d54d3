"""Writes a commented pipeline file from the measures of a topic. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import yaml

from skewless.algorithms.aggregates.count import Count
from skewless.config.pipeline_settings import EventTimeSettings
from skewless.lab.inspection.field_roles import FIRST_S, ISO, UNITS, groups_nothing
from skewless.lab.inspection.time_profile import RESOLUTIONS_MS, TOLERATED_SHARE
from skewless.parsing.remedies import remedy_of

OF_REGISTERED_KEYS = (
    "The record keys have schemas of a registry. docs/how-to/schema-registry.md shows how splitter.key reads a field "
    "of them."
)
WORKER_RATE = 100_000
"""Tuples per second that a worker processes without a cost of its own, on the safe side."""
MIN_WORKERS, MAX_WORKERS = 4, 64
LOCAL_RATE = 50_000
"""Records per second of a partition from which local aggregation takes no more CPU time than it saves: 25,000 tuples
between two commits."""
MISTAKEN_SHARE = 0.05
"""Largest share of records whose times may be mistakes."""
EXACT_LATENESS_S = 3_600
"""A disorder up to this is allowed for completely."""
READABLE_LATENESS_S = (10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1_200, 1_800, 2_700, 3_600, 21_600)
"""Proposed values of `event_time.allowed_lateness_s`, from the default on. Longer ones are whole days."""
DAY_S = 86_400
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC
MAX_AHEAD_S: float = EventTimeSettings.model_fields["max_ahead_s"].default
RETENTION_DAYS = (30, 90, 365, 1_825, 3_650, 36_500)
"""Proposed values of `topics.results_retention_s`, in days."""
LONG_SPAN_MS = 7 * 86_400_000
"""Recordings that are longer get windows, panes and ticks of an hour."""
WINDOW_S = 60
LONG_WINDOW_S = 3_600
LONG_WINDOWS = (
    "",
    "# Windows are long, because the records span more than a week, or their times are whole hours or days.",
    "# Short panes and ticks would be many and nearly empty.",
    f"worker:\n  pane_s: {LONG_WINDOW_S}",
    f"observer:\n  tick_s: {LONG_WINDOW_S}",
)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user may choose; `choices_of` has the proposals."""

    name: str
    key: Mapping[str, Any]
    """One of the `keys` of the report."""
    lateness_s: float
    workers: int


def usable_keys(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the candidates that a pipeline can read."""
    return [key for key in report["keys"] if key["splitter"] is not None and key["tuples"]]


def choices_of(report: Mapping[str, Any], *, key_is_chosen: bool = False) -> Choices:
    """Return the proposals for a topic with a usable key. `key_is_chosen`: the user has chosen the first key."""
    keys = usable_keys(report)
    # Among equals the order of the report counts. It rests on the first records, and the rule here on all of them.
    key = keys[0] if key_is_chosen else min(keys, key=_groups_nothing)
    return Choices(pipeline_name(report["topic"]), key, _lateness_s(report), _workers(report))


def _groups_nothing(key: Mapping[str, Any]) -> bool:
    return groups_nothing(key["cardinality"], key["tuples"], key["invalid_share"])


def pipeline_name(topic: str) -> str:
    """Return a valid name of a pipeline for a topic."""
    return re.sub(r"[^a-z0-9]+", "-", topic.lower()).strip("-")[:100].strip("-") or "pipeline"


def pipeline_file(report: Mapping[str, Any], choices: Choices, connections: Mapping[str, Any], now_ms: int) -> str:
    """Return the YAML text. `connections` has the sections `kafka` and `registry`, without secrets."""
    time = event_time_of(report)
    is_long = time["last_ms"] - time["early_ms"] > LONG_SPAN_MS
    window_s = max(LONG_WINDOW_S if is_long else WINDOW_S, RESOLUTIONS_MS[time["resolution"]] // 1000)
    sections = [
        f"# Pipeline for topic {report['topic']}, from {report['records']:,} of its records.",
        "# All settings: docs/reference/settings.md. `skewless config check` checks the file.",
        _yaml({"name": choices.name, "source": {"topic": report["topic"]}, **connections}),
        "",
        *_key_comments(report, choices.key),
        *_local_comments(report),
        _yaml({"splitter": _splitter(choices.key["splitter"], report)}),
        "",
        f"# Event time: {_shown(time['name'])}, resolution {time['resolution']}.",
        *([f"# Other times: {', '.join(map(_shown, report['other_times']))}."] if report["other_times"] else []),
        *_ahead_comments(time["last_ms"], now_ms),
        *_other_unit_comments(report),
        *_lateness_comments(report, choices.lateness_s),
        _yaml({"event_time": {"allowed_lateness_s": choices.lateness_s}}),
        "",
        *_grouping_comments(report, choices.key),
        _yaml({"router": {"grouping": "even", "workers": choices.workers}}),
        "# Fixed when the topics are created: the maximum of router.workers.",
        _yaml({"worker_input": {"max_workers": max(16, choices.workers)}}),
        "",
        "# To sum a field: splitter.value.field, and the aggregates sum, min, max, mean. Numbers with a fraction also",
        "# need splitter.value.decimals, the number of decimal places that are kept.",
        _yaml({"aggregator": {"window_s": window_s, "aggregates": [Count.name]}}),
        *(LONG_WINDOWS if window_s >= LONG_WINDOW_S else ()),
        "",
        *_retention(report, now_ms),
    ]
    return "\n".join(sections).rstrip("\n") + "\n"


def _splitter(parsing: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `splitter`: records before 1970 are invalid unless it says when the first ones are."""
    first_ms = event_time_of(report)["first_ms"]
    splitter = {**parsing, "local": {"mode": "buffer" if _is_fast(report) else "none"}}
    if first_ms < 0 and "time" in parsing:  # otherwise the time is that of Kafka
        century = (EPOCH + timedelta(milliseconds=first_ms)).year // 100 * 100
        splitter["time"] = {**parsing["time"], "earliest": f"{max(1, century):04}-01-01"}
    if "time" in parsing and _has_other_unit(report):
        splitter["time"] = {**parsing["time"], "earliest": "1990-01-01"}
    return splitter


def _ahead_comments(last_ms: int, now_ms: int) -> list[str]:
    """Return a warning if times are so far ahead of the clock that the stages refuse their records."""
    if last_ms <= now_ms + MAX_AHEAD_S * 1000:
        return []
    return [
        f"# Some of these times are more than {MAX_AHEAD_S:g} s ahead of the clock. Such records are invalid. If they",
        "# are local times without a zone, which are read as UTC, convert them with splitter.python. If the field is",
        "# the right one, raise event_time.max_ahead_s.",
    ]


def _other_unit_comments(report: Mapping[str, Any]) -> list[str]:
    """Return why times before 1990 are invalid, if they are."""
    if not _has_other_unit(report):
        return []
    unit = event_time_of(report)["unit"]
    return [
        f"# Some of these times are before 1990 if their unit is {unit}. They are probably in another unit.",
        "# Such records are invalid, because of splitter.time.earliest.",
    ]


def _has_other_unit(report: Mapping[str, Any]) -> bool:
    """Return whether a few numbers are no times of these days in the unit of the others."""
    time, oldest_ms = event_time_of(report), report["oldest_ms"]
    is_number = time.get("unit") not in {None, "iso8601"}
    first_ms = time["first_ms"] if oldest_ms is None else min(time["first_ms"], oldest_ms)
    return is_number and 0 <= first_ms < FIRST_S * 1000 <= time["early_ms"]


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True).rstrip("\n")


def event_time_of(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the time that the pipeline uses: the field, or else the Kafka timestamp. The report must have a time."""
    time: Mapping[str, Any] = report["times"][-1]
    return time


def _retention(report: Mapping[str, Any], now_ms: int) -> list[str]:
    """Return the section `topics` with its comment."""
    days, oldest_ms = _retention_days(report, now_ms), report["oldest_ms"]
    if days is not None:
        return [
            f"# Results of windows that began more than {days:,} days ago are deleted: at least twice the age of",
            "# the oldest record. Without this setting, they are kept forever, and the topic of results grows.",
            _yaml({"topics": {"results_retention_s": days * DAY_S}}),
        ]
    reason = "the first records of the topic have no time, so their age is unknown"
    if oldest_ms is not None:
        reason = f"the oldest time in the records is of the year {(EPOCH + timedelta(milliseconds=oldest_ms)).year}"
    return [
        f"# Results are kept forever, and the topic of results grows: {reason}.",
        "# A number deletes results of windows that began so many seconds ago, and those of older records at once.",
        _yaml({"topics": {"results_retention_s": None}}),
    ]


def _retention_days(report: Mapping[str, Any], now_ms: int) -> int | None:
    """Return a time after which results may be deleted: twice the age of the topic's oldest record, at least a month.

    A pipeline reads the topic from its beginning. A shorter time would delete its first results at once. The sample has
    the newest records. The topic is at least as old as its rate in the sample says, and as its first records. Returns
    None if its age is unknown, or implausible.
    """
    if report["oldest_ms"] is None:
        return None
    time = event_time_of(report)
    span_ms = (time["last_ms"] - time["early_ms"]) * max(1, report["retained_offsets"] / report["records"])
    # Times in another unit are invalid, and have no results.
    oldest_ms = time["early_ms"] if _has_other_unit(report) else report["oldest_ms"]
    oldest_s = (now_ms - min(time["last_ms"] - span_ms, oldest_ms)) / 1000
    return next((days for days in RETENTION_DAYS if days * DAY_S >= 2 * oldest_s), None)


def _lateness_s(report: Mapping[str, Any]) -> float:
    time = event_time_of(report)
    exact = time["max_disorder_ms"] / 1000
    recommended: float | None = time["recommended_lateness_s"]
    if recommended is None:  # some times are mistakes, or the records are in no order
        few = (entry["allowed_lateness_s"] for entry in time["late"] if entry["share"] <= MISTAKEN_SHARE)
        recommended = next(few, exact)
    needed = exact if exact <= EXACT_LATENESS_S else recommended
    return next((readable for readable in READABLE_LATENESS_S if readable >= needed), math.ceil(needed / DAY_S) * DAY_S)


def _lateness_comments(report: Mapping[str, Any], lateness_s: float) -> list[str]:
    """Return the reason for an allowed lateness, and what it costs."""
    time = event_time_of(report)
    disorder = "The records of each partition are in the order of their times."
    if time["max_disorder_ms"]:
        seconds = f"{time['max_disorder_ms'] / 1000:,.10g}"
        disorder = f"A record is up to {seconds} s older than the newest one before it in its partition."
    lines = [f"# {disorder}"]
    if not _has_other_unit(report) and (share := _late_share(time, lateness_s)):
        lines.append(f"# At most {share:.2%} of the records are older by more than the allowed lateness. They are late")
        lines.append("# if their window has closed.")
    lines.append(
        f"# Windows close {lateness_s:g} s of event time later. This delays results of emit: final, but not updates."
    )
    return lines


def _late_share(time: Mapping[str, Any], lateness_s: float) -> float:
    """Return the largest share of the records that may be late."""
    if time["max_disorder_ms"] <= lateness_s * 1000:
        return 0.0
    return next((entry["share"] for entry in reversed(time["late"]) if entry["allowed_lateness_s"] <= lateness_s), 0.0)


def late_warning(report: Mapping[str, Any], lateness_s: float) -> list[str]:
    """Return a warning if more records than usual may be late, or have times in another unit; empty otherwise."""
    if _has_other_unit(report):
        return [
            "WARNING: some of these times are before 1990, so they are probably in another unit. Such records are not",
            "  counted. They go to dead-letters, because of splitter.time.earliest",
        ]
    share = _late_share(event_time_of(report), lateness_s)
    if share <= TOLERATED_SHARE:
        return []
    return [
        f"WARNING: {share:.2%} of these records are more than {lateness_s:g} s older than others before them.",
        "  They are late, and not counted, if their window has closed: see event_time.allowed_lateness_s",
    ]


def _workers(report: Mapping[str, Any]) -> int:
    needed = math.ceil(2 * (report["records_per_s"] or 0) / WORKER_RATE)
    return max(MIN_WORKERS, min(MAX_WORKERS, needed))


def _key_comments(report: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[str]:
    hottest = f", the hottest is {_shown(chosen['top'][0]['key'])} with {chosen['max_share']:.2%}"
    lines = [f"# Key {_shown(chosen['name'])}: {chosen['cardinality']:,} distinct values{hottest}."]
    lines += [f"# {line}" for line in invalid_warning(chosen)]
    others = [_shown(key["name"]) for key in usable_keys(report) if key["name"] != chosen["name"]]
    return [*lines, *([f"# Other candidates: {', '.join(others)}."] if others else [])]


def invalid_warning(key: Mapping[str, Any]) -> list[str]:
    """Return warnings of records that are invalid with this key, with the reasons; empty without any.

    They are records of the sample, and the first ones of the topic.
    """
    lines = []
    if key["invalid_share"]:
        share = f"{max(key['invalid_share'], 0.0001):.2%}"
        lines = [f"WARNING: {share} of these records are not counted. They go to dead-letters:", *_reasons(key)]
    oldest = key["oldest"]
    invalid = sum(found["records"] for found in oldest["invalid"])
    if invalid > MISTAKEN_SHARE * oldest["records"]:
        read = f"{invalid:,} of the first {oldest['records']:,} records of the topic"
        lines += [f"WARNING: {read} are not counted, which are older than these:", *_reasons(oldest)]
    return lines


def _reasons(found: Mapping[str, Any]) -> list[str]:
    remedies = [remedy_of(each["reason"]) for each in found["invalid"]]
    return [
        f"  {_shown(each['reason'])} ({each['records']:,}){f': {remedy}' if remedy else ''}"
        for each, remedy in zip(found["invalid"], remedies, strict=True)
    ]


def refusals(report: Mapping[str, Any]) -> list[str]:
    """Return why no record can be read with the first candidate; empty if there is none, or some can be read."""
    return [line.strip() for key in report["keys"][:1] if not key["tuples"] for line in _reasons(key)]


def format_warning(report: Mapping[str, Any]) -> list[str]:
    """Return warnings of records in another format, and of fields that no setting can name; empty without any."""
    found, lines = report["format"], []
    if found["kinds"]:
        shares = ", ".join(f"{share:.2%} {kind}" for kind, share in found["kinds"].items())
        lines.append(f"WARNING: not all records have one format: {shares}. The pipeline reads all as one")
    return [*lines, *([f"note: {found['advice']}"] if found["advice"] else [])]


def unread_time_warning(report: Mapping[str, Any]) -> list[str]:
    """Return a warning if the records have no time that a pipeline reads, but one in another form; else empty."""
    if not report["times"] or not report["unread_times"]:
        return []
    time = event_time_of(report)
    if "header" in time or time["field"] is not None:
        return []
    found = ", ".join(map(_unread_time, report["unread_times"]))
    is_readable = any(kind in {*UNITS, ISO} for each in report["unread_times"] for kind in each["kinds"])
    return [
        f"WARNING: the event time is the Kafka timestamp, not {found}: a time is ISO 8601 or a number since the epoch,",
        "  in one unit, in nearly all records, and in no list.",
        "  A function of your own can convert it: splitter.python, docs/how-to/python.md",
        *(["  With splitter.time, the records without a time in its unit are invalid."] if is_readable else []),
    ]


def _unread_time(found: Mapping[str, Any]) -> str:
    """Return a field with an example, and its kinds of values if they are why it is not used."""
    kinds = "".join(f", {share:.1%} {'in ' * (kind in UNITS)}{kind}" for kind, share in found["kinds"].items())
    return f'{_shown(found["name"])} ("{_shown(found["example"])}"{kinds})'


def _is_fast(report: Mapping[str, Any]) -> bool:
    """Return whether a partition has enough tuples between two commits for local aggregation."""
    partitions = max(1, len(report["partitions"]["records"]))
    return (report["records_per_s"] or 0) / partitions >= LOCAL_RATE


def _local_comments(report: Mapping[str, Any]) -> list[str]:
    """Return why tuples are aggregated in the splitter, or are not."""
    if _is_fast(report):
        return [
            "# The splitter sends one row per key and commit, not each tuple. With this many records per second that",
            "# takes fewer bytes, and no more CPU time. Set mode: none if your own consumers need each tuple.",
        ]
    return [
        "# Each tuple is sent to a worker. local.mode: buffer sends one row per key and commit, which is fewer bytes.",
        f"# It costs CPU time below {LOCAL_RATE:,} records per second and partition, and saves it if each row is work.",
    ]


def _grouping_comments(report: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[str]:
    loads = {load["grouping"]: load for load in report["loads"] if load["workers"] == 8}
    if report["keys"][0]["name"] != chosen["name"] or not loads:
        return []
    key, even = loads["key"]["max_over_avg"], loads["even"]["max_over_avg"]
    return [f"# With 8 workers, the most loaded one has {key:.2f} x the average by key, and {even:.2f} x by even."]


def _shown(text: str) -> str:
    """Return a text of the records as it may be written into a comment."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:60])
