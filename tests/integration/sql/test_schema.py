"""The tables of a sink on real servers: created, compared with what is needed, and checked for rights."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from helpers.databases import PASSWORD, Server, TestDatabase, new_database
from helpers.docs_blocks import ROOT, blocks
from helpers.waiting import WAIT_S
from integration.sql.sql_sink import Flusher, Sink, result
from skewless.cli.main import main
from skewless.errors import StoreError, UnavailableError, UnreachableError
from skewless.lab.local.ports import find_free_ports
from skewless.operations import result_table
from skewless.sql import clear, output, schema


@pytest.fixture
def file(tmp_path: Path, database: TestDatabase) -> Path:
    """Pipeline whose results go into the database. Its password comes from the environment."""
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"name: p\nsource: {{topic: source}}\naggregator: {{aggregates: [count, sum, mean, max]}}\n"
        f"splitter: {{format: json, key: {{field: k}}, value: {{field: v, decimals: 2}}}}\n"
        f"sink: {{url: '{database.url}'{', username: skewless' if database.server else ''}}}\n",
        encoding="utf-8",
    )
    return path


def sink(command: str, file: Path, database: TestDatabase, *, password: str = PASSWORD) -> Result:
    environment = {"SKEWLESS__SINK__PASSWORD": password} if database.server else {}
    return CliRunner().invoke(main, ["sink", command, "-f", str(file)], env=environment)


def test_schema_output_creates_tables_that_fit(database: TestDatabase, file: Path) -> None:
    printed = sink("schema", file, database)
    assert printed.exit_code == 0, printed.output
    create(database, printed.output)
    create(database, printed.output)  # as those of another pipeline in the same database
    checked = sink("check", file, database)
    assert checked.exit_code == 0, checked.output
    assert "table p in" in checked.output
    Sink(database, decimals=2, create=False).start().store([result("a")])


def create(database: TestDatabase, statements: str) -> None:
    """Run statements as the user of the pipeline, in one session."""
    opened = Sink(database, decimals=2)
    opened.database.connect()
    for statement in statements.split(";\n"):
        if statement.strip():
            opened.database.execute(statement)


def test_check_missing_tables_are_differences(database: TestDatabase, file: Path) -> None:
    Sink(database).database.connect()  # which creates the file of SQLite
    checked = sink("check", file, database)
    assert checked.exit_code == 1
    for name in ("p", "p_refused", "skewless_offsets"):
        assert f"table {name}: is missing" in checked.output
    assert checked.output.endswith("\n  the sink creates missing tables when it starts\n")


def test_check_missing_file_is_a_difference_and_is_not_created(tmp_path: Path) -> None:
    missing = tmp_path / "p.db"
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(f"{{name: p, source: {{topic: t}}, sink: {{url: 'sqlite://{missing}'}}}}")
    checked = CliRunner().invoke(main, ["sink", "check", "-f", str(pipeline)])
    assert (checked.exit_code, missing.exists()) == (1, False)
    remedy = "correct sink.url, or run the pipeline, which creates it in a folder that exists"
    assert f"{missing} does not exist: {remedy}" in checked.output


def test_check_lists_the_differences_of_both_tables(database: TestDatabase, file: Path) -> None:
    text = file.read_text().replace("mean, max]}", "mean, max], top: {n: 3, by: sum}}")
    file.write_text(text.replace("sink: {", "sink: {top_table: ranks, "))
    Sink(database).database.connect()
    checked = sink("check", file, database)
    assert checked.exit_code == 1
    names = ("skewless_offsets", "p_refused", "p", "ranks_refused", "ranks")
    assert [checked.output.count(f"table {name}: is missing") for name in names] == [1] * 5
    assert checked.output.endswith("\n  the sink creates missing tables when it starts\n")
    create(database, sink("schema", file, database).output)
    checked = sink("check", file, database)
    assert checked.exit_code == 0
    assert [f"table {name} in" in checked.output for name in ("p", "ranks")] == [True, True]


def test_check_wrong_type_and_missing_column_are_differences(database: TestDatabase, file: Path) -> None:
    statements = sink("schema", file, database).output
    wrong = {"postgresql": "numeric(38,2)", "mysql": "decimal(38,2)", "sqlite": '"mean" REAL'}[database.dialect]
    create(database, statements.replace(wrong, '"mean" TEXT' if database.dialect == "sqlite" else "bigint"))
    checked = sink("check", file, database)
    assert checked.exit_code == 1
    column = "mean" if database.dialect == "sqlite" else "sum"
    assert f"table p: column {column} has type" in checked.output
    with pytest.raises(StoreError, match=r"do not fit this pipeline.* in sink\.table; if .* reset --to-start"):
        Sink(database, decimals=2).start()


def test_check_table_without_its_primary_key_is_a_difference(database: TestDatabase, file: Path) -> None:
    statements = sink("schema", file, database).output
    create(database, statements.replace("PRIMARY KEY (window_start, key_id)", "PRIMARY KEY (key_id)", 1))
    checked = sink("check", file, database)
    assert checked.exit_code == 1
    assert "its primary key is (key_id), it must be (window_start, key_id)" in checked.output


def test_check_table_of_offsets_without_its_primary_key_is_a_difference(database: TestDatabase, file: Path) -> None:
    key = 'PRIMARY KEY (pipeline, stage, topic, "partition")'
    create(database, sink("schema", file, database).output.replace(key, "PRIMARY KEY (pipeline, stage, topic)"))
    checked = sink("check", file, database)
    assert checked.exit_code == 1
    assert "key is (pipeline, stage, topic), it must be (pipeline, stage, topic, partition)" in checked.output
    with pytest.raises(StoreError, match="do not fit this pipeline: table skewless_offsets: its primary key is"):
        Sink(database, decimals=2).start()


@pytest.mark.parametrize(
    ("table", "column"),
    [("skewless_offsets", "table_name"), ("skewless_offsets", "leader_epoch"), ("p_refused", "record")],
)
def test_check_column_that_another_table_lacks_is_a_difference(
    database: TestDatabase, file: Path, table: str, column: str
) -> None:
    Sink(database, decimals=2).start().commit()
    database.query(f"ALTER TABLE {table} DROP COLUMN {column}")
    checked = sink("check", file, database)
    assert (checked.exit_code, f"table {table}: lacks {column}\n" in checked.output) == (1, True), checked.output
    with pytest.raises(StoreError, match=f"do not fit this pipeline: table {table}: lacks {column}"):
        Sink(database, decimals=2).start()


def test_check_offsets_of_another_table_are_a_difference(database: TestDatabase, file: Path) -> None:
    Sink(database, decimals=2, table="former").start().store([result("a")])
    checked = sink("check", file, database)
    assert checked.exit_code == 1
    assert "offsets of stage sink of pipeline p belong to table former, and sink.table is p" in checked.output
    file.write_text(file.read_text().replace("sink: {", "sink: {table: former, "))
    assert sink("check", file, database).exit_code == 0


def test_start_with_the_table_of_another_pipeline_is_refused_also_while_it_is_empty(
    database: TestDatabase, file: Path
) -> None:
    Sink(database, name="other", decimals=2, table="p").start().commit()
    with pytest.raises(StoreError, match=r"table p in .* is that of pipeline other: name another table in sink.table"):
        Sink(database, decimals=2).start()
    checked = sink("check", file, database)
    assert (checked.exit_code, "is that of pipeline other" in checked.output) == (1, True)
    Sink(database, name="other", decimals=2, table="p").start().store([result("a")])


def test_start_with_refused_rows_in_the_table_of_another_pipeline_is_refused(
    database: TestDatabase, file: Path
) -> None:
    other = Sink(database, name="p-refused", decimals=2).start()
    other.store([result("a")])
    with pytest.raises(StoreError, match=r"table p_refused in .* is that of pipeline p-refused: name another table in"):
        Sink(database, decimals=2).start()
    assert "table p_refused in" in sink("check", file, database).output
    other.store([result("b")])


def test_column_of_a_removed_aggregate_is_a_difference_until_it_may_be_null(database: TestDatabase, file: Path) -> None:
    Sink(database, decimals=2, aggregates=["count", "sum", "mean", "max", "min"]).start().commit()
    checked = sink("check", file, database)
    assert checked.exit_code == 1
    assert (
        "table p: column min is of no result, and needs a value in each row: drop it if it was that" in checked.output
    )
    database.query("ALTER TABLE p DROP COLUMN min")
    assert sink("check", file, database).exit_code == 0
    Sink(database, decimals=2).start().store([result("a")])


def test_column_of_a_result_that_may_be_missing_is_a_difference_until_it_may_be_null(database: TestDatabase) -> None:
    Sink(database, aggregates=["count", "sum"]).start().commit()
    before, after = (Sink(database, aggregates=["count", "sum"], value={"missing": "skip"}) for _ in range(2))
    with pytest.raises(StoreError, match="table p: column sum must allow NULL, because a key may have no such result"):
        before.start()
    for statement in ("DROP TABLE p", "DELETE FROM skewless_offsets"):
        database.query(statement)
    after.start().store([result("a", sum=None)])
    assert database.query("SELECT count, sum FROM p") == [(1, None)]


def test_check_emptied_table_with_offsets_and_refused_rows_are_noted_until_the_table_is_filled_again(
    database: TestDatabase, file: Path
) -> None:
    Sink(database, decimals=2).start().store([result("a"), (b"", b"{}")])
    notes = [line for line in sink("check", file, database).output.splitlines() if line.startswith("note")]
    assert notes == ["note: table p_refused has 1 refused rows"]
    database.query("DELETE FROM p")
    checked = sink("check", file, database)
    assert (checked.exit_code, "table p is empty, but skewless_offsets has its offsets" in checked.output) == (0, True)
    for statement in documented_statements("refill", "p"):
        database.query(statement)
    assert "note" not in sink("check", file, database).output
    assert Sink(database, decimals=2).start().offsets == {0: 0}


def test_check_table_of_parts_without_rows_but_with_offsets_has_no_note(database: TestDatabase, file: Path) -> None:
    file.write_text(file.read_text().replace("sink: {", "sink: {mode: merge, "))
    Flusher(database, decimals=2).start().commit()
    checked = sink("check", file, database)
    assert (checked.exit_code, "note" in checked.output) == (0, False), checked.output


def documented_statements(name: str, table: str) -> list[str]:
    """Return the statements of a block of the documentation for a table."""
    (text,) = (block.text for block in blocks(ROOT / "docs/how-to/sql.md") if block.name == name)
    return text.replace("clicks_by_minute", table).split(";\n")[:-1]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_index_of_an_earlier_version_is_accepted_until_it_is_replaced(database: TestDatabase, file: Path) -> None:
    Sink(database, decimals=2).start().commit()
    indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'p' ORDER BY indexname"
    created = database.query(indexes)
    assert created[0][1].endswith("USING btree (key_id, window_start)")
    for statement in ("DROP INDEX p_key", "CREATE INDEX p_key ON p USING hash (key)"):
        database.query(statement)
    Sink(database, decimals=2).start().store([result("a")])
    assert sink("check", file, database).exit_code == 0
    for statement in documented_statements("index", "p"):
        database.query(statement)
    assert database.query(indexes) == created


def test_check_generated_column_of_the_user_is_no_difference(database: TestDatabase, file: Path) -> None:
    Sink(database, decimals=2).start().commit()
    database.query("ALTER TABLE p ADD COLUMN again BIGINT GENERATED ALWAYS AS (revision + 1) STORED")
    checked = sink("check", file, database)
    assert checked.exit_code == 0, checked.output
    Sink(database, decimals=2).start().store([result("a")])


def test_result_from_before_an_aggregate_was_added_is_null(database: TestDatabase) -> None:
    Sink(database, aggregates=["count", "sum"]).start().commit()
    after = Sink(database, aggregates=["count", "sum", "max"])
    (added,) = (column for column in after.table().columns if column.name == "max")
    database.query(f"ALTER TABLE p ADD COLUMN max {after.database.dialect.type_of(added)}")
    key, value = result("a")
    earlier = json.loads(value or b"") | {"count": 3}
    del earlier["max"]
    after.start().store([(key, json.dumps(earlier).encode())])
    assert database.query("SELECT count, max FROM p") == [(3, None)]


def test_result_from_before_an_aggregate_was_added_is_refused_by_a_table_that_needs_it(database: TestDatabase) -> None:
    sink = Sink(database, aggregates=["count", "sum", "max"]).start()
    key, value = result("a")
    earlier = json.loads(value or b"")
    del earlier["max"]
    sink.store([(key, json.dumps(earlier).encode()), result("b")])
    (reason,) = database.query("SELECT reason FROM p_refused")
    assert "max" in reason[0]
    assert [key for (key,) in database.query(f"SELECT {database.quoted('key')} FROM p")] == ["b"]


def test_list_from_before_its_aggregate_was_added_is_null(database: TestDatabase) -> None:
    Sink(database, aggregates=["count", "sum"]).start().commit()
    after = Sink(database, aggregates=["count", "sum", {"largest": "value", "n": 2}])
    (added,) = (column for column in after.table().columns if column.kind == "json")
    database.query(f"ALTER TABLE p ADD COLUMN {added.name} {after.database.dialect.type_of(added)}")
    after.start().store([result("a")])
    assert database.query(f"SELECT {added.name} FROM p") == [(None,)]


def test_reset_leaves_the_rows_of_a_pipeline_that_has_taken_the_table_over(database: TestDatabase) -> None:
    first = Sink(database, name="other", table="p").start()
    first.store([result("a")])
    assert [*clear.tables(first.database, "other")] == ["p", "skewless_offsets"]
    database.query("UPDATE skewless_offsets SET pipeline = 'p'")
    Sink(database).start().store([result("b")])
    database.query(
        "INSERT INTO skewless_offsets SELECT 'other', stage, topic, " + database.quoted("partition") + ", "
        "cluster_id, next_offset, checkpoint, state_schema, leader_epoch, table_name, updated_at FROM skewless_offsets"
    )
    assert [*clear.tables(first.database, "other")] == ["skewless_offsets"]


def test_reset_leaves_the_rows_of_a_pipeline_whose_table_has_the_name_of_refused_rows(database: TestDatabase) -> None:
    other = Sink(database, name="p-refused").start()
    other.store([result("a")])
    own = Sink(database)
    own.database.connect()
    assert [*clear.tables(own.database, "p")] == []
    assert [*clear.tables(other.database, "p-refused")] == ["p_refused", "skewless_offsets"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_commands_of_a_locked_database_are_errors_with_its_words(database: TestDatabase, file: Path) -> None:
    writer = Sink(database, decimals=2).start()
    writer.store([result("a")])
    writer.database.begin()
    file.write_text(file.read_text().replace("sink: {", "sink: {lock_timeout_s: 0.1, "))
    checked = sink("check", file, database)
    assert (checked.exit_code, checked.stderr[-19:]) == (3, "database is locked\n"), checked.output
    other = Sink(database, decimals=2, lock_timeout_s=0.1)
    other.database.connect()
    with pytest.raises(UnreachableError, match=r"deleting the rows of table p in .*: database is locked"):
        clear.delete_rows(other.database, "p", "p")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_reset_of_a_table_that_cannot_be_read_is_an_error_with_the_words_of_the_server(database: TestDatabase) -> None:
    other = Sink(database)
    other.database.connect()
    for statement in ("CREATE TABLE t (a)", "CREATE VIEW p AS SELECT a FROM t", "DROP TABLE t"):
        database.query(statement)
    with pytest.raises(StoreError, match=r"looking for rows in .*no such table"):
        list(clear.tables(other.database, "p"))


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_check_missing_right_to_create_temporary_tables_is_a_difference(database: TestDatabase, file: Path) -> None:
    Sink(database, decimals=2).start()
    database.query(f"ALTER DATABASE {database.name} OWNER TO postgres")
    database.query(f"REVOKE TEMPORARY ON DATABASE {database.name} FROM PUBLIC")
    checked = sink("check", file, database)
    assert checked.exit_code == 1
    assert f"database {database.name}: right TEMPORARY is missing (permission denied" in checked.output
    with pytest.raises(StoreError, match="permission denied to create temporary tables"):
        Sink(database, decimals=2).start()


@pytest.mark.parametrize("database", ["mysql"], indirect=True)
def test_view_without_the_right_to_select_is_a_difference_until_it_is_granted(database: TestDatabase) -> None:
    Flusher(database).start()
    database.query(f"REVOKE ALL ON {database.name}.* FROM skewless@'%'")
    for table, rights in (
        ("p", "SELECT, INSERT, UPDATE, DELETE"),
        ("skewless_offsets", "SELECT, INSERT, UPDATE"),
        ("p_refused", "SELECT, INSERT"),
    ):
        database.query(f"GRANT {rights} ON {database.name}.{table} TO skewless@'%'")
    flusher = Flusher(database, create=False)
    with pytest.raises(StoreError, match="view p_results: is missing, or this user has no right on it"):
        flusher.start()
    database.query(f"GRANT SELECT ON {database.name}.p_results TO skewless@'%'")
    assert list(schema.missing_rights(flusher.database)) == []
    Flusher(database, create=False).start().commit()


def test_start_without_create_and_without_tables_is_an_error(database: TestDatabase) -> None:
    with pytest.raises(StoreError, match="is missing"):
        Sink(database, create=False).start()


def test_start_of_several_processes_at_once_creates_the_tables_once(database: TestDatabase) -> None:
    sinks = [Sink(database) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(Sink.start, sinks))
    assert list(schema.missing(sinks[0].database)) == []


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
class TestServers:
    """What only servers have: users, rights, and an address that may be wrong."""

    @pytest.fixture
    def database(self, dialect: str, database_servers: object, tmp_path: Path) -> TestDatabase:
        return new_database(dialect, database_servers, tmp_path)  # type: ignore[arg-type]

    def test_check_missing_right_is_a_difference(self, database: TestDatabase, file: Path) -> None:
        Sink(database, decimals=2).start()
        if database.dialect == "postgresql":
            database.query("ALTER TABLE p OWNER TO postgres")
            database.query("GRANT SELECT, INSERT, UPDATE ON p TO skewless")
        else:
            database.query(f"REVOKE DELETE ON {database.name}.* FROM skewless@'%'")
        checked = sink("check", file, database)
        assert checked.exit_code == 1
        assert "table p: right DELETE is missing" in checked.output
        assert "`skewless sink check`" not in checked.output

    def test_check_missing_right_on_the_offsets_is_a_difference(self, database: TestDatabase, file: Path) -> None:
        Sink(database, decimals=2).start()
        if database.dialect == "postgresql":
            database.query("ALTER TABLE skewless_offsets OWNER TO postgres")
            database.query("GRANT INSERT ON skewless_offsets TO skewless")
        else:
            database.query(f"REVOKE ALL ON {database.name}.* FROM skewless@'%'")
            database.query(f"GRANT ALL ON {database.name}.p TO skewless@'%'")
            database.query(f"GRANT ALL ON {database.name}.p_refused TO skewless@'%'")
            database.query(f"GRANT INSERT ON {database.name}.skewless_offsets TO skewless@'%'")
        checked = sink("check", file, database)
        assert checked.exit_code == 1
        assert "table skewless_offsets: right SELECT is missing" in checked.output

    def test_check_wrong_password_is_refused_and_not_shown(self, database: TestDatabase, file: Path) -> None:
        checked = sink("check", file, database, password="canary-1234")  # noqa: S106 - a wrong one
        assert checked.exit_code == 3
        assert "sink.password" in checked.output
        assert "canary" not in checked.output

    def test_check_unknown_database_is_refused(self, database: TestDatabase, file: Path) -> None:
        file.write_text(file.read_text().replace(database.name, "absent"))
        checked = sink("check", file, database)
        assert checked.exit_code == 3
        assert "absent" in checked.output

    def test_check_server_that_is_down_is_unreachable(
        self, database: TestDatabase, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert database.server is not None
        monkeypatch.setattr(result_table, "CONNECT_S", 1.0)
        file.write_text(file.read_text().replace(str(database.server.port), str(find_free_ports(1)[0])))
        checked = sink("check", file, database)
        assert checked.exit_code == 3
        assert "no answer from 127.0.0.1" in checked.output

    def test_start_without_the_right_to_create_is_an_error(self, database: TestDatabase) -> None:
        if database.dialect == "postgresql":
            database.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            database.query(f"ALTER DATABASE {database.name} OWNER TO postgres")
        else:
            database.query(f"REVOKE CREATE ON {database.name}.* FROM skewless@'%'")
        with pytest.raises(StoreError, match=r"denied"):
            Sink(database).start()

    def test_reopen_server_that_is_down_waits_between_attempts(
        self, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert database.server is not None
        monkeypatch.setattr(output, "FIRST_DELAY_S", WAIT_S)
        down = Sink(database)
        down.database.address = down.database.address._replace(port=1)
        with pytest.raises(UnavailableError, match="connecting"):
            down.output.connect()
        with pytest.raises(UnavailableError, match="no connection"):
            down.output.connect()


def test_server_fixture_has_all_dialects_of_servers(database_servers: object) -> None:
    dialects = {"postgresql", "mysql"}
    assert all(issubclass(type(database_servers(dialect)), Server) for dialect in dialects)  # type: ignore[operator]
