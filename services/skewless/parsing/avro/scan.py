"""Compiled loop over records in Avro's binary encoding: finds the wanted elements, and skips everything else.

The loop is driven by a table of the schema's types (`plan`), so that one compiled function reads all schemas.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.jit import jit
from skewless.parsing.compiled_parts import drop_record, varint, zigzag
from skewless.parsing.elements import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DOUBLE,
    ENUM,
    FIXED,
    FLOAT,
    LONG,
    MAP,
    RECORD,
    STRING,
    UNION,
)

TRUNCATED: Final = 1
TRAILING: Final = 2
BRANCH: Final = 3
LENGTH: Final = 4
DEEP: Final = 5
MANY: Final = 6
SYMBOL: Final = 7
ERRORS: Final = {
    TRUNCATED: "ends too early",
    TRAILING: "has bytes after its end",
    BRANCH: "has an unknown branch of a union",
    LENGTH: "has a negative length",
    DEEP: "is nested too deep",
    MANY: "has too many elements for its size",
    SYMBOL: "has an unknown symbol of an enum",
}
"""Errors of a record, and their reasons."""

SPARE_STEPS: Final = 4096
STEPS_PER_BYTE: Final = 16
"""Limit of the work on a record. Elements without bytes, as in an array of nulls, would otherwise be free."""


@jit
def _long(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return an integer and the position after it; position -1 if it does not end."""
    bits, position = varint(data, position, end)
    return zigzag(bits), position


@jit
def scan(  # noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917 - one loop, which calls would slow down
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    begin: int,
    types: NDArray[np.int64],
    children: NDArray[np.int64],
    keys: NDArray[np.uint8],
    key_spans: NDArray[np.int64],
    level_parents: NDArray[np.int64],
    slot_levels: NDArray[np.int64],
    counts: NDArray[np.int64],
    parents: NDArray[np.int64],
    tags: NDArray[np.int32],
    values: NDArray[np.int64],
    lengths: NDArray[np.int64],
    errors: NDArray[np.uint8],
    max_depth: int,
) -> int:
    """Scan records from `begin` on. Returns the number of the first one that does not fit into the output.

    `types` has a row per type: kind, first, size, slot, level.

    | kind | first | size |
    | --- | --- | --- |
    | FIXED | | bytes |
    | ENUM | | symbols |
    | UNION, RECORD | its types are `children[first:first + size]` | |
    | ARRAY | type of the elements | |
    | MAP | type of the values | number of wanted keys |

    The wanted keys of a map are in `key_spans` from `level` on: first byte and length in `keys`, type of the value. The
    level of an array is that of its elements, 0 if they are not wanted. `level_parents` has the level that contains the
    elements of each level. Level 0 are the records.

    Output: `counts` and `parents` have the number of elements of each level, and the element of the parent level that
    contains each. `tags` has for each slot and element of its level the type that was found plus 1, or 0. `values` has
    the number, or the position of a text, whose bytes are in `lengths`.
    """
    # Kinds are looked up in tuples: numba would build a set at each comparison, which takes longer than all the rest.
    capacity = parents.shape[1]
    stack_type = np.empty(max_depth + 1, np.int64)
    stack_next = np.empty(max_depth + 1, np.int64)
    current = np.zeros(len(level_parents), np.int64)
    before = np.empty(len(level_parents), np.int64)
    for record in range(begin, len(starts)):
        before[:] = counts
        current[0] = record
        position, end = starts[record], ends[record]
        steps = SPARE_STEPS + STEPS_PER_BYTE * (end - position)
        depth, error, is_full = 0, 0, False
        node = 0
        while True:
            steps -= 1
            if steps < 0:
                error = MANY
                break
            if node < 0:
                # Continue with the innermost record, array or map.
                if depth == 0:
                    break
                parent = stack_type[depth - 1]
                kind = types[parent, 0]
                if kind == RECORD:
                    index = stack_next[depth - 1]
                    if index == types[parent, 2]:
                        depth -= 1
                    else:
                        stack_next[depth - 1] = index + 1
                        node = children[types[parent, 1] + index]
                    continue
                if stack_next[depth - 1] == 0:
                    # The next block.
                    count, position = _long(data, position, end)
                    if position < 0:
                        error = TRUNCATED
                        break
                    if count == 0:
                        depth -= 1
                        continue
                    if count < 0:
                        size, position = _long(data, position, end)
                        if position < 0:
                            error = TRUNCATED
                            break
                        count = -count
                        if size < 0 or count < 0:
                            error = LENGTH
                            break
                    stack_next[depth - 1] = count
                stack_next[depth - 1] -= 1
                node = types[parent, 1]
                level = types[parent, 4]
                if kind == MAP:
                    length, position = _long(data, position, end)
                    if position < 0 or length > end - position:
                        error = TRUNCATED
                        break
                    if length < 0:
                        error = LENGTH
                        break
                    for key in range(level, level + types[parent, 2]):
                        is_equal = key_spans[key, 1] == length
                        for i in range(length if is_equal else 0):
                            if keys[key_spans[key, 0] + i] != data[position + i]:
                                is_equal = False
                                break
                        if is_equal:
                            node = key_spans[key, 2]
                    position += length
                elif level > 0:
                    element = counts[level]
                    if element == capacity:
                        is_full = True
                        break
                    parents[level, element] = current[level_parents[level]]
                    current[level] = element
                    counts[level] += 1
                continue
            kind = types[node, 0]
            value = length = 0
            if kind == UNION:
                value, position = _long(data, position, end)
                if position < 0:
                    error = TRUNCATED
                    break
                if value < 0 or value >= types[node, 2]:
                    error = BRANCH
                    break
                node = children[types[node, 1] + value]
                continue
            if kind in (LONG, ENUM):
                value, position = _long(data, position, end)
                if position < 0:
                    error = TRUNCATED
                    break
                if kind == ENUM and (value < 0 or value >= types[node, 2]):
                    error = SYMBOL
                    break
            elif kind in (STRING, BYTES):
                length, position = _long(data, position, end)
                if position < 0:
                    error = TRUNCATED
                    break
                if length < 0:
                    error = LENGTH
                    break
                value = position
                if length > end - position:
                    error = TRUNCATED
                    break
                position += length
            elif kind in (DOUBLE, FLOAT, FIXED, BOOLEAN):
                length = types[node, 2]
                if length > end - position:
                    error = TRUNCATED
                    break
                if kind == FIXED:
                    value = position
                else:
                    for i in range(length):
                        value |= np.int64(data[position + i]) << np.int64(8 * i)  # type: ignore[assignment]  # numba's integers
                position += length
            slot = types[node, 3]
            if slot >= 0:
                element = current[slot_levels[slot]]
                tags[slot, element] = node + 1
                values[slot, element] = value
                lengths[slot, element] = length
            if kind in (RECORD, ARRAY, MAP):
                if depth == max_depth:
                    error = DEEP
                    break
                stack_type[depth] = node
                stack_next[depth] = 0
                depth += 1
            node = -1
        if error == 0 and not is_full and position != end:
            error = TRAILING
        if error != 0 or is_full:
            drop_record(record, before, slot_levels, counts, tags)
            errors[record] = error
        if is_full:
            return record
    return len(starts)
