"""Settings of the sink: which URLs and names are accepted, and that no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from helpers.stage_start import in_memory
from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.sql.dialects import database_of
from skewless.stages.sink import builder as sink_builder


def settings(name: str = "p", **sink: Any) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {"name": name, "source": {"topic": "t"}, "sink": {"url": "sqlite:///tmp/x.db", **sink}}
    )


def server(url: str, **sink: Any) -> PipelineSettings:
    return settings(**{"url": url, "username": "u", **sink})


@pytest.mark.parametrize(
    ("url", "tls", "warned"),
    [
        ("postgresql://db.example.com/shop", None, True),
        ("mysql://10.0.0.5/shop", None, True),
        ("mysql://db.example.com/shop", {"verify": "none"}, False),
        ("postgresql://localhost/shop", None, False),
        ("postgresql://127.0.0.2:5433/shop", None, False),
        ("mysql://[::1]/shop", None, False),
    ],
)
def test_stage_of_a_table_warns_of_a_login_to_another_host_without_tls(
    url: str, tls: dict[str, Any] | None, *, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sink_builder.build(in_memory("sink", server(url, tls=tls), 1))
    found = [text for text in caplog.messages if "unencrypted; set sink.tls, unless others cannot read" in text]
    assert len(found) == warned


def test_url_of_a_file_with_four_slashes_is_that_with_three() -> None:
    shown = {str(settings(url=f"sqlite:{slashes}folder/x.db").table_settings.address) for slashes in ("///", "////")}
    assert shown == {"/folder/x.db"}


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
        ("postgresql://a..b/shop", "has no valid host name: write postgresql://host/database"),
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
        ({"table": "skewless_x"}, "reserved by Skewless"),
        ({"table": "sqlite_x"}, "reserved by SQLite"),
        ({"mode": "other"}, "replace' or 'merge"),
        ({"top_table": "Ranks"}, "pattern"),
        ({"top_table": "sqlite_x"}, r"sink\.top_table: sqlite_x: .* reserved by SQLite"),
        ({"table": "x", "top_table": "x"}, "sink.top_table: is the table of the results"),
        ({"top_table": "ranks"}, "sink.top_table: stores the ranks of aggregator.top, which is not set"),
        ({"transaction_rows": 0}, "greater than or equal to 1"),
        ({"statement_timeout_s": 91}, r"sink\.statement_timeout_s: must be at most half of .* \(180\)"),
        ({"lock_timeout_s": 91}, r"sink\.lock_timeout_s: must be at most half of metrics\.liveness_timeout_s "),
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


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_database_with_files_of_tls_that_cannot_be_read_names_each_setting(scheme: str) -> None:
    pipeline = server(f"{scheme}://db/shop", tls={"ca": "/none", "certificate": "/", "key": "/none.key"})
    with pytest.raises(ConfigurationError) as error:
        database_of(pipeline.table_settings, pipeline.sink_table())
    assert error.value.problems == (
        "sink.tls.ca: /none: cannot be read: No such file or directory",
        "sink.tls.certificate: /: cannot be read: Is a directory",
        "sink.tls.key: /none.key: cannot be read: No such file or directory",
    )


def test_table_of_a_pipeline_has_its_name_with_underscores() -> None:
    assert settings("word-count").sink_table().name == "word_count"


def test_table_of_a_pipeline_whose_name_begins_with_a_digit_needs_a_setting() -> None:
    with pytest.raises(ValidationError, match=r"sink\.table"):
        settings("2026")
    assert settings("2026", table="words").sink_table().name == "words"


def test_table_of_a_pipeline_whose_name_is_reserved_in_its_database_needs_a_setting() -> None:
    with pytest.raises(ValidationError, match=r"sink\.table: sqlite_events: .* reserved by SQLite: set sink\.table"):
        settings("sqlite-events")
    assert settings("sqlite-events", table="events").sink_table().name == "events"
    on_server = settings("sqlite-events", url="mysql://db/shop", username="ann")
    assert on_server.sink_table().name == "sqlite_events"


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


def by_hour_and_category(mode: str, *aggregates: Any, hour: str = "hour", **sink: Any) -> PipelineSettings:
    parts = [{"field": "time", "name": hour, "truncate": "hour"}, {"field": "category"}]
    return PipelineSettings.model_validate(
        {
            "name": "p",
            "source": {"topic": "t"},
            "splitter": {"format": "json", "key": {"fields": parts}, "values": {"amount": {"field": "v"}}},
            "aggregator": {"aggregates": aggregates},
            "sink": {"url": "sqlite:///tmp/x.db", "mode": mode, **sink},
        }
    )


def test_table_parts_of_a_composite_key_are_columns() -> None:
    for mode in ("replace", "merge"):
        table = by_hour_and_category(mode, "count", {"mean": "amount"}).sink_table()
        assert [(column.name, column.kind) for column in table.key_parts] == [("hour", "text"), ("category", "text")]
        assert [column.name for column in table.columns][4:6] == ["hour", "category"]
    assert [column.name for column in table.view] == ["hour", "category", "count", "mean_amount"]


@pytest.mark.parametrize(
    ("mode", "name", "problem"),
    [
        ("replace", "Hour", r"splitter\.key\.fields: Hour cannot be the name of a column .* another name with `name`"),
        ("replace", "key_id", "key_id cannot be the name of a column"),
        ("merge", "sum_amount", r"splitter\.key\.fields: sum_amount is a column of the table of mode: merge"),
    ],
)
def test_table_part_of_a_key_that_cannot_be_a_column_is_refused(mode: str, name: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        by_hour_and_category(mode, {"mean": "amount"}, hour=name)


@pytest.mark.parametrize("name", ["ctid", "xmin"])
def test_table_column_with_the_name_of_a_system_column_is_refused_for_postgresql_only(name: str) -> None:
    by_hour_and_category("replace", {"min": "amount", "as": name})
    server = {"url": "postgresql://host/db", "username": "u"}
    with pytest.raises(ValidationError, match=rf"aggregator\.aggregates: {name} is a column of .* one with `as`"):
        by_hour_and_category("replace", {"min": "amount", "as": name}, **server)
    with pytest.raises(ValidationError, match=rf"splitter\.key\.fields: {name} is a column of .* one with `name`"):
        by_hour_and_category("replace", "count", hour=name, **server)


@pytest.mark.parametrize("mode", ["replace", "merge"])
def test_table_part_of_a_key_with_the_name_of_a_result_is_refused_by_one_line(mode: str) -> None:
    with pytest.raises(ValidationError, match=r"count is a result of aggregator\.aggregates") as refused:
        by_hour_and_category(mode, "count", hour="count")
    assert "mode: merge" not in str(refused.value)


def test_sink_table_without_section_is_refused() -> None:
    pipeline = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}})
    with pytest.raises(ConfigurationError, match="sink: is required"):
        pipeline.sink_table()


def test_dump_password_is_hidden() -> None:
    text = loader.dump(server("postgresql://db/shop", password="canary@:/%"))  # noqa: S106 - for this test
    assert "canary" not in text
    assert loader.HIDDEN in text


def merging(aggregates: list[Any], having: dict[str, Any] | None = None, **value: Any) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "name": "p",
            "source": {"topic": "t"},
            "splitter": {"format": "json", "key": {"field": "k"}, "values": {"price": {"field": "v", **value}}},
            "aggregator": {"aggregates": aggregates, "having": having or {}, "emit": "final"},
            "sink": {"url": "sqlite:///tmp/x.db", "mode": "merge"},
        }
    )


def test_merge_table_has_the_parts_of_results_and_a_view_of_them() -> None:
    aggregates = ["count", {"sum": "price", "as": "total"}, {"mean": "price"}, {"min": "price"}, {"max": "price"}]
    table = merging(aggregates, decimals=2).sink_table()
    assert [(column.name, column.kind, column.merge) for column in table.results] == [
        ("count", "integer", "sum"),
        ("total", "decimal", "sum"),
        ("min_price", "decimal", "min"),
        ("max_price", "decimal", "max"),
    ]
    assert table.view_name == "p_results"
    assert table.view[2] == ("mean_price", "total", "count")


def test_merge_mean_alone_needs_columns_of_its_own() -> None:
    table = merging([{"mean": "price"}], missing="skip").sink_table()
    assert [(column.name, column.nullable) for column in table.results] == [
        ("sum_price", True),
        ("count_price", False),
    ]
    assert table.view == (("mean_price", "sum_price", "count_price"),)


@pytest.mark.parametrize(
    ("aggregates", "problem"),
    [
        ([{"stddev": "price"}], "cannot merge partial results of stddev; or use mode: replace"),
        (["count", {"last": "price"}], "cannot merge partial results of last; or use mode: replace"),
        ([{"largest": "price", "n": 2}], "cannot merge partial results of largest; or use mode: replace"),
        ([{"mean": "price"}, {"max": "price", "as": "sum_price"}], "sum_price: is the name of a column"),
    ],
)
def test_merge_result_that_a_database_cannot_merge_is_refused(aggregates: list[Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        merging(aggregates)


def test_merge_with_conditions_on_results_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"aggregator\.having: remove it, or use mode: replace"):
        merging(["count"], {"count": {"at_least": 2}})


def ranking(*aggregates: Any, **sink: Any) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "name": "pages",
            "source": {"topic": "t"},
            "splitter": {"format": "json", "key": {"field": "k"}, "value": {"field": "v"}},
            "aggregator": {"aggregates": ["count", *aggregates], "top": {"n": 3, "by": "count"}},
            "sink": {"url": "sqlite:///tmp/x.db", "top_table": "ranks", **sink},
        }
    )


@pytest.mark.parametrize(
    ("sink", "shared"),
    [
        ({"top_table": "pages_refused"}, "pages_refused"),
        ({"top_table": "pages_key"}, "pages_key"),
        ({"top_table": "pages_pkey"}, "pages_pkey"),
        ({"top_table": "pages_results", "mode": "merge"}, "pages_results"),
        ({"table": "ranks_refused"}, "ranks_refused"),
        ({"table": "ranks_key", "mode": "merge"}, "ranks_key"),
    ],
)
def test_top_table_whose_names_are_those_of_the_other_table_is_refused(sink: dict[str, Any], shared: str) -> None:
    expected = rf"sink\.top_table: with \w+, the ranks .* would both have {shared} in the database; choose another name"
    with pytest.raises(ValidationError, match=expected):
        ranking(**sink)


def test_top_table_with_the_name_that_a_view_has_in_the_other_mode_is_accepted() -> None:
    (table,) = ranking(top_table="pages_results").rank_tables()
    assert table.name == "pages_results"


@pytest.mark.parametrize("name", ["key_id", "gr\u00f6\u00dfe"])
def test_top_table_result_that_cannot_be_a_column_of_the_ranks_is_refused_with_the_setting(name: str) -> None:
    mean = {"mean": "value", "as": name}
    expected = rf"aggregator\.aggregates: {name} cannot be the name of a column .* another name with `as`"
    with pytest.raises(ValidationError, match=expected) as error:
        ranking(mean, mode="merge")
    assert str(error.value).count("cannot be the name of a column") == 1
    with pytest.raises(ValidationError, match=expected):
        ranking(mean)
    assert ranking(mean, mode="merge", top_table=None).sink_table().view[1].name == name
