"""The SQL of each dialect: templates in `statements/<dialect>/*.sql`, filled with the names of a table. Pure.

Names are quoted and match `table.NAME`, so they need no escape. Values are never part of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

from skewless.sql.settings import Dialect
from skewless.sql.table import DIGITS, KEY, REVISION, WINDOW_END, Column, Kind, Merge, ResultTable, ViewColumn

COMMON = "common"
"""Folder of the statements that all dialects share."""
_MIGRATION = re.compile(r"^(\d{4})_[a-z_]+\.sql$")

TYPES: Mapping[Dialect, Mapping[Kind, str]] = {
    "postgresql": {
        "time": "timestamp with time zone",
        "id": "bytea",
        "text": "text",
        "integer": "bigint",
        "decimal": f"numeric({DIGITS},{{decimals}})",
        "double": "double precision",
        "boolean": "boolean",
        "json": "text",
    },
    "mysql": {
        "time": "datetime(3)",
        "id": "binary(16)",
        "text": "mediumtext",
        "integer": "bigint",
        "decimal": f"decimal({DIGITS},{{decimals}})",
        "double": "double",
        "boolean": "tinyint(1)",
        "json": "mediumtext",
    },
    # SQLite has neither decimals nor integers of more than 64 bits: it would round them to doubles. A column without a
    # type keeps what is written: text with all digits, or an integer.
    "sqlite": {
        "time": "TEXT",
        "id": "BLOB",
        "text": "TEXT",
        "integer": "INTEGER",
        "decimal": "",
        "double": "REAL",
        "boolean": "INTEGER",
        "json": "TEXT",
    },
}
"""Type of each kind of column, as the catalog of the database names it."""

_TEXT_ATTRIBUTES: Mapping[Dialect, str] = {
    "postgresql": ' COLLATE "C"',
    "mysql": " CHARACTER SET utf8mb4 COLLATE {collation}",
    "sqlite": "",
}
"""Attributes with which text compares byte by byte."""

_TIME_MS: Mapping[Dialect, str] = {
    "postgresql": "(extract(epoch FROM {}) * 1000)::bigint",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {}) DIV 1000",
    "sqlite": "skewless_time_ms({})",
}
"""Expression of a time in ms since the epoch. SQLite's own functions end at the year 9999."""

_MERGES: Mapping[Merge, str] = {"sum": "{} + {}", "min": "LEAST({}, {})", "max": "GREATEST({}, {})"}
"""Expression that merges a stored and an added value."""
SQLITE_FUNCTIONS: Mapping[Merge, str] = {kind: f"skewless_{kind}({{}}, {{}})" for kind in _MERGES}
"""The same for decimals in SQLite, which needs functions of this program, because it would make doubles of them."""

MARIADB_COLLATION = "utf8mb4_nopad_bin"
MYSQL_COLLATION = "utf8mb4_0900_bin"


@cache
def _file(folder: str, name: str) -> str:
    return (files(__package__) / "statements" / folder / name).read_text(encoding="utf-8")


def quote(name: str) -> str:
    """Return a quoted name."""
    return f'"{name}"'


