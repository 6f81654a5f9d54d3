"""Partial aggregates: columns in topic `partials`."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from skewless.algorithms.aggregates import PartialColumn
from skewless.errors import BadRecordError
from skewless.wire.columns import has_nulls, read_table

PARTIALS = "skewless.partials.v1"
FIELD_TYPES = {"pane": pa.int64(), "key": pa.string(), "worker": pa.int32()}
"""Types of the other columns of partials. `pane` is the start of the pane in ms."""


def read_partials(value: bytes | None, fields: Iterable[str], columns: Iterable[PartialColumn] = ()) -> pa.Table:
    """Return these fields and partial columns of a record.

    Raises BadRecordError if one is missing, has another type, or has nulls.
    """
    types = {name: FIELD_TYPES[name] for name in fields} | {column.name: column.type for column in columns}
    expected = pa.schema(list(types.items()))
    try:
        table = read_table(value).select(expected.names)
    except KeyError as error:
        raise BadRecordError(f"columns are not those of {PARTIALS}") from error
    if table.schema != expected or has_nulls(table):
        raise BadRecordError(f"columns are not those of {PARTIALS}")
    return table
