"""Columns cut into parts of bounded size, so that each of them fits into a record."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

RECORD_BYTES = 4 * 2**20
"""Columns become records of at most about this size; the topics for them take twice as much."""


def cut(rows: pa.RecordBatch | pa.Table, most: int | None = None) -> Iterator[pa.RecordBatch | pa.Table]:
    """Halve rows until a part has at most `most` bytes (RECORD_BYTES); the parts come in order, at least one.

    A single row is never cut: it is a key of at most 64 KiB (`splitter.limits.key_bytes`) and some numbers.
    """
    limit = RECORD_BYTES if most is None else most
    # The buffers' size knows nothing of slices and dictionaries that are shared, but costs a thirtieth of `nbytes`.
    if rows.num_rows < 2 or rows.get_total_buffer_size() <= limit or rows.nbytes <= limit:
        yield rows
        return
    half = rows.num_rows // 2
    for part in (rows.slice(0, half), rows.slice(half)):
        yield from cut(_with_own_keys(part), most)


def _with_own_keys(part: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Leave out the keys of other parts: a slice would carry the whole dictionary."""
    at = part.schema.get_field_index("key")
    keys = part.column(at)
    if not pa.types.is_dictionary(keys.type):
        return part
    return part.set_column(at, part.schema.field(at), keys.cast(keys.type.value_type).dictionary_encode())
