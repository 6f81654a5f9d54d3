"""Records of a source partition as the parser reads them, and the texts in their keys and headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import Encoding
from skewless.wire.record import Headers

INTEGER_BYTES: dict[Encoding, int] = {"int64": 8, "int32": 4}
"""Size of record keys that are integers."""


class SourceRecords(Protocol):
    """Consecutive records of a source partition. Columns that the settings do not need are not read."""

    @property
    def partition(self) -> int:
        """Number of the partition."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values of the records."""

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Keys of the records."""

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers of the records."""

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Kafka timestamps of the records in ms."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records that are not read by a stage. Implements `SourceRecords`; leave out columns that are not read."""

    values: Sequence[bytes | None]
    timestamps: NDArray[np.int64]
    keys: Sequence[bytes | None] = ()
    headers: Sequence[Headers] = ()
    partition: int = 0

    @classmethod
    def of_values(
        cls,
        values: Sequence[bytes | None],
        timestamps: NDArray[np.int64],
        keys: Sequence[bytes | None] | None = None,
    ) -> Self:
        """Return records that have no headers and, unless `keys` are given, no keys, such as the lines of a file."""
        size = len(values)
        return cls(values, timestamps, [None] * size if keys is None else keys, [()] * size)


class DerivedRecords:
    """Records whose columns are derived from those of others when they are used first. Implements `SourceRecords`."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    headers: Sequence[Headers]
    timestamps: NDArray[np.int64]

    def __init__(self, records: SourceRecords, derive: Callable[[Any], Any]) -> None:
        self._records, self._derive, self.partition = records, derive, records.partition

    def __getattr__(self, column: str) -> Any:
        """Derive a column. From then on it is an attribute."""
        self.__dict__[column] = derived = self._derive(getattr(self._records, column))
        return derived


def select(records: SourceRecords, rows: Sequence[int]) -> SourceRecords:
    """Return some records. Their columns are read when they are used."""

    def taken(column: Any) -> Any:
        return column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows]

    return DerivedRecords(records, taken)


def with_values(
    records: SourceRecords, values: Sequence[bytes | None], headers: Sequence[Headers] | None = None
) -> SourceRecords:
    """Return records with other values, and with other headers unless these are None."""
    derived = DerivedRecords(records, lambda column: column)
    derived.values = values
    if headers is not None:
        derived.headers = headers
    return derived


def record_key_texts(records: SourceRecords, encoding: Encoding) -> tuple[list[str], Problems]:
    """Return the key of each record as text, and the reasons for keys that are missing or not so encoded.

    The text of such a key is empty.
    """
    if encoding == "utf8":
        return _decode(records.keys, "record key", bytes.decode)
    size = INTEGER_BYTES[encoding]

    def decode(key: bytes) -> str:
        if len(key) != size:
            raise ValueError
        return str(int.from_bytes(key, "big", signed=True))

    return _decode(records.keys, "record key", decode, f"not an {encoding} of {size} bytes")


def header_texts(records: SourceRecords, header: str, purpose: str) -> tuple[list[str], Problems]:
    """Return the text of a header of each record, and the reasons for headers that are missing or not UTF-8.

    `purpose` says in the reasons what the header is for. If a record has several headers of the name, the last counts.
    """
    found = [last_header(headers, header) for headers in records.headers]
    return _decode(found, f"{purpose} header {header}", bytes.decode)


def last_header(headers: Headers, name: str) -> bytes | None:
    """Return the value of the last header of this name; None if there is none."""
    return dict(headers).get(name)


def _decode(
    column: Sequence[bytes | None], what: str, decode: Callable[[bytes], str], malformed: str = "not UTF-8"
) -> tuple[list[str], Problems]:
    texts, problems = [], Problems()
    for i, entry in enumerate(column):
        text = ""
        if entry is None:
            problems[i] = f"{what} is missing"
        else:
            try:
                text = decode(entry)
            except ValueError:  # also UnicodeDecodeError
                problems[i] = f"{what} is {malformed}"
        texts.append(text)
    return texts, problems
