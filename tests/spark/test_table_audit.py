"""An audit compares the table of `sink`: it finds no difference in a correct one, and every difference of a test."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from helpers.databases import Server, TestDatabase, new_database
from helpers.kafka import Pipeline, Source, zipf_records
from helpers.stage_hosts import stage_host
from helpers.waiting import WAIT_S, until
from skewless.cli.main import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.spark.table_audit import NOT_ACCEPTED, NOT_STORED, StoredTable, compare_with_topic
from skewless.sql.table import key_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED = ("window_ms", "key_bytes", "reason", "record", "topic", "partition", "offset", "refused_at")
COLUMNS = {
    "postgresql": "SELECT attname::text FROM pg_attribute WHERE attrelid = 'results'::regclass AND attnum > 0",
    "mysql": "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() "
    "AND table_name = 'results'",
    "sqlite": "SELECT name FROM pragma_table_info('results')",
}
STAGES = {"replace": "sink", "merge": "flusher"}


@dataclass
class Stored:
    """A table with the results of a pipeline that has ended."""

    pipeline: Pipeline
    database: TestDatabase
    file: Path

    def audit(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["audit", "-f", str(self.file), "--json", *arguments])

    def change(self, statement: str, key: str) -> None:
        """Run a statement on the rows of a key."""
        self.database.query(f"{statement} WHERE {self.database.quoted('key')} = '{key}'")

    def refuse(self, window: int, key: str) -> None:
        """Add a refused row."""
        names = ", ".join(self.database.quoted(name) for name in REFUSED)
        key_bytes = f"CAST('{key}' AS BLOB)" if self.database.dialect == "sqlite" else f"'{key}'"
        values = f"{window}, {key_bytes}, 'reason', '', 'topic', 0, 0, '2026-01-01 00:00:00'"
        self.database.query(f"INSERT INTO results_refused ({names}) VALUES ({values})")


@pytest.fixture(scope="module")
def drained(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Return a pipeline that has processed its source. It has no table yet."""
    source = Source(broker, 2)
    source.send(zipf_records(4_000, 2, seed=6, keys=200))
    pipeline = Pipeline(
        broker,
        tmp_path_factory.mktemp("drained"),
        source,
        splitter={"value": {"field": "value", "decimals": 2}},
        aggregator={"aggregates": ["count", "sum", "mean", "max"]},
    )
    pipeline.drain()
    return pipeline


def stored(pipeline: Pipeline, database: TestDatabase, folder: Path, mode: str) -> Stored:
    """Store the results of a pipeline in a table."""
    file = folder / "pipeline.yaml"
    document = json.loads(pipeline.file.read_text())
    document["sink"] = {**database.settings, "table": "results", "mode": mode}
    file.write_text(json.dumps(document))
    log = folder / "sink.log"
    command = ["run", STAGES[mode], "--file", str(file), "--drain"]
    assert stage_host().start(STAGES[mode], command, os.environ, log=log).wait(WAIT_S) == 0, log.read_text()
    return Stored(pipeline, database, file)


