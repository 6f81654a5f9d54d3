"""The encoding of internal records: packed by default, and that of version 0.2 where its stages may run."""

from __future__ import annotations

from typing import Any

import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.wire.columns import WriteColumns, write_packed, write_table


@pytest.mark.parametrize(
    ("parts", "write"),
    [
        ({}, write_packed),
        ({"event_time": {"late_rule": "event_time"}}, write_table),
        ({"event_time": {"late_rule": "event_time"}, "topics": {"columns": "packed"}}, write_packed),
        ({"topics": {"columns": "arrow"}}, write_table),
    ],
    ids=["unset", "late rule of 0.2", "packed", "arrow"],
)
def test_topics_columns_unset_are_those_of_0_2_with_its_rule_for_late_tuples(
    parts: dict[str, Any], write: WriteColumns
) -> None:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "s"}, **parts})
    assert settings.write_columns is write
