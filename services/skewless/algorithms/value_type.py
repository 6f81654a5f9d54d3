"""Named values of tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

VALUE = "value"
"""Name of the only value of a pipeline whose settings name none."""

Kind = Literal["number", "text"]


@dataclass(frozen=True, slots=True)
class ValueType:
    """Name and type of a value that tuples have."""

    name: str = VALUE
    kind: Kind = "number"
    decimals: int = 0
    """Decimal places of a number. Tuples contain it as an integer: the number times 10 to the power of this."""
    optional: bool = False
    """Whether tuples without this value are valid. No aggregate of the value counts them."""

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column of this value."""
        return pa.int64() if self.kind == "number" else pa.dictionary(pa.int32(), pa.string())
