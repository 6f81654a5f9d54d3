"""`skewless reset` on a real broker and a real database, after a bounded run of the whole pipeline."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from helpers.kafka import STAGES, Pipeline, Source, create_topics, differences, read, truth, zipf_records
from helpers.stage_hosts import ended
from helpers.waiting import until
from skewless import topology
from skewless.cli.main import main
from skewless.kafka.admin.client import Admin
from skewless.kafka.admin.groups import GroupReader

pytestmark = pytest.mark.broker
RECORDS = 2_000


def reset(pipeline: Pipeline, *options: str) -> Result:
    return CliRunner().invoke(main, ["reset", "-f", str(pipeline.file), *options])


def own_topics(pipeline: Pipeline) -> set[str]:
    return {name for name in Admin(pipeline.settings.kafka).partition_counts() if name.startswith(f"{pipeline.name}.")}


def rows(database: Path, table: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
    return int(count)


@pytest.mark.thorough
def test_reset_to_start_lets_the_pipeline_count_everything_again(broker: str, tmp_path: Path) -> None:
    source, database = Source(broker, 2), tmp_path / "results.db"
    source.send(zipf_records(RECORDS, 2, seed=3, keys=50))
    pipeline = Pipeline(broker, tmp_path, source, sink={"url": f"sqlite://{database}"})
    table = pipeline.name.replace("-", "_")
    pipeline.drain()
    expected, stored = truth(read(broker, source.topic)), rows(database, table)
    assert (differences(pipeline, expected), stored) == ([], len(expected.counts))

    planned = reset(pipeline, "--to-start", "--dry-run")
    assert planned.exit_code == 0
    assert f"  group {pipeline.name}-sink\n" in planned.stdout, planned.stdout
    assert f"  rows of table {table} in {database}\n" in planned.stdout
    assert f"  topic {pipeline.name}.aggregates, 2 partitions\n" in planned.stdout
    assert planned.stdout.endswith(f"stays as it is: topic {source.topic}\n")
    assert rows(database, table) == stored

    groups = GroupReader(pipeline.settings.kafka)
    # Otherwise a reset says that it waits for members whose sessions last.
    until(lambda: not any(groups.describe(pipeline.settings.group(stage.name)).members for stage in topology.STAGES))
    done = reset(pipeline, "--to-start", "--yes")
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    assert f"deleted {stored:,} rows of table {table}\n" in done.stdout
    assert (rows(database, table), rows(database, "skewless_offsets")) == (0, 0)
    assert {line.split()[-1] for line in done.stdout.splitlines() if line.startswith("created")} == own_topics(pipeline)
    assert sum(1 for _ in pipeline.read("aggregates")) == 0

    pipeline.drain()
    assert (differences(pipeline, expected), rows(database, table)) == ([], stored)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["replace", "merge"])
def test_sink_whose_offsets_do_not_fit_names_each_remedy_and_a_reset_fills_another_table(
    broker: str, tmp_path: Path, mode: str
) -> None:
    source, database = Source(broker, 2), tmp_path / "results.db"
    source.send(zipf_records(RECORDS, 2, seed=5, keys=50))
    sink = {"url": f"sqlite://{database}", "mode": mode, "table": "former"}
    pipeline = Pipeline(broker, tmp_path, source, sink=sink)
    pipeline.drain()
    stored = rows(database, "former")
    stage = {"replace": "sink", "merge": "flusher"}[mode]
    document = json.loads(pipeline.file.read_text())

    def refused_with(table: str) -> str:
        pipeline.file.write_text(json.dumps(document | {"sink": sink | {"table": table}}))
        code, output = ended(pipeline.file, "run", stage)
        assert code == 3, output
        return output

    other = refused_with("other")
    assert "belong to table former, and sink.table is other" in other
    assert "`skewless reset --to-start`" in other
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        rows(database, "other")

    pipeline.file.write_text(json.dumps({name: part for name, part in document.items() if name != "sink"}))
    assert reset(pipeline, "--to-start", "--yes").exit_code == 0
    former = refused_with("former")
    assert "was deleted and created again" in former
    assert f"These offsets are in table skewless_offsets of {database}. `skewless reset --to-start` deletes" in former
    assert "A pipeline of another name also needs another table in sink.table" in former

    refused_with("other")
    assert reset(pipeline, "--to-start", "--yes").exit_code == 0
    pipeline.drain()
    assert (rows(database, "other"), rows(database, "former")) == (stored, stored)
    assert reset(pipeline, "--to-start", "--yes").exit_code == 0
    assert [rows(database, table) for table in ("other", "former", "skewless_offsets")] == [0, stored, 0]


def test_reset_delete_leaves_only_the_source(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    source.send(zipf_records(RECORDS, 2, seed=4, keys=50))
    pipeline = Pipeline(broker, tmp_path, source)
    pipeline.drain()
    admin = AdminClient({"bootstrap.servers": broker})  # must outlive its futures
    admin.delete_topics([f"{pipeline.name}.late"])[f"{pipeline.name}.late"].result()  # as if a reset was interrupted
    assert reset(pipeline, "--delete", "-y").exit_code == 0
    assert own_topics(pipeline) == set()
    groups = GroupReader(pipeline.settings.kafka)
    assert groups.describe(pipeline.settings.group("splitter")).state == "Dead"
    assert len(list(read(broker, source.topic))) == RECORDS
    again = reset(pipeline, "--delete", "-y")
    assert (again.exit_code, again.stdout) == (
        0,
        f"pipeline {pipeline.name} has no topics, groups or rows: nothing to remove\n",
    )


@pytest.mark.parametrize(
    ("parts", "code", "message"),
    [
        ({"source": {"topic": "clciks"}}, 3, "topic clciks does not exist at "),
        (
            {"router": {"workers": 9}, "worker_input": {}},
            2,
            "router.workers: 9 is more than the 8 partitions of topic ",
        ),
        ({"topics": {"options": {"aggregates": {"retention.msec": "1"}}}}, 3, "creating topic {name}.aggregates at "),
    ],
    ids=["source", "workers", "option"],
)
def test_reset_to_start_with_settings_that_create_no_topics_removes_nothing(
    broker: str, tmp_path: Path, parts: dict[str, Any], code: int, message: str
) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    before = own_topics(pipeline)
    pipeline.file.write_text(json.dumps(json.loads(pipeline.file.read_text()) | parts))
    result = reset(pipeline, "--to-start", "--yes")
    assert (result.exit_code, result.stdout) == (code, "")
    assert message.format(name=pipeline.name) in result.stderr
    assert own_topics(pipeline) == before


def test_reset_to_start_with_nothing_to_remove_creates_the_topics(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    before = own_topics(pipeline)
    assert reset(pipeline, "--delete", "--yes").exit_code == 0  # as if `reset --to-start` was interrupted then
    assert "nothing to remove\n" in reset(pipeline, "--to-start", "--dry-run").stdout
    assert own_topics(pipeline) == set()
    again = reset(pipeline, "--to-start", "--yes")
    assert (again.exit_code, again.stderr) == (0, "")
    assert {line.split()[-1] for line in again.stdout.splitlines() if line.startswith("created")} == before
    assert own_topics(pipeline) == before


def test_reset_to_start_keeps_the_partitions_of_worker_input(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1), worker_input={"max_workers": 20}, router={"workers": 18})
    document = json.loads(pipeline.file.read_text())
    del document["worker_input"]
    pipeline.file.write_text(json.dumps(document))
    assert reset(pipeline, "--to-start", "--yes").exit_code == 0
    assert Admin(pipeline.settings.kafka).partition_counts()[f"{pipeline.name}.worker-input"] == 20


@pytest.mark.thorough
def test_reset_while_a_process_runs_removes_nothing(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    pipeline = Pipeline(broker, tmp_path, source, transport={"session_timeout_s": 6})
    with pipeline.running() as supervisor:
        groups = GroupReader(pipeline.settings.kafka)
        until(
            lambda: all(groups.describe(pipeline.settings.group(stage)).members for stage in STAGES),
            each=lambda: supervisor.poll(time.monotonic()),
        )
        before = own_topics(pipeline)
        refused = reset(pipeline, "--delete", "--yes")
    assert refused.exit_code == 1
    assert f"error: pipeline {pipeline.name} runs: aggregator-0, " in refused.stderr
    assert own_topics(pipeline) == before
    # The processes were stopped a moment ago, so their sessions may still last.
    assert reset(pipeline, "--delete", "--yes").exit_code == 0
    assert own_topics(pipeline) == set()


def test_reset_of_a_file_of_sqlite_that_does_not_exist_creates_nothing(broker: str, tmp_path: Path) -> None:
    path = tmp_path / "none" / "results.db"
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1), sink={"url": f"sqlite://{path}"})
    assert "removes" in reset(pipeline, "--delete", "--dry-run").stdout
    done = reset(pipeline, "--delete", "--yes")
    assert (done.exit_code, done.stderr) == (0, f"{path} does not exist: no rows to remove\n"), done.output
    assert own_topics(pipeline) == set()
    assert not path.parent.exists()


@pytest.mark.parametrize("mode", ["replace", "merge"])
def test_reset_to_start_with_tables_that_do_not_fit_warns_of_each(broker: str, tmp_path: Path, mode: str) -> None:
    database = tmp_path / "results.db"
    sink, top = {"url": f"sqlite://{database}", "table": "t", "top_table": "ranks"}, {"top": {"n": 3, "by": "count"}}
    replacing = Pipeline(broker, tmp_path, Source(broker, 1), sink=sink, aggregator=top)
    statements = CliRunner().invoke(main, ["sink", "schema", "-f", str(replacing.file)]).output
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(statements.replace('"count"', '"former"').replace("skewless_offsets", "others"))
    if mode == "merge":  # its view does not exist
        del sink["top_table"]
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1), sink=sink | {"mode": mode}, aggregator=top)
    planned = reset(pipeline, "--to-start", "--dry-run")
    assert planned.exit_code == 0
    for table in {"table", "top_table"} & sink.keys():
        assert f"warning: the next start refuses table {sink[table]}: column count is missing" in planned.stderr
        assert f"warning: the next start refuses table {sink[table]}: column former is of no result" in planned.stderr
    assert "warning" not in reset(pipeline, "--delete", "--dry-run").stderr


def test_reset_of_an_enrichment_names_its_tables_as_kept(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    table = f"{source.topic}-z"
    create_topics(broker, {table: 1}, **{"cleanup.policy": "compact"})
    tables = [{"topic": table, "key": {"field": "user"}, "fields": {"country": "country"}}]
    pipeline = Pipeline(broker, tmp_path, source, enrich={"topic": source.topic, "tables": tables})
    planned = reset(pipeline, "--delete", "--dry-run")
    assert planned.stdout.endswith(f"\nstays as it is: topic {source.topic}, topic {table}\n"), planned.output
    assert reset(pipeline, "--delete", "--yes").exit_code == 0
    assert Admin(pipeline.settings.kafka).partition_counts().keys() >= {source.topic, table}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "choose either --to-start, to count again, or --delete, to leave nothing"),
        (["--to-start", "--delete"], "choose either --to-start, to count again, or --delete, to leave nothing"),
        (["--delete"], "stdin is not a terminal, so the question cannot be answered: add --yes, or --dry-run"),
    ],
)
def test_reset_without_mode_or_confirmation_ends_with_2(
    broker: str, tmp_path: Path, options: list[str], message: str
) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    before = own_topics(pipeline)
    result = reset(pipeline, *options)
    assert (result.exit_code, result.stderr) == (2, f"error: {message}\n")
    assert own_topics(pipeline) == before
