"""Warnings of `skewless up` about the records that it has processed."""

from __future__ import annotations

from typing import Any

import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.operations.data_quality import cause_without_tuples


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "an empty list in each of them"),
        ({"key": {"field": "k", "pattern": "[0-9]+"}}, "splitter.key.pattern"),
        (
            {"key": {"field": "k", "pattern": "[0-9]+", "drop_if_contains": ["0"]}, "tombstones": "skip"},
            "splitter.key.pattern or splitter.key.drop_if_contains or splitter.tombstones",
        ),
        (
            {"where": [{"field": "a", "is": 1}], "envelope": "debezium"},
            "splitter.where or splitter.envelope",
        ),
    ],
)
def test_cause_without_tuples_names_the_settings_with_which_a_valid_record_may_have_no_tuple(
    changes: dict[str, Any], expected: str
) -> None:
    splitter = {"format": "json", "key": {"field": "k"}, **changes}
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}, "splitter": splitter})
    assert cause_without_tuples(settings) == expected
