"""Settings of the sink: which URLs and names are accepted, and that no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError


def settings(name: str = "p", **sink: Any) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {"name": name, "source": {"topic": "t"}, "sink": {"url": "sqlite:///tmp/x.db", **sink}}
    )


def server(url: str, **sink: Any) -> PipelineSettings:
    return settings(**{"url": url, "username": "u", **sink})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db:5433/shop", "db:5433/shop"),
        ("postgresql://db/shop", "db:5432/shop"),
        ("mysql://db/shop", "db:3306/shop"),
        ("postgresql://[::1]:5432/shop", "::1:5432/shop"),
        ("mysql://db/my%20shop", "db:3306/my shop"),
    ],
)
def test_url_of_a_server_is_accepted(url: str, shown: str) -> None:
    sink = server(url).sink
    assert sink is not None
    assert str(sink.address) == shown


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgres://db/shop", "unknown scheme postgres, did you mean postgresql"),
        ("db/shop", "unknown scheme"),
        ("oracle://db/shop", "unknown scheme oracle"),
        ("postgresql://u:secret@db/shop", "belong in sink.username and sink.password"),
        ("postgresql://u@db/shop", "belong in sink.username"),
        ("postgresql://db/shop?sslmode=disable", "parameters"),
        ("postgresql://db/shop#x", "parameters"),
        ("postgresql://db", "must name a host and a database"),
        ("postgresql:///shop", "must name a host and a database"),
        ("postgresql://db/a/b", "must name a host and a database"),
        ("postgresql://db:99999/shop", "not a valid URL"),
        ("postgresql://[::1/shop", "not a valid URL"),
        ("sqlite://relative.db", "absolute path"),
        ("sqlite:///folder/", "absolute path"),
    ],
)
def test_url_that_is_invalid_is_refused_with_the_remedy(url: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as error:
        server(url)
    assert "secret" not in str(error.value.errors(include_input=False, include_context=False)[0]["msg"])


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        ({"username": "u"}, "username: a file of SQLite has no username"),
        ({"password": "x"}, "password: a file of SQLite has no password"),
        ({"table": "Sales"}, "pattern"),
        ({"table": "x" * 60}, "at most 55"),
        ({"table": 'x"; drop'}, "pattern"),
        ({"table": "skewless_x"}, "reserved"),
        ({"mode": "other"}, "replace"),
        ({"transaction_rows": 0}, "greater than or equal to 1"),
    ],
)
def test_sink_setting_that_is_invalid_is_refused(sink: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        settings(**sink)


def test_sink_server_without_username_is_refused() -> None:
    with pytest.raises(ValidationError, match="username: is required"):
        settings(url="mysql://db/shop")


def test_tls_without_an_authority_is_refused() -> None:
    with pytest.raises(ValidationError, match="ca: is required"):
        server("mysql://db/shop", tls={})


def test_table_of_a_pipeline_has_its_name_with_underscores() -> None:
    assert settings("word-count").sink_table().name == "word_count"


def test_table_of_a_pipeline_whose_name_begins_with_a_digit_needs_a_setting() -> None:
    with pytest.raises(ValidationError, match=r"sink\.table"):
        settings("2026")
    assert settings("2026", table="words").sink_table().name == "words"


def test_table_columns_follow_the_registry_of_aggregates() -> None:
    pipeline = settings().model_copy(update={})
    data = pipeline.model_dump()
    data["aggregator"]["aggregates"] = ["count", "sum", "mean", "max"]
    data["splitter"] = {"format": "json", "key": {"field": "k"}, "value": {"field": "v", "decimals": 2}}
    columns = PipelineSettings.model_validate(data).sink_table().results
    assert [(column.name, column.kind, column.decimals) for column in columns] == [
        ("count", "integer", 0),
        ("sum", "decimal", 2),
        ("mean", "double", 0),
        ("max", "decimal", 2),
    ]


def test_sink_table_without_section_is_refused() -> None:
    pipeline = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}})
    with pytest.raises(ConfigurationError, match="sink: is required"):
        pipeline.sink_table()


def test_dump_password_is_hidden() -> None:
    text = loader.dump(server("postgresql://db/shop", password="canary@:/%"))  # noqa: S106 - for this test
    assert "canary" not in text
    assert loader.HIDDEN in text
