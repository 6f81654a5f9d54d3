"""Splits tables into parts of bounded size, so that each part fits into a Kafka record."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

RECORD_BYTES = 4 * 2**20
"""Approximate maximum size of a record with columns. The topics of these records allow twice as much."""
PRODUCED_BYTES = 16 * 2**20
"""Maximum size of a record that a producer accepts, before its compression. The limit of a topic is that after it."""
DOCUMENT_BYTES = (PRODUCED_BYTES - 2**20) // 4
"""Maximum size of a record of a join as JSON. A pair has two of them. As texts of a JSON schema, they may become twice
as large."""
MAX_LINE_BYTES = 1_000_000
"""Maximum size of a line that becomes a record: about the largest record that a broker accepts by default."""


def split_by_size(rows: pa.RecordBatch | pa.Table, max_bytes: int | None = None) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield the rows in order, in one or more parts of at most `max_bytes` each (default: RECORD_BYTES).

    Rows are halved until each part is small enough. A single row is never split: it consists of a key of at most 64 KiB
    (`splitter.limits.key_bytes`) and partials, which are numbers or a few bytes.
    """
    limit = RECORD_BYTES if max_bytes is None else max_bytes
    # The total buffer size includes what slices and shared dictionaries do not use, but costs a thirtieth of `nbytes`.
    if rows.num_rows < 2 or rows.get_total_buffer_size() <= limit or rows.nbytes <= limit:
        yield rows
        return
    half = rows.num_rows // 2
    for part in (rows.slice(0, half), rows.slice(half)):
        yield from split_by_size(_compact_dictionaries(part), max_bytes)


def _compact_dictionaries(part: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Remove the texts of other parts from the dictionaries, which a slice shares with the whole."""
    for index, field in enumerate(part.schema):
        if pa.types.is_dictionary(field.type):
            texts = part.column(index).cast(field.type.value_type)
            part = part.set_column(index, field, texts.dictionary_encode())
    return part