@dataclass(frozen=True)
class Statements:
    """The statements of one dialect for one table."""

    dialect: Dialect
    table: ResultTable
    collation: str = MARIADB_COLLATION
    """Collation of text in MariaDB or MySQL."""

    def type_of(self, column: Column) -> str:
        """Return the type of a column, as the catalog of the database names it."""
        return TYPES[self.dialect][column.kind].format(decimals=column.decimals)

    def _definition_type(self, column: Column) -> str:
        if column.kind not in {"text", "json"}:
            return self.type_of(column)
        return self.type_of(column) + _TEXT_ATTRIBUTES[self.dialect].format(collation=self.collation)

    @cached_property
    def _names(self) -> dict[str, str]:
        columns = [quote(column.name) for column in self.table.columns]
        definitions = [f"{quote(column.name)} {self._definition_type(column)}" for column in self.table.columns]
        kinds: tuple[Kind, ...] = ("time", "id", "text", "integer")
        return {
            "table": quote(self.table.name),
            "refused": quote(self.table.refused),
            "key_index": quote(f"{self.table.name}_key"),
            "columns": ", ".join(columns),
            "parameters": ", ".join(["%s"] * len(columns)),
            "assignments": ", ".join(self._assignments()),
            "additions": ", ".join(self._additions()),
            "view": quote(self.table.view_name),
            "view_columns": ", ".join(map(self._view_column, self.table.view)),
            "temporary_definitions": ", ".join(definitions),
            "window_start_ms": _TIME_MS[self.dialect].format("window_start"),
            "window_end_ms": _TIME_MS[self.dialect].format("window_end"),
            "other_columns": ", ".join(quote(column.name) for column in (KEY, *self.table.contents, REVISION)),
            "result_definitions": "\n".join(
                f"    {quote(column.name)} {self._definition_type(column)}".rstrip()
                + ("," if column.nullable else " NOT NULL,")
                for column in self.table.contents
            ),
            **{f"type_{kind}": self._definition_type(Column("", kind)) for kind in kinds},
        }

    def _assignments(self) -> Iterator[str]:
        # The key and its parts stay: they belong to the key's id. SQLite would write the index again even if the key
        # is the same. The revision is last: MariaDB assigns in this order, and the conditions before it need the
        # stored revision.
        for column in (WINDOW_END, *self.table.results, REVISION):
            name = quote(column.name)
            if self.dialect == "mysql":
                yield f"{name} = IF(VALUES(revision) >= revision, VALUES({name}), {name})"
            else:
                yield f"{name} = excluded.{name}"

    def _additions(self) -> Iterator[str]:
        """Yield the assignments that merge a row into the stored one, and count the merges in its revision."""
        for column in (*self.table.results, REVISION):
            name = quote(column.name)
            stored = name if self.dialect == "mysql" else f"{self._stored}.{name}"
            if column == REVISION:
                yield f"{name} = {stored} + 1"
            elif column.merge is not None:
                added = f"VALUES({name})" if self.dialect == "mysql" else f"excluded.{name}"
                function = SQLITE_FUNCTIONS if self.dialect == "sqlite" and column.kind == "decimal" else _MERGES
                merged = function[column.merge].format(stored, added)
                yield f"{name} = " + (f"COALESCE({merged}, {stored}, {added})" if column.nullable else merged)

    @property
    def _stored(self) -> str:
        """Name of the stored row in an INSERT."""
        return "stored" if self.dialect == "postgresql" else quote(self.table.name)

    def _view_column(self, column: ViewColumn) -> str:
        if column.divisor is None:
            return f"{quote(column.column)} AS {quote(column.name)}"
        double = TYPES[self.dialect]["double"]
        quotient = f"CAST({quote(column.column)} AS {double}) / NULLIF({quote(column.divisor)}, 0)"
        return f"{quotient} AS {quote(column.name)}"

    @property
    def store(self) -> str:
        """The statement that stores rows."""
        return self["add" if self.table.adds else "upsert"]

    def tables(self) -> list[str]:
        """Return the statements that create the tables of a pipeline and the view."""
        names = ["table", "view"] if self.table.adds else ["table"]
        return [statement for name in names for statement in split(self[name])]

    def __getitem__(self, name: str) -> str:
        """Return the statement of a file, without `.sql`."""
        folder = COMMON if (files(__package__) / "statements" / COMMON / f"{name}.sql").is_file() else self.dialect
        text = _file(folder, f"{name}.sql").strip().rstrip(";").format_map(self._names)
        return text.replace("%s", "?") if self.dialect == "sqlite" else text

    def migrations(self) -> list[tuple[int, str]]:
        """Return the numbers and statements of the migrations, in their order."""
        folder = files(__package__) / "statements" / self.dialect
        names = sorted(entry.name for entry in folder.iterdir() if _MIGRATION.match(entry.name))
        return [(int(name[:4]), self[name.removesuffix(".sql")]) for name in names]

    def right_check(self, right: str, table: str, column: str) -> str:
        """Return a statement that needs a right on a table, and reads or changes no row."""
        text = _file(COMMON, f"right_{right.lower()}.sql").strip()
        return text.format(table=quote(table), column=quote(column))

    def schema(self) -> list[str]:
        """Return the statements that create all tables in an empty database."""
        migrations = self.migrations()
        parts = [self["migrations"], *(text for _, text in migrations)]
        applied = [
            self["migration_insert"].replace("%s", str(number)).replace("?", str(number)) for number, _ in migrations
        ]
        return [*(statement for part in parts for statement in split(part)), *self.tables(), *applied]


def split(text: str) -> list[str]:
    """Return the statements of a text, each without its semicolon."""
    return [statement.strip() for statement in text.split(";\n")]
