"""What tests of steps share: batches made of lists, and outputs made readable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.asyncapi.written import WrittenBatch
from skewless.records import Output, idle_of, read_table, tuples_of, watermarks_of, write_table


def batch_of(partition: int, values: Sequence[bytes | None], *, first: int = 0, time: int = 0) -> WrittenBatch:
    """Make a batch of records with values alone."""
    offsets = range(first, first + len(values))
    return WrittenBatch(partition, [Output("any", value, timestamp=time) for value in values], offsets)


def encode_tuples(keys: pa.DictionaryArray, values: NDArray[np.int64], times: NDArray[np.int64]) -> bytes:
    """Write columns of tuples."""
    return write_table(tuples_of(keys, values, times))


def written(outputs: Iterable[Output], topic: str) -> list[Output]:
    """Pick what goes to one topic."""
    return [output for output in outputs if output.topic == topic]


def tuples_in(outputs: Iterable[Output]) -> list[tuple[str, int, int]]:
    """Decode columns of tuples: (key, value, time), in order."""
    rows: list[tuple[str, int, int]] = []
    for output in outputs:
        if output.value is not None:
            table = read_table(output.value)
            rows += zip(*(table[name].to_pylist() for name in ("key", "value", "time")), strict=True)
    return rows


def rows_in(outputs: Iterable[Output]) -> list[dict[str, Any]]:
    """Decode columns into one dictionary per row."""
    return [row for output in outputs if output.value is not None for row in read_table(output.value).to_pylist()]


def facts_in(outputs: Iterable[Output]) -> list[dict[str, Any]]:
    """Decode JSON records."""
    return [msgspec.json.decode(output.value or b"") for output in outputs]


def marks_in(outputs: Iterable[Output]) -> list[dict[int, int]]:
    """Read the marks of every record."""
    return [watermarks_of(output.headers) for output in outputs]


def idle_in(outputs: Iterable[Output]) -> list[set[int]]:
    """Read the idle origins of every record."""
    return [set(idle_of(output.headers)) for output in outputs]


def reasons_in(outputs: Iterable[Output]) -> list[tuple[int, str]]:
    """Read the offset and the reason of dead letters."""
    facts = [{name.rpartition(".")[2]: fact.decode() for name, fact in output.headers} for output in outputs]
    return [(int(fact["offset"]), fact["reason"]) for fact in facts]


def repeated(items: Iterable[Any]) -> list[Any]:
    """Name what is there more than once."""
    return [item for item, times in Counter(items).items() if times > 1]
