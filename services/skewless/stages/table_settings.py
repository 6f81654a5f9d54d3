"""Settings of the stages that write to a table: section `sink`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from pydantic import Field, field_validator, model_validator

from skewless.algorithms.aggregates import ResultField, parts_of
from skewless.errors import ConfigurationError
from skewless.login_settings import is_loopback
from skewless.sql.database import Database, DatabaseAddress
from skewless.sql.settings import DatabaseSettings
from skewless.sql.table import NAME, REFUSED_SUFFIX, ResultTable, added_table, result_table, top_table

MAX_NAME = 63 - len(REFUSED_SUFFIX)
"""Maximum number of characters of the table's name, so that the names derived from it are not too long."""
RESERVED = {"key_id", "window_start", "window_end", "revision"}
"""Names of columns that every table has."""


class SinkSettings(DatabaseSettings):
    """Settings of the table of results in a database."""

    mode: Literal["replace", "merge"] = Field(
        "replace",
        description="replace: each row has the latest result. merge: partial results are added to the rows, which grow "
        "while a window is open.",
    )
    table: str | None = Field(
        None,
        max_length=MAX_NAME,
        pattern=NAME,
        description="Table of the results. null: the pipeline's name with _ for -.",
    )
    top_table: str | None = Field(
        None,
        max_length=MAX_NAME,
        pattern=NAME,
        description="Table of the ranks of `aggregator.top`, a row for each window and rank. null: none.",
    )
    create: bool = Field(
        True, description="Whether to create tables that do not exist. false: the tables must exist and fit."
    )
    transaction_rows: int = Field(
        2000, ge=1, le=1_000_000, description="Number of rows after which a transaction is committed."
    )
    transaction_s: float = Field(
        0.5, ge=0.01, le=60, description="Time after which a smaller transaction is committed, in seconds."
    )

    @field_validator("url")
    @classmethod
    def _names_a_database(cls, url: str) -> str:
        _database_of(url)
        return url

    @model_validator(mode="after")
    def _has_credentials(self) -> SinkSettings:
        _database_of(self.url)[0].require_credentials(self)
        return self

    @property
    def address(self) -> DatabaseAddress:
        """The parts of the URL."""
        return _database_of(self.url)[1]

    @property
    def login_warning(self) -> str | None:
        """A line for a login that may be sent unencrypted; None for any other."""
        if self.username is None or self.tls is not None or is_loopback(self.address.host):
            return None
        return (
            f"sink.url: the login may be sent to {self.address.host} unencrypted; set sink.tls, unless others cannot "
            "read this network"
        )

    def stored_results(self, results: Sequence[ResultField]) -> tuple[ResultField, ...]:
        """Return the results that are columns of the table: those of a pipeline, or their parts with `mode: merge`."""
        return added_results(results) if self.mode == "merge" else tuple(results)

    def result_table(self, pipeline: str, results: Iterable[ResultField], key_parts: Sequence[str]) -> ResultTable:
        """Return the table of a pipeline, by its name, its results and the parts of a composite key.

        Raises ConfigurationError for names that are not valid in a database.
        """
        name, results = self.table or pipeline.replace("-", "_"), tuple(results)
        if self.mode == "merge":
            table = added_table(name, _parts_of(results), key_parts)
        else:
            table = result_table(name, results, key_parts)
        problems = [*self._name_problems(name), *self._column_problems("splitter.key.fields", "name", key_parts)]
        names = [column.name for column in table.results]
        if self.top_table is not None:
            ranks = top_table(self.top_table, results, key_parts)
            problems += _shared_name_problems(table, ranks)
            # With `mode: merge`, the other table has parts of the results.
            names += [result.name for result in results if result.name not in names]
        problems += self._column_problems("aggregator.aggregates", "as", names)
        parts = {column.name for column in table.results} - {result.name for result in results}
        problems += [
            f"splitter.key.fields: {name} is a column of the table of mode: merge; set another name"
            for name in key_parts
            if name in parts
        ]
        if problems:
            raise ConfigurationError(*problems)
        return table

    def _name_problems(self, name: str) -> Iterator[str]:
        """Yield a line for each reason why the tables cannot have their names. `name` is that of the results."""
        if not re.match(NAME, name) or len(name) > MAX_NAME:
            yield f"sink.table: the name {name} of the pipeline cannot be the name of a table: set sink.table"
        reserved = {"skewless_": "Skewless", **_database_of(self.url)[0].reserved_names}
        for path, table_name in (("sink.table", name), ("sink.top_table", self.top_table or "")):
            for prefix, owner in reserved.items():
                if table_name.startswith(prefix):
                    yield (
                        f"{path}: {table_name}: names that begin with {prefix} are reserved by {owner}: set {path} to "
                        "another one"
                    )

    def _column_problems(self, path: str, setting: str, names: Iterable[str]) -> Iterator[str]:
        """Yield a line for each name that no column can have. `setting` of the list `path` changes it."""
        reserved = _database_of(self.url)[0].reserved_columns
        for name in names:
            if not re.match(NAME, name) or name in RESERVED:
                yield (
                    f"{path}: {name} cannot be the name of a column (a letter, then at most 62 letters, digits and "
                    f"_, in lower case; not key_id): give it another name with `{setting}`"
                )
            elif name in reserved:
                yield f"{path}: {name} is a column of all tables of the database: set another one with `{setting}`"


def _shared_name_problems(table: ResultTable, ranks: ResultTable) -> Iterator[str]:
    if table.name == ranks.name:
        yield "sink.top_table: is the table of the results; choose another name"
    elif shared := table.own_names & ranks.own_names:
        yield (
            f"sink.top_table: with {ranks.name}, the ranks and table {table.name} of the results would both have "
            f"{', '.join(sorted(shared))} in the database; choose another name"
        )


def _database_of(url: str) -> tuple[type[Database], DatabaseAddress]:
    from skewless.sql.dialects import find_database  # imports SQLite, which only pipelines with a table need

    return find_database(url)


def _parts_of(results: Sequence[ResultField]) -> Mapping[str, tuple[ResultField, ...]]:
    try:
        return parts_of(results)
    except ConfigurationError as error:
        raise ConfigurationError(
            *(f"sink.mode: merge: {problem}; or use mode: replace" for problem in error.problems)
        ) from None


def added_results(results: Sequence[ResultField]) -> tuple[ResultField, ...]:
    """Return the columns of the table of `mode: merge` as results, in their order."""
    return tuple({part.name: part for parts in parts_of(results).values() for part in parts}.values())
