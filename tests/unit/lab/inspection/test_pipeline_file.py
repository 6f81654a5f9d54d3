"""The pipeline file that is written for a topic."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from skewless.config.loader import load
from skewless.config.pipeline_settings import PipelineSettings
from skewless.lab.inspection.inspector import Inspector
from skewless.lab.inspection.pipeline_file import choices_of, pipeline_file, pipeline_name, usable_keys

KAFKA = {"bootstrap_servers": "kafka:9092"}


@dataclass
class Batch:
    values: list[bytes | None]
    keys: list[bytes | None]
    timestamps: NDArray[np.int64]
    partition: int = 0


def report_of(values: list[bytes | None]) -> dict[str, Any]:
    batch = Batch(values, [None] * len(values), 1_700_000_000_000 + np.arange(len(values)))
    inspector = Inspector([batch], None)
    inspector.add(batch)
    return inspector.report() | {"topic": "My.Clicks_1"}


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
    settings = settings_of(pipeline_file(report, choices_of(report), KAFKA), tmp_path)
    assert (settings.name, settings.aggregated.topic) == ("my-clicks-1", "My.Clicks_1")
    assert (settings.splitter.format.name, settings.splitter.key.field) == (format_, field)
    assert settings.kafka.bootstrap_servers == "kafka:9092"


def test_pipeline_file_lateness_covers_the_disorder_of_the_sample(tmp_path: Path) -> None:
    report = report_of(clicks())
    settings = settings_of(pipeline_file(report, choices_of(report), KAFKA), tmp_path)
    assert (settings.splitter.time.field, settings.splitter.time.unit) == ("at", "s")
    assert settings.event_time.allowed_lateness_s == 6
    assert settings.event_time.allowed_lateness_s * 1000 >= report["times"][-1]["max_disorder_ms"]


def test_pipeline_file_choices_of_the_user_are_written(tmp_path: Path) -> None:
    report = report_of(clicks())
    choices = replace(choices_of(report), name="other", workers=40, lateness_s=90.0)
    settings = settings_of(pipeline_file(report, choices, KAFKA), tmp_path)
    assert (settings.name, settings.router.workers, settings.event_time.allowed_lateness_s) == ("other", 40, 90)
    assert settings.worker_input.max_workers >= 40


def test_usable_keys_binary_values_have_none() -> None:
    assert usable_keys(report_of([b"\xff\xfe"] * 10)) == []


@pytest.mark.parametrize(
    ("topic", "name"), [("clicks", "clicks"), ("A.b_C-", "a-b-c"), ("...", "pipeline"), ("x" * 200, "x" * 100)]
)
def test_pipeline_name_is_valid_for_any_topic(topic: str, name: str) -> None:
    assert pipeline_name(topic) == name
