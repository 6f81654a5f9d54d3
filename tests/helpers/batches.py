"""Helpers for tests of steps: build batches from lists, and decode outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from helpers.in_memory_batch import InMemoryBatch
from skewless.algorithms import int128
from skewless.algorithms.aggregates import AGGREGATES, wire_columns_of
from skewless.algorithms.value_type import VALUE, ValueType
from skewless.stages.router.upstream import Upstream
from skewless.stages.splitter.reports import SourceReports
from skewless.wire.columns import read_table, write_table
from skewless.wire.headers import idle_of, watermarks_of
from skewless.wire.record import OutputRecord
from skewless.wire.rows import RowFormat
from skewless.wire.topic_partition import TopicPartition
from skewless.wire.tuples import TupleFormat

FORMAT = TupleFormat((ValueType(),))
"""Format of tuples with one number."""
ROW_FORMAT = RowFormat(wire_columns_of([AGGREGATES["sum"]]), pane_ms=10, grid_ms=60)
"""Format of rows with a count and a sum."""


def source(partition: int) -> TopicPartition:
    """Return a source partition of the topic to which batches belong by default."""
    return TopicPartition("source", partition)


def reports() -> SourceReports:
    """Return the reports of a splitter in a pipeline with the source topic `source`."""
    return SourceReports(8, "source")


def upstream(partition: int, checkpoint: str | None) -> Upstream:
    """Return what follows the reports of a partition of `tuples` in a pipeline with the source topic `source`."""
    return Upstream(partition, 8, checkpoint, "source")


def batch_of(partition: int, values: Sequence[bytes | None], *, first: int = 0, time: int = 0) -> InMemoryBatch:
    """Make a batch of records with values only."""
    offsets = range(first, first + len(values))
    return InMemoryBatch(partition, [OutputRecord("any", value, timestamp=time) for value in values], offsets)


def encode_tuples(keys: pa.DictionaryArray, values: NDArray[np.int64], times: NDArray[np.int64]) -> bytes:
    """Write columns of tuples."""
    return write_table(FORMAT.batch(keys, {VALUE: pa.array(values)}, times))


def rows_of(*rows: tuple[int, str, int, int], row_format: RowFormat = ROW_FORMAT) -> pa.RecordBatch:
    """Return rows, each given as pane, key, count and sum."""
    panes, keys, counts, sums = zip(*rows, strict=True)
    columns = {"pane": pa.array(panes, pa.int64()), "key": pa.array(keys, pa.string())}
    columns |= {"count": pa.array(counts, pa.int64()), "sum": pa.array(sums, pa.int64()).cast(int128.TYPE)}
    return row_format.from_partials(pa.table(columns))


def written(outputs: Iterable[OutputRecord], topic: str) -> list[OutputRecord]:
    """Return the outputs to one topic."""
    return [output for output in outputs if output.topic == topic]


def tuples_in(outputs: Iterable[OutputRecord]) -> list[tuple[str, int, int]]:
    """Decode columns of tuples: (key, value, time), in order."""
    rows: list[tuple[str, int, int]] = []
    for output in outputs:
        if output.value is not None:
            table = read_table(output.value)
            rows += zip(*(table[name].to_pylist() for name in ("key", "value", "time")), strict=True)
    return rows


def rows_in(outputs: Iterable[OutputRecord]) -> list[dict[str, Any]]:
    """Decode columns into one dictionary per row."""
    return [row for output in outputs if output.value is not None for row in read_table(output.value).to_pylist()]


def json_values_in(outputs: Iterable[OutputRecord]) -> list[dict[str, Any]]:
    """Decode JSON records."""
    return [msgspec.json.decode(output.value or b"") for output in outputs]


def watermarks_in(outputs: Iterable[OutputRecord]) -> list[dict[int, int]]:
    """Return the watermarks of every record."""
    return [watermarks_of(output.headers) for output in outputs]


def idle_in(outputs: Iterable[OutputRecord]) -> list[set[int]]:
    """Return the idle source partitions of every record."""
    return [set(idle_of(output.headers)) for output in outputs]


def reasons_in(outputs: Iterable[OutputRecord]) -> list[tuple[int, str]]:
    """Return the offset and the reason of dead letters."""
    entries = [{name.rpartition(".")[2]: entry.decode() for name, entry in output.headers} for output in outputs]
    return [(int(entry["offset"]), entry["reason"]) for entry in entries]


def repeated(items: Iterable[Any]) -> list[Any]:
    """Return the duplicates."""
    return [item for item, times in Counter(items).items() if times > 1]
