"""Settings of the sink."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, field_validator

from skewless.algorithms.aggregates import ResultField
from skewless.errors import ConfigurationError
from skewless.sql.settings import DatabaseSettings
from skewless.sql.table import NAME, REFUSED_SUFFIX, ResultTable, result_table

MAX_NAME = 63 - len(REFUSED_SUFFIX)
"""Maximum number of characters of the table's name, so that the names derived from it are not too long."""


class SinkSettings(DatabaseSettings):
    """Settings of the table of results in a database."""

    mode: Literal["replace"] = Field("replace", description="replace: each row has the latest result.")
    table: str | None = Field(
        None,
        max_length=MAX_NAME,
        pattern=NAME,
        description="Table of the results. null: the pipeline's name with _ for -.",
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

    @field_validator("table")
    @classmethod
    def _no_reserved_name(cls, table: str | None) -> str | None:
        if table is not None and table.startswith("skewless_"):
            raise ValueError("must not begin with skewless_, which is reserved")
        return table

    def result_table(self, pipeline: str, results: Iterable[ResultField]) -> ResultTable:
        """Return the table of a pipeline, by its name and its results.

        Raises ConfigurationError for names that are not valid in a database.
        """
        table = result_table(self.table or pipeline.replace("-", "_"), results)
        problems = []
        if not re.match(NAME, table.name) or len(table.name) > MAX_NAME:
            problems.append(
                f"sink.table: the name {table.name} of the pipeline cannot be the name of a table: set sink.table"
            )
        problems += [
            f"aggregator.aggregates: {column.name} cannot be the name of a column (a letter, then at most 62 letters, "
            "digits and _; not key_id): give it another name with `as`"
            for column in table.results
            if not re.match(NAME, column.name) or column.name in {"key_id", "window_start", "window_end", "revision"}
        ]
        if problems:
            raise ConfigurationError(*problems)
        return table
