"""The enricher adds the headers of tables only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.in_memory import InMemoryPipeline
from skewless.wire.record import OutputRecord

NOW = 1_767_225_600_000


def pipeline(**of_table: Any) -> InMemoryPipeline:
    table = {"topic": "users", "key": {"field": "user"}, "fields": {"country": "country"}, **of_table}
    settings = {
        "name": "views",
        "enrich": {"topic": "page-views", "tables": [table]},
        "source": {"topic": "views.enriched"},
        "splitter": {"format": "json", "key": {"header": "country"}},
        "aggregator": {"aggregates": ["count"], "emit": "final"},
    }
    return InMemoryPipeline(PipelineSettings.model_validate(settings))


@pytest.mark.parametrize(
    ("default", "headers", "counted"),
    [(None, [("page", b"/")], []), ("unknown", [("page", b"/"), ("country", b"unknown")], ["unknown"])],
)
def test_enricher_record_without_a_row_is_not_counted_under_a_header_that_it_already_has(
    default: str | None, headers: list[tuple[str, bytes]], counted: list[str]
) -> None:
    record = OutputRecord("page-views", b'{"user": "ann"}', partition=0, headers=[("country", b"xx"), ("page", b"/")])
    outputs = pipeline(missing="keep", default=default).process([record], NOW, end=True)
    assert [list(enriched.headers) for enriched in outputs["enriched"]] == [headers]
    assert [json.loads(result.value or b"")["key"] for result in outputs["aggregates"]] == counted
    assert len(outputs["dead-letters"]) == 1 - len(counted)
