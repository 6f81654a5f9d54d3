"""Rows: columns in topics `tuples` and `worker-input` with the partials of tuples that the splitter has aggregated.

Records of rows and records of tuples may follow each other in any order, also those of other settings: the setting
`splitter.local` and the length of panes may change while records are in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from skewless.algorithms.aggregates import LOAD_COLUMN, PartialColumn
from skewless.algorithms.record_size import split_by_size
from skewless.algorithms.windowing.sessions import FIRST
from skewless.errors import BadRecordError
from skewless.wire.columns import WriteColumns, has_nulls, in_order, read_table, write_packed
from skewless.wire.headers import schema_header
from skewless.wire.partials import nullable, widened, write_partials
from skewless.wire.record import Headers, OutputRecord, OwnHeaders

ROWS = "skewless.rows.v1"
"""Schema of rows in headers."""
PANE_HEADER = "pane_ms"
"""Header with the length of the panes of a record in ms."""
MAX_DIGITS = 18
"""Maximum digits of this header."""
KEY_AND_PANE = (pa.field("key", pa.dictionary(pa.int32(), pa.string())), pa.field("pane", pa.int64()))
"""First columns of rows: the key, and the start of the pane in ms."""


class RowFormat:
    """Format of rows with certain partial columns: key, start of the pane in ms, and the columns.

    Each pane begins at a multiple of its length, which divides `grid_ms`: windows and ticks begin at multiples of it.
    """

    def __init__(
        self, columns: Sequence[PartialColumn], *, pane_ms: int, grid_ms: int, write: WriteColumns = write_packed
    ) -> None:
        self._write = write
        self.columns = tuple(columns)
        self._pane_ms = pane_ms
        self._grid_ms = grid_ms
        self._schema = pa.schema([*KEY_AND_PANE, *((column.name, column.type) for column in columns)])

    def from_partials(self, partials: pa.Table) -> pa.RecordBatch:
        """Return partials, which have the columns `pane` and `key` (utf8), as rows."""
        combined = partials.combine_chunks()
        columns = {name: combined[name].chunk(0) for name in self._schema.names}
        columns["key"] = columns["key"].dictionary_encode()
        return pa.record_batch(list(columns.values()), schema=self._schema)

    def records(self, topic: str, partition: int, rows: pa.RecordBatch, headers: OwnHeaders) -> Iterator[OutputRecord]:
        """Yield rows as records of bounded size.

        `headers` are the headers of the last one in addition to schema and panes: the states of upstream partitions
        after these rows.
        """
        # The watermarks hold after all rows, so only the last record contains them.
        *first_parts, last_part = split_by_size(rows)
        for part in first_parts:
            yield self._record(topic, partition, part, ())
        yield self._record(topic, partition, last_part, headers)

    def _record(self, topic: str, partition: int, rows: pa.RecordBatch, headers: OwnHeaders) -> OutputRecord:
        own_headers = [schema_header(ROWS), *headers, (PANE_HEADER, b"%d" % self._pane_ms)]
        return OutputRecord(topic, write_partials(rows, self._write), partition=partition, headers=own_headers)

    def read(self, value: bytes | None, headers: Headers) -> pa.Table:
        """Return the rows of a record, each with the pane of this format that contains the start of its own pane.

        In sessions, it is the pane of the first tuple of the row.
        Raises BadRecordError if columns, counts or panes are not those of rows.
        """
        rows = widened(in_order(read_table(value), self._schema.names), self.columns)
        if rows.schema != self._schema or has_nulls(rows.drop_columns(nullable(self.columns))):
            raise BadRecordError(f"columns are not those of {ROWS}")
        if any(chunk.dictionary.null_count for chunk in rows["key"].chunks):
            raise BadRecordError(f"columns are not those of {ROWS}")
        if (rows[LOAD_COLUMN.name].to_numpy() < 1).any():
            raise BadRecordError("a row has no tuples")
        panes = rows["pane"].to_numpy()
        own_pane_ms = self._pane_of(headers)
        if (panes % own_pane_ms).any():
            raise BadRecordError(f"a pane does not begin at a multiple of {own_pane_ms} ms")
        if own_pane_ms == self._pane_ms:
            return rows
        # The pane of a record of earlier settings is in one window and one tick. So is the pane of this format with its
        # start, and all of its tuples count where they did before. In sessions, it is the pane of the first tuple: from
        # the start of its pane, a row may be further than the gap from other tuples of the pane of this format.
        starts = rows[FIRST.name].to_numpy() if FIRST in self.columns else panes
        return rows.set_column(1, KEY_AND_PANE[1], pa.array(starts // self._pane_ms * self._pane_ms))

    def _pane_of(self, headers: Headers) -> int:
        """Return the length of the panes of a record in ms."""
        text = dict(headers).get(PANE_HEADER) or b""
        is_number = text.isdigit() and len(text) <= MAX_DIGITS
        if not is_number or not int(text) or self._grid_ms % int(text):
            raise BadRecordError(f"header {PANE_HEADER} is not a length of panes that divides windows and ticks")
        return int(text)


def is_rows(table: pa.Table) -> bool:
    """Return whether the columns of a record are those of rows."""
    return tuple(table.schema)[: len(KEY_AND_PANE)] == KEY_AND_PANE


def keys_panes_and_counts(table: pa.Table) -> list[pa.RecordBatch]:
    """Return the columns `key`, `pane` and LOAD_COLUMN of rows with any partial columns.

    Raises BadRecordError if they are not valid.
    """
    names = ["key", "pane", LOAD_COLUMN.name]
    if LOAD_COLUMN.name not in table.column_names or table.schema.field(LOAD_COLUMN.name).type != LOAD_COLUMN.type:
        raise BadRecordError(f"columns are not those of {ROWS}")
    rows = table.select(names)
    if has_nulls(rows) or any(chunk.dictionary.null_count for chunk in rows["key"].chunks):
        raise BadRecordError(f"columns are not those of {ROWS}")
    batches: list[pa.RecordBatch] = rows.to_batches()
    return batches
