"""Settings of an enrichment that contradict each other are refused, with the setting and the remedy."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from skewless.config.pipeline_settings import PipelineSettings

TABLE: dict[str, Any] = {"topic": "users", "key": {"field": "user"}, "fields": {"country": "geo.country"}}


SIDE = {"id": {"from": "record_key"}}


def pipeline(table: dict[str, Any], **parts: Any) -> PipelineSettings:
    enrich = {"topic": "views", "tables": [TABLE | table]}
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "p.enriched"}, "enrich": enrich, **parts})


def test_enrich_settings_name_the_topics_of_the_user() -> None:
    settings = pipeline({})
    assert settings.user_topics == {"enrich.topic": "views"}
    assert settings.table_topics == {"enrich.tables.0.topic": "users"}
    assert settings.own_source == "enriched"
    assert settings.topic("events") == "views"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"topic": "views"}, "tables.0.topic: is views, like topic; name another topic"),
        ({"key": {}}, "key: missing; set one of from, field and header"),
        ({"key": {"field": "users[]"}}, "must not contain a list"),
        ({"key": {"field": ""}}, "tables.0.key.field: '' is not a path"),
        ({"fields": {"country": "geo[].country"}}, "fields.country: must not contain a list: a row has one text"),
        ({"fields": {"country": ""}}, "fields.country: '' is not a path"),
        ({"fields": {"1st": "a"}}, "String should match pattern"),
        ({"fields": {}}, "should have at least 1 item"),
        ({"default": "unknown"}, "default: only with missing: keep; remove one of the two"),
        ({"topic": "p.late"}, "enrich.tables.0.topic: p.late is one of the pipeline's own topics"),
    ],
)
def test_enrich_settings_of_a_table_that_do_not_fit_are_refused(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        pipeline(table)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"source": {"topic": "views"}}, "source.topic: set p.enriched: the records of enrich.topic"),
        ({"source": None}, "source.topic: set p.enriched: the records of enrich.topic"),
        ({"source": {"topic": "p.enriched", "start": "latest"}}, "source.start: not with enrich"),
        ({"topics": {"tuples_partitions": 4}}, "topics.tuples_partitions: not with enrich"),
        (
            {"join": {"left": SIDE | {"topic": "l"}, "right": SIDE | {"topic": "r"}, "apart_s": 1}},
            "join: not with enrich; join in a pipeline of its own",
        ),
        (
            {"enrich": {"topic": "views", "tables": [TABLE, TABLE | {"topic": "others"}]}},
            "tables.1.fields.country: tables.0.fields has this name too; choose another one",
        ),
        (
            {
                "enrich": {
                    "topic": "views",
                    "tables": [TABLE, {"topic": "o", "key": {"header": "country"}, "fields": {"a": "a"}}],
                }
            },
            "tables.1.key.header: tables.0.fields adds this header, but a key is in the record before",
        ),
        (
            {"enrich": {"topic": "views", "format": "avro", "tables": [TABLE]}},
            "enrich.format: schemas are missing",
        ),
    ],
)
def test_enrich_settings_that_do_not_fit_the_pipeline_are_refused(parts: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        pipeline({}, **parts)
    assert problem in str(refused.value)
