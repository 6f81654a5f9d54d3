"""The pipeline file that is written for a topic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skewless.config.loader import load
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.lab.inspection.inspector import Inspector
from skewless.lab.inspection.pipeline_file import (
    choices_of,
    format_warning,
    late_warning,
    pipeline_file,
    pipeline_name,
    refusals,
    usable_keys,
)
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import RecordColumns
from skewless.testing.run import outcome_of

KAFKA = {"bootstrap_servers": "kafka:9092"}
START_MS = 1_700_000_000_000
NOW_MS = 1_700_003_600_000
"""An hour after the first record of most topics."""


def report_of(values: list[bytes | None]) -> dict[str, Any]:
    batch = RecordColumns.of_values(values, 1_700_000_000_000 + np.arange(len(values)))
    inspector = Inspector([batch], None)
    inspector.add(batch)
    measured = {"retained_offsets": len(values), "oldest_ms": inspector.oldest_ms(())}
    return inspector.report() | {"topic": "My.Clicks_1", **measured}


def keyed_report(keys: list[bytes | None], chosen: str | None = None) -> dict[str, Any]:
    """Measure clicks with these record keys."""
    times = 1_700_000_000_000 + np.arange(len(keys))
    batch = RecordColumns([*clicks(), *clicks()][: len(keys)], times, keys, [()] * len(keys))
    inspector = Inspector([batch], chosen)
    inspector.add(batch)
    measured = {"retained_offsets": len(keys), "oldest_ms": inspector.oldest_ms(())}
    return inspector.report() | {"topic": "clicks", **measured}


def settings_of(text: str, folder: Path) -> PipelineSettings:
    file = folder / "pipeline.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, {})


def clicks() -> list[bytes | None]:
    hostile = 'a"b\n# x: {\u2028'
    return [
        json.dumps({"user": hostile if i % 2 else f"u{i % 9}", "at": 1_700_000_000 + i - 7 * (i % 5 == 4)}).encode()
        for i in range(200)
    ]


@pytest.mark.parametrize("year", [99, 1887, 1969])
def test_pipeline_file_of_times_before_1970_accepts_its_records(year: int, tmp_path: Path) -> None:
    records = [{"who": f"p{i % 9}", "born": f"{year:04}-03-{i % 28 + 1:02}T10:00:00Z"} for i in range(200)]
    report = report_of([json.dumps(record).encode() for record in records])
    settings = settings_of(pipeline_file(report, choices_of(report), {}, NOW_MS), tmp_path)
    outcome, _ = outcome_of(settings, records, NOW_MS)
    assert outcome.invalid == []
    assert sum(result.count for result in outcome.results) == len(records)


def test_pipeline_file_few_times_in_another_unit_are_invalid_and_not_of_1970(tmp_path: Path) -> None:
    records = [{"who": f"p{i % 9}", "at": (1_700_000_000 + i) * (1 if i < 6 else 1000)} for i in range(200)]
    report = report_of([json.dumps(record).encode() for record in records])
    text = pipeline_file(report, choices_of(report), {}, NOW_MS)
    assert "before 1990 if their unit is ms. They are probably in another unit." in text
    outcome, _ = outcome_of(settings_of(text, tmp_path), records, NOW_MS)
    assert (len(outcome.invalid), sum(result.count for result in outcome.results)) == (6, 194)
    warning = late_warning(report, choices_of(report).lateness_s)
    assert warning[0].startswith("WARNING: some of these times are before 1990")
    assert "are late" not in text
    assert settings_of(text, tmp_path).topics.results_retention_s is not None
    usual = report_of(clicks())
    assert "1990" not in pipeline_file(usual, choices_of(usual), {}, NOW_MS)


def test_refusals_of_records_over_the_limit_name_it() -> None:
    records = [json.dumps({"user": f"u{i % 9}", "pad": "x" * 300_000}).encode() for i in range(20)]
    assert refusals(report_of([*records])) == [
        "longer than 262144 bytes (20): to read longer records, raise splitter.limits.record_bytes"
    ]
    assert refusals(report_of(clicks())) == []


def test_format_warning_names_records_of_another_format_and_fields_without_a_path() -> None:
    mixed = [*clicks(), *[f"u{i % 9},{START_MS}".encode() for i in range(100)]]
    assert format_warning(report_of(mixed)) == [
        "WARNING: not all records have one format: 66.67% JSON, 33.33% text. The pipeline reads all as one"
    ]
    dotted = report_of([json.dumps({"user.name": f"u{i % 9}", "a": "c"}).encode() for i in range(100)])
    assert format_warning(dotted)[0].startswith("note: no setting can name the field 'user.name': a function in")
    assert format_warning(report_of(clicks())) == []


def test_pipeline_file_of_times_ahead_of_the_clock_warns() -> None:
    report = report_of(clicks())
    last_ms = report["times"][-1]["last_ms"]
    in_time, ahead = (pipeline_file(report, choices_of(report), {}, last_ms - before) for before in (600_000, 600_001))
    assert "ahead of the clock" not in in_time
    assert "more than 600 s ahead of the clock. Such records are invalid." in ahead


@pytest.mark.parametrize(
    ("values", "format_", "field"),
    [
        (clicks(), "json", "user"),
        ([f"1700000000;a{i % 5};{i}".encode() for i in range(100)], "csv", 1),
        ([f"a b{i % 3}\t5".encode() for i in range(100)], "tsv", 0),
        ([f"{'xyz'[i % 3]}".encode() for i in range(100)], "text", None),
    ],
)
def test_pipeline_file_each_format_is_a_valid_pipeline(
    values: list[bytes | None], format_: str, field: str | int | None, tmp_path: Path
) -> None:
    report = report_of(values)
    settings = settings_of(pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.name, settings.aggregated.topic) == ("my-clicks-1", "My.Clicks_1")
    assert (settings.splitter.format.name, settings.splitter.key.field) == (format_, field)
    assert settings.kafka.bootstrap_servers == "kafka:9092"


def test_pipeline_file_lateness_covers_the_disorder_of_the_sample(tmp_path: Path) -> None:
    report = report_of(clicks())
    settings = settings_of(pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.splitter.time.field, settings.splitter.time.unit) == ("at", "s")
    assert settings.event_time.allowed_lateness_s == 10


@pytest.mark.parametrize(
    ("behind_s", "older", "lateness_s", "comment"),
    [
        (0, 0, 10, "# The records of each partition are in the order of their times."),
        (0.05, 900, 10, "# A record is up to 0.05 s older than the newest one before it in its partition."),
        (11, 900, 15, "# A record is up to 11 s older than the newest one before it in its partition."),
        (
            100,
            1,
            120,
            "# Windows close 120 s of event time later. This delays results of emit: final, but not updates.",
        ),
        (3_599, 900, 3_600, "# A record is up to 3,599 s older"),
        (9_000, 900, 21_600, "# A record is up to 9,000 s older"),
        (9_000, 1, 10, "# At most 0.05% of the records are older by more than the allowed lateness. They are late"),
        (1_000_000, 900, 1_036_800, "# A record is up to 1,000,000 s older"),
    ],
)
def test_pipeline_file_lateness_is_readable_and_covers_the_disorder(
    behind_s: float, older: int, lateness_s: float, comment: str, tmp_path: Path
) -> None:
    newest = 1_700_000_000_000
    times = [newest, *[newest - round(behind_s * 1000)] * older, *[newest] * (1_999 - older)]
    report = report_of([f"{time};a{i % 5}".encode() for i, time in enumerate(times)])
    text = pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS)
    assert settings_of(text, tmp_path).event_time.allowed_lateness_s == lateness_s
    assert comment in text


@pytest.mark.parametrize(
    ("time_ms", "warning"),
    [
        (1_300_000_000_000, "WARNING: 0.20% of these records are more than 10 s old"),
        (0, "WARNING: some of these times are before 1990"),
    ],
)
def test_pipeline_file_few_times_by_mistake_change_neither_lateness_nor_windows(
    time_ms: int, warning: str, tmp_path: Path
) -> None:
    values: list[bytes | None] = [
        json.dumps({"u": f"u{i % 9}", "ts": time_ms if i % 500 == 9 else START_MS + 1000 * i}).encode()
        for i in range(2_000)
    ]
    report = report_of(values)
    choices = choices_of(report)
    settings = settings_of(pipeline_file(report, choices, {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.event_time.allowed_lateness_s, settings.aggregator.window_s) == (10, 60)
    assert late_warning(report, choices.lateness_s)[0].startswith(warning)
    assert late_warning(report_of(clicks()), 10) == []


def test_pipeline_file_choices_of_the_user_are_written(tmp_path: Path) -> None:
    report = report_of(clicks())
    choices = replace(choices_of(report), name="other", workers=40, lateness_s=90.0)
    settings = settings_of(pipeline_file(report, choices, {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.name, settings.router.workers, settings.event_time.allowed_lateness_s) == ("other", 40, 90)
    assert settings.worker_input.partitions >= 40


@pytest.mark.parametrize(
    ("keys", "encoding"),
    [
        ([f"user {i % 9}".encode() for i in range(200)], "utf8"),
        ([(i % 9 - 4).to_bytes(8, "big", signed=True) for i in range(200)], "int64"),
        ([(i % 9 - 4).to_bytes(4, "big", signed=True) for i in range(200)], "int32"),
        ([f"{i % 9:08}".encode() for i in range(200)], "utf8"),
        ([None if i % 50 == 0 else f"k{i % 9}".encode() for i in range(200)], "utf8"),
        ([f"line\n{i % 9}".encode() for i in range(200)], "utf8"),
    ],
    ids=["text", "int64", "int32", "text of 8 bytes", "some without", "text that is not printable"],
)
def test_pipeline_file_record_key_is_proposed_in_its_encoding(
    keys: list[bytes | None], encoding: str, tmp_path: Path
) -> None:
    report = keyed_report(keys)
    settings = settings_of(pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.splitter.key.from_, settings.splitter.key.encoding) == ("record_key", encoding)
    assert (settings.splitter.format.name, settings.splitter.time.field) == ("json", "at")
    assert report["keys"][0]["cardinality"] == 9
    assert [key["name"] for key in report["keys"]] == ["record key", "user"]


@pytest.mark.parametrize(
    "keys",
    [
        [b"constant"] * 200,
        [f"id-{i}".encode() for i in range(200)],
        [None if i % 5 == 0 else f"k{i % 9}".encode() for i in range(200)],
        [None if i % 5 else b"k%d" % (i % 9) for i in range(200)],
        [b"\xff\xfe%d" % (i % 9) for i in range(200)],
    ],
    ids=["constant", "unique", "a fifth without", "most without", "binary"],
)
def test_pipeline_file_record_key_that_groups_nothing_is_not_proposed(keys: list[bytes | None], tmp_path: Path) -> None:
    report = keyed_report(keys)
    settings = settings_of(pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.splitter.key.from_, settings.splitter.key.field) == (None, "user")


def test_pipeline_file_record_key_that_the_user_chose_is_written(tmp_path: Path) -> None:
    report = keyed_report([b"constant"] * 200, chosen="record key")
    settings = settings_of(
        pipeline_file(report, choices_of(report, key_is_chosen=True), {"kafka": KAFKA}, NOW_MS), tmp_path
    )
    assert settings.splitter.key.from_ == "record_key"


def test_pipeline_file_binary_values_with_record_keys_count_the_keys(tmp_path: Path) -> None:
    batch = RecordColumns([b"\xff\xfe"] * 90, np.arange(90), [b"k%d" % (i % 9) for i in range(90)], [()] * 90)
    inspector = Inspector([batch], None)
    inspector.add(batch)
    report = inspector.report() | {"topic": "avro", "retained_offsets": 90, "oldest_ms": 0}
    settings = settings_of(pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.splitter.key.from_, settings.splitter.reads_value) == ("record_key", False)


def test_inspector_record_key_that_no_record_has_is_an_error_with_the_fields() -> None:
    with pytest.raises(ConfigurationError, match=r"--key: no record has a key; fields: .*user"):
        keyed_report([None] * 200, chosen="record key")


def test_usable_keys_binary_values_have_none() -> None:
    assert usable_keys(report_of([b"\xff\xfe"] * 10)) == []


@pytest.mark.parametrize(
    ("topic", "name"), [("clicks", "clicks"), ("A.b_C-", "a-b-c"), ("...", "pipeline"), ("x" * 200, "x" * 100)]
)
def test_pipeline_name_is_valid_for_any_topic(topic: str, name: str) -> None:
    assert pipeline_name(topic) == name


def test_pipeline_file_of_a_long_recording_has_long_windows_panes_and_ticks(tmp_path: Path) -> None:
    values: list[bytes | None] = [f"{1_700_000_000 + 3_600 * i};a{i % 5}".encode() for i in range(400)]
    report = report_of(values)
    settings = settings_of(pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.aggregator.window_s, settings.worker.pane_s, settings.observer.tick_s) == (3_600, 3_600, 3_600)


def test_pipeline_file_date_and_time_of_day_are_one_event_time(tmp_path: Path) -> None:
    report = report_of([b"1995-07-01 %02d:00:07,500 L%d" % (i % 24, i % 3) for i in range(72)])
    settings = settings_of(pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.splitter.time.field, settings.splitter.time.of_day) == (0, 1)
    assert settings.aggregator.window_s == 60
    time = report["times"][-1]
    assert (time["name"], time["resolution"], time["last_ms"] - time["first_ms"]) == ("0 and 1", "ms", 23 * 3_600_000)


@pytest.mark.parametrize(
    ("step_s", "resolution", "window_s"),
    [(86_400, "day", 86_400), (3_600, "hour", 3_600), (60, "minute", 60), (1, "second", 60)],
)
def test_pipeline_file_windows_are_not_shorter_than_the_resolution_of_the_times(
    step_s: int, resolution: str, window_s: int, tmp_path: Path
) -> None:
    report = report_of([f"{86_400 * 19_000 + step_s * (i % 6)};a{i % 5}".encode() for i in range(60)])
    text = pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS)
    assert settings_of(text, tmp_path).aggregator.window_s == window_s
    assert f"# Event time: 0, resolution {resolution}." in text


def test_pipeline_file_dates_without_a_time_of_day_have_windows_of_a_day(tmp_path: Path) -> None:
    report = report_of([b"2026-03-01;a%d" % (i % 5) for i in range(60)])
    settings = settings_of(pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS), tmp_path)
    assert (settings.splitter.time.field, settings.aggregator.window_s) == (0, 86_400)


@pytest.mark.parametrize(
    ("age_days", "retained", "older_days", "days"),
    [
        (0, 1, 0, 30),
        (14, 1, 0, 30),
        (16, 1, 0, 90),
        (100, 1, 0, 365),
        (0, 1_000, 0, 90),
        (18_000, 1, 0, 36_500),
        (0, 9, 400, 1_825),
    ],
    ids=["now", "half a month", "more", "months", "a sample of a thousandth", "decades", "slower at first"],
)
def test_pipeline_file_results_are_kept_for_twice_the_age_of_the_topic(
    age_days: int, retained: int, older_days: int, days: int, tmp_path: Path
) -> None:
    """The sample has an hour of records. It may be a part of those that the topic retains."""
    lines: list[bytes | None] = [f"{1_700_000_000 + 40 * i};a{i % 5}".encode() for i in range(90)]
    oldest_ms = 1_700_000_000_000 - older_days * 86_400_000
    report = report_of(lines) | {"retained_offsets": retained * len(lines), "oldest_ms": oldest_ms}
    text = pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS + age_days * 86_400_000)
    assert settings_of(text, tmp_path).topics.results_retention_s == days * 86_400
    assert f"began more than {days:,} days ago" in text


@pytest.mark.parametrize(
    ("oldest_ms", "reason"),
    [
        (None, "the first records of the topic have no time, so their age is unknown"),
        (-62_135_596_800_000, "the oldest time in the records is of the year 1"),
    ],
)
def test_pipeline_file_results_are_kept_if_the_age_of_the_topic_is_unknown(
    oldest_ms: int | None, reason: str, tmp_path: Path
) -> None:
    report = report_of(clicks()) | {"oldest_ms": oldest_ms}
    text = pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS)
    assert settings_of(text, tmp_path).topics.results_retention_s is None
    assert f"# Results are kept forever, and the topic of results grows: {reason}.\n" in text


def test_pipeline_file_few_times_of_the_year_1_are_counted_so_results_are_kept(tmp_path: Path) -> None:
    times = ["0001-01-01T00:00:00Z" if i % 5 == 0 else f"2023-11-14T22:00:{i % 60:02}Z" for i in range(200)]
    report = report_of([json.dumps({"user": f"u{i % 9}", "at": at}).encode() for i, at in enumerate(times)])
    text = pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS)
    assert settings_of(text, tmp_path).topics.results_retention_s is None
    assert "at least twice the age" not in text


def test_pipeline_file_first_records_in_another_unit_are_invalid(tmp_path: Path) -> None:
    report = report_of([json.dumps({"user": f"u{i % 9}", "at": START_MS + i}).encode() for i in range(200)])
    text = pipeline_file(report | {"oldest_ms": START_MS // 1000}, choices_of(report), {"kafka": KAFKA}, NOW_MS)
    records = [{"user": "u1", "at": START_MS // 1000}, {"user": "u1", "at": START_MS}]
    assert len(outcome_of(settings_of(text, tmp_path), records, NOW_MS)[0].invalid) == 1


@pytest.mark.parametrize(("records_per_s", "mode"), [(None, "none"), (49_999.0, "none"), (50_000.0, "buffer")])
def test_pipeline_file_local_aggregation_is_on_at_a_high_rate(
    records_per_s: float | None, mode: str, tmp_path: Path
) -> None:
    report = report_of(clicks()) | {"records_per_s": records_per_s}
    text = pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS)
    assert settings_of(text, tmp_path).splitter.local.mode == mode
    assert ("CPU time below 50,000 records per second" in text) == (mode == "none")


def test_pipeline_file_key_that_many_records_lack_says_what_is_not_counted(tmp_path: Path) -> None:
    records = [{"at": 1_700_000_000 + i} | ({"user": f"u{i % 9}"} if i % 10 < 7 else {}) for i in range(2_000)]
    values: list[bytes | None] = [json.dumps(record).encode() for record in records]
    report = report_of(values)
    text = pipeline_file(report, choices_of(report), {"kafka": KAFKA}, NOW_MS)
    assert "# WARNING: 30.00% of these records are not counted. They go to dead-letters:" in text
    assert "#   key field user is missing (600)" in text
    batch = RecordColumns.of_values(values, 1_700_000_000_000 + np.arange(len(values)))
    parsed = RecordParser(settings_of(text, tmp_path).splitter).parse(batch)
    assert len(parsed.invalid) == 600


def test_pipeline_file_one_time_far_ahead_does_not_change_the_lateness() -> None:
    times = [1_700_000_000 + i for i in range(2_000)]
    times[10] = 4_070_908_800
    report = report_of([json.dumps({"user": f"u{i % 9}", "at": time}).encode() for i, time in enumerate(times)])
    choices = choices_of(report)
    assert choices.lateness_s == 10
    assert [(found["reason"], found["records"]) for found in choices.key["invalid"]] == [
        ("time too far ahead of the clock", 1)
    ]
    assert report["times"][-1]["last_ms"] == 1_700_001_999_000
