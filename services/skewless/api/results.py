"""Result: the results of one key in one window, with the types of the pipeline's aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from skewless.algorithms.aggregates import ResultField

Value: TypeAlias = int | float | Decimal | str | bool | list[Any] | None
"""A result. Numbers with decimals are Decimal, because they are exact."""
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


def result_reader(results: Iterable[ResultField], parts: Iterable[str]) -> Callable[[Mapping[str, Any]], Result]:
    """Return the function from decoded records of `aggregates` to results. Their decimals are Decimal or text.

    `parts` are the names of the parts of a composite key.
    """
    converters = dict.fromkeys(parts, str) | {result.name: _converter(result.result_type) for result in results}

    def read(record: Mapping[str, Any]) -> Result:
        fields = {name: None if record[name] is None else convert(record[name]) for name, convert in converters.items()}
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
