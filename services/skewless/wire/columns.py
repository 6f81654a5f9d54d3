"""Encodes columns as Arrow IPC streams: the values of internal records."""

from __future__ import annotations

import pyarrow as pa

from skewless.errors import BadRecordError

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


def write_table(table: pa.RecordBatch | pa.Table, *, compress: bool = False) -> bytes:
    """Encode columns as one Arrow IPC stream, compressed with LZ4 if `compress` is True.

    Values of Kafka records need no compression here, because the producer compresses its batches.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_LZ4 if compress else None) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_table(value: bytes | None) -> pa.Table:
    """Decode columns. Raises BadRecordError if the value is not a valid Arrow IPC stream."""
    try:
        table = pa.ipc.open_stream(value or b"").read_all()
        # Without validation, Arrow uses an index beyond the end of its dictionary, and the process crashes.
        for batch in table.to_batches():
            batch.validate(full=True)
    except (pa.ArrowException, TypeError, ValueError, OSError) as error:
        raise BadRecordError("not an Arrow IPC stream") from error
    return table


def has_nulls(table: pa.Table) -> bool:
    """Return whether any column contains a null."""
    return any(column.null_count for column in table.columns)
