"""Encodes columns, the values of internal records: as packed columns, or as Arrow IPC streams as version 0.2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from skewless.errors import BadRecordError
from skewless.wire import packed_columns

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


WriteColumns: TypeAlias = Callable[[pa.RecordBatch | pa.Table], bytes]
"""Encodes columns as the value of a record."""


def write_packed(table: pa.RecordBatch | pa.Table) -> bytes:
    """Encode columns as packed columns, or as an Arrow IPC stream if one has a type that packed columns do not have."""
    batch = table
    if isinstance(table, pa.Table):
        batches = table.unify_dictionaries().combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
    return packed_columns.pack(batch) or write_table(table)


def write_table(table: pa.RecordBatch | pa.Table, *, compress: bool = False) -> bytes:
    """Encode columns as one Arrow IPC stream, compressed with LZ4 if `compress` is True.

    Values of Kafka records need no compression here, because the producer compresses its batches.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_LZ4 if compress else None) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_table(value: bytes | None) -> pa.Table:
    """Decode columns of either encoding. Raises BadRecordError if the value is not valid."""
    try:
        if value is not None and value.startswith(packed_columns.MAGIC):
            table = pa.Table.from_batches([packed_columns.unpack(value)])
        else:
            table = pa.ipc.open_stream(value or b"").read_all()
        # Without validation, Arrow uses an index beyond the end of its dictionary, and the process crashes.
        for batch in table.to_batches():
            batch.validate(full=True)
    except (pa.ArrowException, TypeError, OSError, *packed_columns.ERRORS) as error:
        raise BadRecordError("neither packed columns nor an Arrow IPC stream") from error
    return table


def in_order(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return columns in this order. Unchanged if their names are others.

    The order of columns is that of settings, which may have changed since the record was written.
    """
    is_other_order = table.column_names != names and sorted(table.column_names) == sorted(names)
    return table.select(names) if is_other_order else table


def has_nulls(table: pa.Table) -> bool:
    """Return whether any column contains a null."""
    return any(column.null_count for column in table.columns)
