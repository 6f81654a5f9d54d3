"""The SQL of a table: templates in `statements.sql` and in its dialect, filled with the names of the table. Pure.

Names are quoted and match `table.NAME`, so they need no escape. Values are never part of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Literal

from skewless.sql.table import (
    KEY,
    OFFSET_COLUMNS,
    REFUSED_COLUMNS,
    REVISION,
    WINDOW_END,
    Column,
    Kind,
    Merge,
    ResultTable,
    ViewColumn,
)

Types = Mapping[Kind | Literal["bytes", "name", "number"], str]
"""Type of each kind of column, as the catalog of the database names it. `name` is text that an index takes."""

TEMPLATES = dict(
    re.findall(
        r"^-- name: (\w+)\n(.+?)\s*(?=^--|\Z)",
        (files(__package__) / "statements.sql").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)
"""Statements that all dialects share, by name."""
MERGES: Mapping[Merge, str] = {"sum": "{} + {}", "min": "LEAST({}, {})", "max": "GREATEST({}, {})"}
"""Expression that merges a stored and an added value."""


def quote(name: str) -> str:
    """Return a quoted name."""
    return f'"{name}"'


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The SQL of a database where it differs from that of others."""

    types: Types
    time_ms: str
    """Expression of a time in ms since the epoch."""
    templates: Mapping[str, str]
    """Its own statements by name: `columns_select`, `key_select`, and those that replace a shared one."""
    text_attributes: str = ""
    """Attributes with which text compares byte by byte."""
    parameter: str = "%s"
    rows: str = "VALUES ({parameters})"
    """Where the statements that store rows take them from."""
    assignment: str = "{name} = excluded.{name}"
    """Assignment of a new value to a column of the stored row."""
    stored: str = "{table}.{name}"
    added: str = "excluded.{name}"
    """A column of the stored row, and of the row that is added to it."""
    decimal_merges: Mapping[Merge, str] = field(default_factory=lambda: MERGES)
    """As MERGES, for decimals."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Parts of templates: `table_options`, `keyed_table_options`, `index_in_table`, `index_of_table`, `create_view`."""
    missing: str = "is missing"
    """State of a table or view that this user cannot see."""
    preamble: str = ""
    """Comments and statements before those of the schema in a session of another program."""

    def type_of(self, column: Column) -> str:
        """Return the type of a column, as the catalog of the database names it."""
        return self.types[column.kind].format(decimals=column.decimals)


@dataclass(frozen=True)
class Statements:
    """The statements of one dialect for one table."""

    dialect: Dialect
    table: ResultTable

    @cached_property
    def _names(self) -> dict[str, str]:
        dialect, table = self.dialect, self.table
        kinds = {
            kind: text + dialect.text_attributes * (kind in {"text", "json"}) for kind, text in dialect.types.items()
        }
        definitions = {
            column: f"{quote(column.name)} {kinds[column.kind].format(decimals=column.decimals)}".rstrip()
            for column in table.columns
        }
        names = {
            "table_options": "",
            "keyed_table_options": "",
            "index_in_table": "",
            "index_of_table": 'CREATE INDEX IF NOT EXISTS {key_index} ON {table} ("key");\n',
            "create_view": "CREATE OR REPLACE VIEW",
            **dialect.names,
            **({"index_in_table": "", "index_of_table": ""} if table.ranked else {}),  # nothing reads ranks by key
        }
        own = {
            "table": quote(table.name),
            "refused": quote(table.refused),
            "key_index": quote(f"{table.name}_key"),
            "view": quote(table.view_name),
            "offset_columns": ", ".join(map(quote, OFFSET_COLUMNS)),
            "refused_columns": ", ".join(map(quote, REFUSED_COLUMNS)),
            "columns": ", ".join(quote(column.name) for column in table.columns),
            "parameters": ", ".join(["%s"] * len(table.columns)),
            "assignments": ", ".join(self._assignments()),
            "additions": ", ".join(self._additions()),
            "view_columns": ", ".join(map(self._view_column, table.view)),
            "temporary_definitions": ", ".join(definitions.values()),
            "window_start_ms": dialect.time_ms.format("window_start"),
            "window_end_ms": dialect.time_ms.format("window_end"),
            "other_columns": ", ".join(quote(column.name) for column in (KEY, *table.contents, REVISION)),
            "result_definitions": "\n".join(
                f"    {definitions[column]}{'' if column.nullable else ' NOT NULL'}," for column in table.contents
            ),
            **{f"type_{kind}": text for kind, text in kinds.items()},
        }
        return {name: text.format_map(own) for name, text in {"rows": dialect.rows, **names}.items()} | own

    def _assignments(self) -> Iterator[str]:
        # The key and its parts stay: they belong to the key's id. SQLite would write the index again even if the key
        # is the same. The revision is last: MariaDB assigns in this order, and the conditions before it need the
        # stored revision.
        for column in (WINDOW_END, *([KEY] if self.table.ranked else ()), *self.table.results, REVISION):
            yield self.dialect.assignment.format(name=quote(column.name))

    def _additions(self) -> Iterator[str]:
        """Yield the assignments that merge a row into the stored one, and count the merges in its revision."""
        for column in (*self.table.results, REVISION):
            name = quote(column.name)
            stored = self.dialect.stored.format(table=quote(self.table.name), name=name)
            if column == REVISION:
                yield f"{name} = {stored} + 1"
            elif column.merge is not None:
                added = self.dialect.added.format(name=name)
                merges = self.dialect.decimal_merges if column.kind == "decimal" else MERGES
                merged = merges[column.merge].format(stored, added)
                yield f"{name} = " + (f"COALESCE({merged}, {stored}, {added})" if column.nullable else merged)

    def _view_column(self, column: ViewColumn) -> str:
        if column.divisor is None:
            return f"{quote(column.column)} AS {quote(column.name)}"
        quotient = (
            f"CAST({quote(column.column)} AS {self.dialect.types['double']}) / NULLIF({quote(column.divisor)}, 0)"
        )
        return f"{quotient} AS {quote(column.name)}"

    @property
    def store(self) -> str:
        """The statement that stores rows."""
        return self["add" if self.table.adds else "upsert"]

    def tables(self) -> list[str]:
        """Return the statements that create the tables of a pipeline and the view."""
        names = ["table", "view"] if self.table.adds else ["table"]
        return [statement.strip() for name in names for statement in self[name].split(";\n")]

    def __getitem__(self, name: str) -> str:
        """Return a statement by its name."""
        template = self.dialect.templates.get(name) or TEMPLATES[name]
        return template.format_map(self._names).replace("%s", self.dialect.parameter)

    def schema(self) -> list[str]:
        """Return the statements that create all tables that a database does not have."""
        return [self["offsets"], *self.tables()]
