"""Packed columns: tables of integers, texts and bytes in as few bytes as plain arrays allow.

A value begins with MAGIC. Its header is msgpack. The arrays of the columns follow it in their order, little-endian.

- Integers are stored as distances from the smallest one, in 0, 1, 2, 4 or 8 bytes each.
- Texts and bytes are stored as their lengths, which are integers, and then their content.
- A dictionary is stored as the indices of the rows, and then its texts.
- Other numbers are stored as they are in memory.
- A column with nulls is preceded by Arrow's bitmap of the valid rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms import int128
from skewless.algorithms.record_size import RECORD_BYTES

MAGIC = b"SKC\x01"
"""First bytes of a value: the last one is the version."""
_HEADER_SIZE = struct.Struct("<I")
_RAW_BYTES = {"int128": 16}
"""Bytes per row of the types that are stored as in memory."""
TYPES = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "int128": int128.TYPE,
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}
"""Types of columns by their name in the header."""
_KINDS = {data_type.id: kind for kind, data_type in TYPES.items()}
"""Kind of each type by its number, because the hash of a type takes longer than packing some hundred rows."""
_PARAMETRIC = {"int128", "dictionary"}
"""Kinds of which other types have the same number."""
_NUMBER_TYPES: dict[str, Any] = {"int64": np.int64, "int32": np.int32}
_STORED: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<i8")}
"""Types of stored integers by their bytes. Eight bytes are the integers themselves, because a distance of 64 bits may
not fit into a signed integer."""


class _Header(msgspec.Struct, array_like=True):
    rows: int
    columns: list[tuple[str, str, bool]]
    """Name, type and whether there are nulls, of each column."""
    numbers: list[int]
    """Sizes in the order in which the decoder needs them."""


_encode_header = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(_Header).decode


def pack(table: pa.RecordBatch) -> bytes | None:
    """Encode columns of TYPES. Returns None if a column has another type."""
    packer = _Packer()
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        kind = _KINDS.get(field.type.id)
        if kind is None or (kind in _PARAMETRIC and field.type != TYPES[kind]):
            return None
        if kind == "dictionary" and column.dictionary.null_count:
            column = column.dictionary_decode().dictionary_encode()  # noqa: PLW2901 - its dictionary has no null
        columns.append((field.name, kind, column.null_count > 0))
        packer.add(kind, column)
    header = _encode_header(_Header(table.num_rows, columns, packer.numbers))
    return b"".join((MAGIC, _HEADER_SIZE.pack(len(header)), header, *packer.parts))


def unpack(value: bytes) -> pa.RecordBatch:
    """Decode columns. The arrays are not validated. Raises an error of `ERRORS` if the value is not valid."""
    begin = len(MAGIC) + _HEADER_SIZE.size
    (size,) = _HEADER_SIZE.unpack_from(value, len(MAGIC))
    header = _decode_header(value[begin : begin + size])
    # Each row takes at least a byte in memory, so a writer would have split more rows.
    if not 0 <= header.rows <= RECORD_BYTES:
        raise ValueError(f"{header.rows} rows")
    unpacker = _Unpacker(value, begin + size, header)
    schema = _schema(tuple((name, kind) for name, kind, _ in header.columns))
    arrays = [unpacker.column(kind, has_nulls=has_nulls) for _, kind, has_nulls in header.columns]
    if unpacker.offset != len(value):
        raise ValueError("the value does not end after the last column")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache(maxsize=64)
def _schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    return pa.schema([(name, TYPES[kind]) for name, kind in columns])


ERRORS = (ValueError, KeyError, StopIteration, OverflowError, struct.error, msgspec.MsgspecError)


class _Packer:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.parts: list[Any] = []

    def add(self, kind: str, column: pa.Array) -> None:
        """Add the arrays of a column."""
        if column.null_count:
            self.parts.append(np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little").data)
        if kind == "dictionary":
            entries = len(column.dictionary)
            self.numbers.append(entries)
            self._add_integers(_numbers(column.indices), 0, max(0, entries - 1))
            self._add_texts(column.dictionary)
        elif not len(column):
            return
        elif kind in _RAW_BYTES:
            width = _RAW_BYTES[kind]
            self.parts.append(memoryview(column.buffers()[1])[column.offset * width :][: len(column) * width])
        elif kind in _NUMBER_TYPES:
            values = _numbers(column)
            smallest = int(np.minimum.reduce(values))
            self.numbers.append(smallest)
            self._add_integers(values, smallest, int(np.maximum.reduce(values)))
        else:
            self._add_texts(column)

    def _add_integers(self, values: NDArray[Any], smallest: int, largest: int) -> None:
        width = _width(largest - smallest)
        self.numbers.append(width)
        if width == 8:
            self.parts.append(np.ascontiguousarray(values).data)
        elif width:
            distances = np.subtract(values, smallest, dtype=np.int64) if smallest else values
            self.parts.append(distances.astype(_STORED[width]).data)

    def _add_texts(self, column: pa.Array) -> None:
        if not len(column):
            return
        _, offsets_buffer, content = column.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32, len(column) + 1, 4 * column.offset)
        lengths = offsets[1:] - offsets[:-1]
        shortest, longest = int(np.minimum.reduce(lengths)), int(np.maximum.reduce(lengths))
        if shortest == longest:
            self.numbers += (longest, 0)
        else:
            self.numbers.append(0)
            self._add_integers(lengths, 0, longest)
        if content is not None:
            self.parts.append(memoryview(content)[offsets[0] : offsets[-1]])


def _numbers(column: pa.Array) -> NDArray[Any]:
    """Return a column of integers. Nulls are 0."""
    numbers: NDArray[Any] = (column.fill_null(0) if column.null_count else column).to_numpy()
    return numbers


def _width(span: int) -> int:
    """Return the bytes that an integer of at most this size needs."""
    return 0 if span == 0 else 1 if span < 1 << 8 else 2 if span < 1 << 16 else 4 if span < 1 << 32 else 8


class _Unpacker:
    def __init__(self, value: bytes, offset: int, header: _Header) -> None:
        self._value = memoryview(value)
        self.offset = offset
        self._rows = header.rows
        self._numbers: Iterator[int] = iter(header.numbers)

    def column(self, kind: str, *, has_nulls: bool) -> pa.Array:
        """Return the next column."""
        data_type, rows = TYPES[kind], self._rows
        validity = pa.py_buffer(self._take(-(-rows // 8))) if has_nulls else None
        if kind == "dictionary":
            entries = next(self._numbers)
            if not 0 <= entries <= RECORD_BYTES:
                raise ValueError(f"{entries} texts in a dictionary")
            # The caller validates the indices.
            indices = _array(pa.int32(), validity, self._integers(np.int32, 0))
            return pa.DictionaryArray.from_arrays(indices, self._texts(pa.string(), entries, None), safe=False)
        if not rows:
            return pa.array([], data_type)
        if kind in _RAW_BYTES:
            # A copy: Arrow's groups need an aligned buffer.
            content = pa.py_buffer(bytes(self._take(rows * _RAW_BYTES[kind])))
            return pa.Array.from_buffers(data_type, rows, [validity, content])
        if kind in _NUMBER_TYPES:
            return _array(data_type, validity, self._integers(_NUMBER_TYPES[kind], next(self._numbers)))
        return self._texts(data_type, rows, validity)

    def _take(self, size: int) -> memoryview:
        end = self.offset + size
        if end > len(self._value):
            raise ValueError("the value ends within a column")
        taken = self._value[self.offset : end]
        self.offset = end
        return taken

    def _integers(self, number_type: Any, smallest: int) -> NDArray[Any]:
        width = next(self._numbers)
        if not width:
            return np.full(self._rows, smallest, dtype=number_type)
        stored = self._stored(width, self._rows)
        return stored.astype(number_type) if width == 8 or not smallest else np.add(stored, smallest, dtype=number_type)

    def _stored(self, width: int, count: int) -> NDArray[Any]:
        return np.frombuffer(self._take(count * width), _STORED[width])

    def _texts(self, data_type: pa.DataType, count: int, validity: pa.Buffer | None) -> pa.Array:
        if not count:
            return pa.array([], data_type)
        length, width = next(self._numbers), next(self._numbers)
        available = len(self._value) - self.offset
        if not width:
            if not 0 <= length <= available // count:
                raise ValueError("texts are longer than the value")
            offsets = np.arange(count + 1, dtype=np.int32) * np.int32(length)
        else:
            lengths = self._stored(width, count)
            if lengths.sum(dtype=np.uint64) > available:
                raise ValueError("texts are longer than the value")
            offsets = np.zeros(count + 1, np.int32)
            np.cumsum(lengths, out=offsets[1:], dtype=np.int32)
        content = pa.py_buffer(self._take(int(offsets[-1])))
        return pa.Array.from_buffers(data_type, count, [validity, pa.py_buffer(offsets), content])


def _array(data_type: pa.DataType, validity: pa.Buffer | None, values: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(data_type, len(values), [validity, pa.py_buffer(values)])
