"""`skewless results` shows the rows of real tables, without Kafka if they have only windows that have closed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Ended

from helpers.databases import TestDatabase
from helpers.messages import message
from integration.sql.sql_sink import START, Flusher, Sink, result
from integration.sql.test_merge import delta
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.cli.main import main
from skewless.errors import BrokerError, ConfigurationError, UnreachableError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.operations.results import table, topic
from skewless.sql.table_reader import StoredRow, TableSnapshot

MINUTE = 60_000


@pytest.fixture(autouse=True)
def _no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed_everywhere(_settings: object, _stage: str) -> int:
        raise UnreachableError("no broker answers")

    monkeypatch.setattr(table, "closed_everywhere", closed_everywhere)


def results(
    sink: Sink, folder: Path, *options: str, window: dict[str, Any] | None = None, emit: str = "final"
) -> Ended:
    file = folder / "pipeline.yaml"
    document = sink.settings.model_dump(mode="json", include={"name", "source"})
    document["kafka"] = {"bootstrap_servers": "localhost:1"}
    document["splitter"] = {"key": {"field": "k"}, "value": {"field": "v", "decimals": 1}}
    document["aggregator"] = {"emit": emit, "aggregates": [row.name for row in sink.settings.results]}
    document["aggregator"] |= {"window": window} if window else {}
    address = sink.settings.table_settings
    document["sink"] = {"url": address.url, "mode": address.mode}
    if address.password is not None:
        document["sink"] |= {"username": address.username, "password": address.password.get_secret_value()}
    file.write_text(json.dumps(document))
    return CliRunner().invoke(main, ["results", "-f", str(file), *options])


def shown(sink: Sink, folder: Path, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results(sink, folder, "--json", *options).stdout.splitlines()]


def test_results_of_a_table_are_those_of_the_chosen_windows_and_key(database: TestDatabase, tmp_path: Path) -> None:
    sink = Sink(database, decimals=1).start()
    sink.store(
        [result("a", count=5), result("a", START + MINUTE, 3, sum=-0.5, count=2), result("b", START + MINUTE, count=7)]
    )
    last = shown(sink, tmp_path)
    assert [(row["key"], row["count"]) for row in last] == [("b", 7), ("a", 2)]
    assert last[1] == {
        "key": "a",
        "window_start": START + MINUTE,
        "window_end": START + 2 * MINUTE,
        "count": 2,
        "sum": -0.5,
        "mean": 1.0,
        "max": 1.0,
        "revision": 3,
    }
    assert [row["count"] for row in shown(sink, tmp_path, "--window", "all", "--key", "a")] == [5, 2]
    assert [row["key"] for row in shown(sink, tmp_path, "--window", "all", "--top", "1")] == ["a", "b"]
    updates = results(sink, tmp_path, emit="updates")
    assert (updates.exit_code, updates.stderr) == (3, "error: no broker answers\n")
    none = results(sink, tmp_path, "--key", "z")
    assert none.exit_code == 1
    assert "has no results of key z" in none.stderr


@pytest.mark.parametrize("error", [UnreachableError("gone"), BrokerError("no right"), ConfigurationError("no login")])
def test_results_of_a_final_table_need_no_answer_of_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refused(_kafka: object) -> OffsetReader:
        raise error

    sink = Sink(TestDatabase("sqlite", f"sqlite://{tmp_path}/p.db", None, "p"), decimals=1).start()
    sink.store([result("a")])
    monkeypatch.setattr(table, "closed_everywhere", lambda _settings, _stage: MAX_WATERMARK)
    monkeypatch.setattr(table, "OffsetReader", refused)
    assert [row["key"] for row in shown(sink, tmp_path)] == ["a"]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_results_last_window_of_which_the_table_lacks_changes_is_left_out(
    database: TestDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    sink = Sink(database, decimals=1).start()
    sink.store([result("a"), result("a", START + MINUTE)])
    key, value = result("b", START + MINUTE)
    value = None if is_deleted else value
    monkeypatch.setattr(table, "_closed_in_topic", lambda _settings: (MAX_WATERMARK, {0: (0, 2), 1: (3, 4)}))
    missing = {str({0: (2, 2), 1: (3, 4)}): [(1, [message(2, key=b"foreign"), message(3, value, key=key)])]}
    monkeypatch.setattr(topic, "read_ranges", lambda _kafka, _topic, ranges: missing[str(ranges)])
    assert [row["window_start"] for row in shown(sink, tmp_path)] == [START]
    assert [row["window_start"] for row in shown(sink, tmp_path, "--window", "open")] == [START + MINUTE]


def test_results_of_all_windows_are_one_read_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[tuple[int | None, int | None]] = []
    pages = TableSnapshot.pages

    def noted(stored: TableSnapshot, first: int | None = None, last: int | None = None) -> Iterator[list[StoredRow]]:
        ranges.append((first, last))
        return pages(stored, first, last)

    monkeypatch.setattr(TableSnapshot, "pages", noted)
    sink = Sink(TestDatabase("sqlite", f"sqlite://{tmp_path}/p.db", None, "p"), decimals=1).start()
    sink.store([result("a", START + number * MINUTE) for number in range(3)])
    assert len(shown(sink, tmp_path, "--window", "all")) == 3
    assert ranges == [(START, START + 2 * MINUTE)]


def test_results_before_the_first_run_name_the_missing_table(database: TestDatabase, tmp_path: Path) -> None:
    sink = Sink(database, decimals=1)
    sink.database.connect()  # which creates the file of SQLite
    ended = results(sink, tmp_path)
    assert ended.exit_code == 3
    assert ended.stderr.startswith("error: table p in ")
    assert ended.stderr.endswith(" does not exist: run the pipeline, whose sink creates it when it starts\n")


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    "restriction",
    ["REVOKE TEMPORARY ON DATABASE {0} FROM PUBLIC", "ALTER DATABASE {0} SET default_transaction_read_only = on"],
)
def test_results_need_no_right_to_write(database: TestDatabase, tmp_path: Path, restriction: str) -> None:
    sink = Sink(database, decimals=1).start()
    sink.store([result("a")])
    database.query(f"ALTER DATABASE {database.name} OWNER TO postgres")  # an owner has each right
    database.query(restriction.format(database.name))
    assert [row["key"] for row in shown(sink, tmp_path)] == ["a"]


def test_results_of_sessions_with_one_start_are_each_shown_once_and_chosen_by_their_own_end(
    database: TestDatabase, tmp_path: Path
) -> None:
    sink = Sink(database, decimals=1).start()
    ends = {"a": START + MINUTE, "b": START + 2 * MINUTE, "c": START + 3 * MINUTE}
    sink.store([result(key, window_end=end) for key, end in ends.items()])

    def keys(choice: str) -> list[str]:
        answer = results(sink, tmp_path, "--json", "--window", choice, window={"session": {"gap_s": 60}})
        return [json.loads(line)["key"] for line in answer.stdout.splitlines()]

    assert keys("all") == ["a", "b", "c"]
    assert keys("last") == ["c"]
    within = datetime.fromtimestamp((START + MINUTE) / 1000, UTC).isoformat()
    assert keys(within) == ["b", "c"]


@pytest.mark.parametrize("options", [[], ["--key", "a"], ["--window", "all"]], ids=["last", "key", "all"])
@pytest.mark.parametrize(
    ("column", "value"), [("window_start", "yesterday"), ("window_end", ""), ("window_end", "NaT")]
)
def test_results_of_a_time_that_is_none_name_its_column(
    tmp_path: Path, column: str, value: str, options: list[str]
) -> None:
    database = TestDatabase("sqlite", f"sqlite://{tmp_path}/p.db", None, "p")
    sink = Sink(database, decimals=1).start()
    sink.store([result("a"), result("b")])
    database.query(f"UPDATE p SET {column} = '{value}' WHERE key = 'a'")
    ended = results(sink, tmp_path, *options)
    assert ended.exit_code == 3
    assert f"table p in {tmp_path}/p.db: column {column} has the value '{value}', it needs a time: corr" in ended.stderr


def test_results_of_partial_results_are_those_of_the_view(database: TestDatabase, tmp_path: Path) -> None:
    flusher = Flusher(database, aggregates=["count", "sum", "mean", "min"], decimals=1)
    flusher.start()
    flusher.add(delta("a", 2, 5), delta("b", 4, -3), delta("c", 3, 3))
    flusher.add(delta("a", 1, 2))
    key = database.quoted("key")
    rows = database.query(f"SELECT {key}, count, mean, revision FROM p_results ORDER BY {key}")
    found = shown(flusher, tmp_path, "--by", "mean")
    assert [(row["key"], row["count"], pytest.approx(row["mean"]), row["revision"]) for row in found] == [
        rows[0],
        rows[2],
        rows[1],
    ]
    assert [(row["key"], row["sum"], row["min"]) for row in found] == [
        ("a", 0.7, 0.2),
        ("c", 0.3, 0.3),
        ("b", -0.3, -0.3),
    ]
    assert [row["mean"] for row in found] == [7 / 30, 0.1, -3 / 40]  # 0.3 / 3 is 0.09999999999999999