@pytest.mark.thorough
@pytest.mark.parametrize(("dialect", "mode"), [("postgresql", "replace"), ("mysql", "merge"), ("sqlite", "replace")])
def test_audit_of_a_table_finds_no_difference_and_every_planted_one(  # noqa: PLR0913, PLR0917 - fixtures
    drained: Pipeline,
    spark: SparkSession,
    database_servers: Callable[[str], Server],
    tmp_path: Path,
    dialect: str,
    mode: str,
) -> None:
    table = stored(drained, new_database(dialect, database_servers, tmp_path), tmp_path, mode)
    results = drained.results()[0]
    keys = Counter(key for _, key in results)
    chosen = sorted(key for key, windows in keys.items() if windows == 1)
    lost, changed, renamed, refused, doubled, moved = chosen[:6]
    (window,) = (window for window, key in results if key == refused)
    table.change("DELETE FROM results", lost)
    table.change("UPDATE results SET count = count + 1", changed)
    table.change(f"UPDATE results SET {table.database.quoted('key')} = 'other'", renamed)
    table.change("DELETE FROM results", refused)
    table.refuse(window, refused)
    foreign = {"postgresql": r"'\xff'", "mysql": "REPEAT(x'ff', 16)"}.get(dialect, "x'ff'")
    columns = [name for (name,) in table.database.query(COLUMNS[dialect]) if name != "key_id"]
    names = ", ".join(map(table.database.quoted, columns))
    table.change(f"INSERT INTO results ({names}, key_id) SELECT {names}, {foreign} FROM results", doubled)
    table.change(f"UPDATE results SET key_id = {foreign}", moved)
    wrong = table.audit("--out", str(tmp_path / "out"))
    assert wrong.exit_code == 1, wrong.output
    report = json.loads(wrong.stdout)
    assert report["differences"] == 0
    found = report["table"]
    first = found.pop("first_differences")
    assert Counter((row["kind"], row["key"]) for row in first) == Counter(
        [
            ("missing", lost),
            ("different", changed),
            ("missing", renamed),
            ("unexpected", "other"),
            ("duplicate", doubled),
            ("different", moved),
        ]
    )
    sides = {row["key"]: (json.loads(row["expected"]), json.loads(row["found"])) for row in first if all(row.values())}
    assert "key_id" not in sides[changed][0]
    for key in (doubled, moved):
        expected, stored_row = sides[key]
        assert expected["key_id"] == key_id(key).hex()
        assert stored_row["key_id"].startswith("ff")
    assert found == {
        "name": "results",
        "compared": len(results) + 1,  # without that of the refused row, with the renamed and the second one
        "compared_windows": len({window for window, _ in results}),
        "left_out": {NOT_ACCEPTED: 1},
        "differences": 6,
        "differences_by_kind": {"missing": 2, "different": 2, "unexpected": 1, "duplicate": 1},
    }
    assert "table results of pipeline" in wrong.stderr
    assert "differs in 6 places" in wrong.stderr
    parts = [part.read_text() for part in (tmp_path / "out" / "table-differences").glob("*.json")]
    assert sum(len(part.splitlines()) for part in parts) == 6


KEPT: dict[str, tuple[list[tuple[int, int, int | None, int]], tuple[int, int] | None, str | None]] = {
    "the stream's before one of batch": ([(0, 1, 5, 2), (0, 2, 7, 0)], (5, 2), None),
    "the last of one revision": ([(0, 1, 5, 2), (0, 2, 7, 2)], (7, 2), None),
    "only one of batch after compaction": ([(0, 2, 5, 0)], (5, 2), None),
    "the one after a tombstone": ([(0, 1, 5, 2), (0, 2, None, 0), (0, 3, 7, 0)], (7, 0), None),
    "the highest revision of two partitions": ([(0, 1, 5, 2), (1, 3, 7, 1)], (5, 2), None),
    "of two partitions one that is not stored": ([(0, 1, 5, 2), (1, 9, 7, 1)], (6, 2), NOT_STORED),
    "an earlier one": ([(0, 1, 5, 2)], (5, 1), "different"),
    "none": ([(0, 1, 5, 2)], None, "missing"),
    "one before a tombstone": ([(0, 1, 5, 2), (0, 2, None, 0)], (5, 2), "unexpected"),
}
"""Records (partition, offset, count, revision) of one window and key; count and revision of the row; the outcome."""


def test_compare_with_topic_expects_the_result_that_the_sink_keeps(spark: SparkSession) -> None:
    settings = PipelineSettings.model_validate(
        {"name": "p", "source": {"topic": "t"}, "aggregator": {"aggregates": ["count"]}, "sink": {"url": "sqlite:///a"}}
    )
    records: list[tuple[Any, ...]] = []
    rows: list[tuple[Any, ...]] = []
    for key, (written, stored_row, _) in KEPT.items():
        for partition, offset, count, revision in written:
            result = {"key": key, "window_start": 0, "window_end": 60, "count": count, "revision": revision}
            value = None if count is None else json.dumps(result).encode()
            records.append((f"0/{key}".encode(), value, partition, offset))
        if stored_row is not None:
            rows.append((f"0/{key}", None, 1, (key, 0, 60, *stored_row, None)))
    found = "key string, window_start long, window_end long, count long, revision long, key_id string"
    columns = f"record_key string, needed_id string, repeats int, found struct<{found}>"
    refused = spark.createDataFrame([], "record_key string")
    table = StoredTable(spark.createDataFrame(rows, columns), refused, offsets={0: 4, 1: 4}, watermarks={})
    aggregates = spark.createDataFrame(records, "key binary, value binary, partition int, offset long")
    report = compare_with_topic(table, aggregates, settings, since=None, first=len(KEPT), out=None)
    assert report["left_out"] == {NOT_STORED: 1}
    assert {row["key"]: row["kind"] for row in report["first_differences"]} == {
        key: outcome for key, (_, _, outcome) in KEPT.items() if outcome not in {None, NOT_STORED}
    }


