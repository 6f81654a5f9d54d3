"""Partial aggregates: columns in topic `partials`."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from skewless.algorithms import int128
from skewless.algorithms.aggregates import LOAD_COLUMN, ROWS_COLUMN, BinaryColumn, Int128Column, PartialColumn
from skewless.errors import BadRecordError
from skewless.wire.columns import WriteColumns, has_nulls, read_table, write_packed

PARTIALS = "skewless.partials.v1"
FIELD_TYPES = {"pane": pa.int64(), "key": pa.string(), "worker": pa.int32()}
"""Types of the other columns of partials. `pane` is the start of the pane in ms."""


def read_partials(value: bytes | None, fields: Iterable[str], columns: Iterable[PartialColumn] = ()) -> pa.Table:
    """Return these fields and partial columns of a record. Without ROWS_COLUMN, it has one row per tuple.

    Raises BadRecordError if one is missing, has another type, or has nulls. Only the partial of a group without an
    optional value is null.
    """
    columns = tuple(columns)
    types = {name: FIELD_TYPES[name] for name in fields} | {column.name: column.type for column in columns}
    expected = pa.schema(list(types.items()))
    try:
        table = widened(with_rows(read_table(value), columns).select(expected.names), columns)
    except KeyError as error:
        raise BadRecordError(f"columns are not those of {PARTIALS}") from error
    if table.schema != expected or has_nulls(table.drop_columns(nullable(columns))):
        raise BadRecordError(f"columns are not those of {PARTIALS}")
    return table


def nullable(columns: Iterable[PartialColumn]) -> list[str]:
    """Return the names of the columns whose partials may be null: binary ones of a value that a tuple may not have."""
    return [column.name for column in columns if isinstance(column, BinaryColumn) and column.optional]


def with_rows(partials: pa.Table, columns: Iterable[PartialColumn]) -> pa.Table:
    """Return partials with ROWS_COLUMN if it is one of these columns. Raises KeyError if they have no count."""
    if ROWS_COLUMN not in columns or ROWS_COLUMN.name in partials.column_names:
        return partials
    return partials.append_column(ROWS_COLUMN.name, partials[LOAD_COLUMN.name])


def write_partials(partials: pa.RecordBatch | pa.Table, write: WriteColumns = write_packed) -> bytes:
    """Encode partials by `write`. 128-bit integers are written as int64 if all of a column fit into 64 bits.

    ROWS_COLUMN is left out if each row is a tuple.
    """
    # They nearly always fit, and version 0.2.0 can read them.
    rows = partials.schema.get_field_index(ROWS_COLUMN.name)
    if rows >= 0 and partials.column(rows).equals(partials[LOAD_COLUMN.name]):
        partials = partials.remove_column(rows)
    for index, field in enumerate(partials.schema):
        if field.type == int128.TYPE:
            numbers = int128.narrowed(partials.column(index))
            partials = partials.set_column(index, pa.field(field.name, numbers.type), numbers)
    return write(partials)


def widened(table: pa.Table, columns: Iterable[PartialColumn]) -> pa.Table:
    """Return partials with the 64-bit integers of 128-bit columns as 128-bit integers."""
    for column in columns:
        index = table.schema.get_field_index(column.name)
        if isinstance(column, Int128Column) and index >= 0 and table.schema.field(index).type == pa.int64():
            table = table.set_column(index, column.name, table[column.name].cast(int128.TYPE))
    return table
