"""Results of a pipeline, with the types of its aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skewless.algorithms.aggregates import ResultField
from skewless.api import html
from skewless.errors import ConfigurationError, how_to_add
from skewless.times import instant_text

if TYPE_CHECKING:
    import pandas as pd

Value: TypeAlias = int | float | Decimal | str | bool | list[Any] | None
"""A result. Numbers with decimals are Decimal, because they are exact."""
INT64 = np.iinfo(np.int64)
SHOWN = 20
"""Rows that a notebook shows."""
OWN_FIELDS = ("key", "window_start", "window_end", "revision")


@dataclass(frozen=True, slots=True)
class Result:
    """The results of one key in one window. Each is also an attribute: `result.count`, `result.sum_price`."""

    key: str
    window_start: int
    """Start of the window (inclusive), in ms since the epoch (UTC)."""
    window_end: int
    """End of the window (exclusive), in ms since the epoch (UTC)."""
    revision: int
    """Number of earlier versions of this result."""
    fields: Mapping[str, Value]
    """Results by name, after the parts of a composite key."""

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` ask for attributes before any of them is set.
        fields = {} if name == "fields" else self.fields
        if name not in fields:
            raise AttributeError(f"this result has no field {name} (fields: {', '.join((*OWN_FIELDS, *fields))})")
        return fields[name]

    def to_dict(self) -> dict[str, Value]:
        """Return all fields in the order of the records in topic `aggregates`."""
        times = {"window_start": self.window_start, "window_end": self.window_end}
        return {"key": self.key, **times, **self.fields, "revision": self.revision}


class Results(Sequence[Result]):
    """Results of a pipeline, by window and the largest first. A notebook shows them as a table."""

    def __init__(self, results: Sequence[Result], fields: Iterable[ResultField], parts: Iterable[str]) -> None:
        self._results = results
        time = pa.timestamp("ms", "UTC")
        self._schema = pa.schema(
            [
                ("key", pa.string()),
                ("window_start", time),
                ("window_end", time),
                *((part, pa.string()) for part in parts),
                *((field.name, field.result_type) for field in fields),
                ("revision", pa.int64()),
            ]
        )

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Result]: ...

    def __getitem__(self, index: int | slice) -> Result | Sequence[Result]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def to_arrow(self) -> pa.Table:
        """Return the results as an Arrow table, whose numbers have all their digits."""
        rows = [result.to_dict() for result in self._results]
        return pa.Table.from_pylist(rows, schema=self._schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return the results as a pandas DataFrame, for plots and arithmetic.

        Numbers with decimals are doubles. So are sums of whole numbers if one of them has more than 64 bits. Other
        whole numbers are `int64`, or `Int64` of pandas if a result has none. Raises ConfigurationError if pandas is not
        installed.
        """
        require_pandas()
        import pandas as pd

        table = self.to_arrow()
        columns = zip(table.schema, table.columns, strict=True)
        numbers = [pa.field(field.name, _as_number(field.type, column)) for field, column in columns]
        table = table.cast(pa.schema(numbers), safe=False)
        frame = table.to_pandas()
        # The int64 of numpy has no null: pandas would take doubles, which change numbers above 2**53.
        nullable = {pa.int64(): pd.Int64Dtype()}.get
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count and column.type == pa.int64():
                frame[name] = column.to_pandas(types_mapper=nullable)
        return frame

    def __repr__(self) -> str:
        return f"Results({len(self)} rows: {', '.join(self._schema.names)})"

    def _repr_html_(self) -> str:
        names, times = self._schema.names, ("window_start", "window_end")
        shown = [result.to_dict() for result in self._results[:SHOWN]]
        rows = [[_text(row[name], is_time=name in times) for name in names] for row in shown]
        more = html.paragraph(f"and {len(self) - SHOWN:,} more") if len(self) > SHOWN else ""
        return html.table(names, rows) + more


def require_pandas() -> None:
    """Raise ConfigurationError if pandas is not installed."""
    if find_spec("pandas") is None:
        raise ConfigurationError(f"pandas is missing: install it, or {how_to_add('spark')}")


def _text(value: Value, *, is_time: bool) -> str:
    if is_time and isinstance(value, int):
        return instant_text(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _as_number(result_type: pa.DataType, column: pa.ChunkedArray) -> pa.DataType:
    """Return the type of a column for arithmetic: int64 if it is exact, otherwise double."""
    if pa.types.is_list(result_type):
        return pa.list_(_as_number(result_type.value_type, pc.list_flatten(column)))
    if not pa.types.is_decimal(result_type):
        return result_type
    limits = pc.min_max(column).as_py().values()
    fits = not result_type.scale and all(limit is None or INT64.min <= limit <= INT64.max for limit in limits)
    return pa.int64() if fits else pa.float64()


def result_reader(results: Iterable[ResultField], parts: Iterable[str]) -> Callable[[Mapping[str, Any]], Result]:
    """Return the function from decoded records of `aggregates` to results. Their decimals are Decimal or text.

    `parts` are the names of the parts of a composite key.
    """
    converters = dict.fromkeys(parts, str) | {result.name: _converter(result.result_type) for result in results}

    def read(record: Mapping[str, Any]) -> Result:
        # Records from before an aggregate was added lack its result.
        fields = {
            name: None if (value := record.get(name)) is None else convert(value)
            for name, convert in converters.items()
        }
        return Result(record["key"], record["window_start"], record["window_end"], record["revision"], fields)

    return read


def _converter(result_type: pa.DataType) -> Callable[[Any], Any]:
    """Return the function from a decoded result to its Python type."""
    if pa.types.is_list(result_type):
        convert = _converter(result_type.value_type)
        return lambda values: [convert(value) for value in values]
    if pa.types.is_decimal(result_type):
        return Decimal if result_type.scale else int
    return float if pa.types.is_floating(result_type) else lambda value: value