@pytest.mark.thorough
def test_audit_of_a_table_behind_its_topic_leaves_the_rest_out(
    drained: Pipeline, spark: SparkSession, database_servers: Callable[[str], Server], tmp_path: Path
) -> None:
    table = stored(drained, new_database("sqlite", database_servers, tmp_path), tmp_path, "replace")
    # The first record of partition 0 is the only one that the table claims to have.
    table.database.query('UPDATE skewless_offsets SET next_offset = 1 WHERE "partition" = 0')
    behind = table.audit()
    assert behind.exit_code == 0, behind.output
    report = json.loads(behind.stdout)["table"]
    # A commit between two tuples of a key writes a second revision: the newest record of each key counts.
    newest = {record.key: (record.partition, record.offset) for record in drained.read("aggregates")}
    not_stored = sum(partition == 0 and offset >= 1 for partition, offset in newest.values())
    assert (report["compared"], report["left_out"]) == (len(newest) - not_stored, {NOT_STORED: not_stored})


@pytest.mark.thorough
def test_audit_of_a_table_of_a_running_pipeline_compares_closed_windows(
    broker: str, spark: SparkSession, database_servers: Callable[[str], Server], tmp_path: Path
) -> None:
    source = Source(broker, 1)
    source.send(zipf_records(4_000, 1, seed=4, keys=50))
    database = new_database("sqlite", database_servers, tmp_path)
    sink = {**database.settings, "table": "results", "mode": "merge", "transaction_s": 0.1}
    pipeline = Pipeline(broker, tmp_path, source, aggregator={"emit": "final"}, sink=sink)
    table, reports = Stored(pipeline, database, pipeline.file), list[dict[str, Any]]()

    def are_compared() -> bool:
        """Audit the table, which the flusher may not have created or filled yet."""
        audit = table.audit()
        reports.extend(map(json.loads, audit.stdout.splitlines()))
        return bool(reports) and reports[-1]["table"]["compared"] >= 200

    with pipeline.running() as supervisor:
        until(lambda: pipeline.count("aggregates") > 200, each=lambda: supervisor.poll(time.monotonic()))
        until(are_compared, each=lambda: supervisor.poll(time.monotonic()))
    assert {(report["differences"], report["table"]["differences"]) for report in reports} == {(0, 0)}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("sum = 'much'", "column sum has the value 'much', it needs decimal(38,2): correct"),
        ("window_end = 'never'", "column window_end has the value 'never', it needs a time: correct"),
    ],
)
def test_audit_of_a_value_that_the_table_cannot_have_names_it(  # noqa: PLR0913, PLR0917 - fixtures
    drained: Pipeline,
    spark: SparkSession,
    database_servers: Callable[[str], Server],
    tmp_path: Path,
    change: str,
    problem: str,
) -> None:
    table = stored(drained, new_database("sqlite", database_servers, tmp_path), tmp_path, "replace")
    table.change(f"UPDATE results SET {change}", min(key for _, key in drained.results()[0]))
    ended = table.audit()
    assert ended.exit_code == 3, ended.output
    assert problem in ended.stderr


def test_audit_without_a_table_ends_before_spark_starts(drained: Pipeline, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    document = json.loads(drained.file.read_text()) | {"sink": {"url": f"sqlite://{tmp_path}/absent.db"}}
    file.write_text(json.dumps(document))
    ended = CliRunner().invoke(main, ["audit", "-f", str(file)])
    assert ended.exit_code == 3
    assert "absent.db does not exist" in ended.stderr
    assert not (tmp_path / "absent.db").exists()
