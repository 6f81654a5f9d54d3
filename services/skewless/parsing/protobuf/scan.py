"""Compiled loop over Protobuf messages: finds the wanted fields by their numbers, and skips everything else."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.jit import jit
from skewless.parsing.compiled_parts import drop_record, varint, zigzag

VARINT: Final = 0
ZIGZAG: Final = 1
FIXED64: Final = 2
FIXED32: Final = 3
SIGNED32: Final = 4
BYTES: Final = 5
MESSAGE: Final = 6
MAP: Final = 7
SECONDS: Final = 8
NANOS: Final = 9
INT32: Final = 10
UINT32: Final = 11
ZIGZAG32: Final = 12
LIST: Final = 13
"""Kinds of fields. SECONDS and NANOS are those of a timestamp, which is one element. LIST is a whole repeated field."""

TRUNCATED: Final = 1
WIRE_TYPE: Final = 2
DEEP: Final = 5
ERRORS: Final = {
    TRUNCATED: "ends too early",
    WIRE_TYPE: "has an unknown wire type",
    DEEP: "is nested too deep",
}
"""Errors of a message, and their reasons."""

GROUP: Final = -1
LOW_32_BITS: Final = 0xFFFFFFFF
SIGN_32: Final = 1 << 31


@jit
def _little_endian(data: NDArray[np.uint8], position: int, size: int) -> int:
    value = 0
    for i in range(size):
        value |= np.int64(data[position + i]) << np.int64(8 * i)  # type: ignore[assignment]  # numba's integers
    return value


@jit
def _key_of_entry(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return the position and length of the text in the field 1 of an entry of a map; length 0 if there is none."""
    start, size = position, 0
    while position < end:
        tag, position = varint(data, position, end)
        if position < 0:
            return start, -1
        wire = tag & 7
        length = 8
        if wire == 0:
            _, position = varint(data, position, end)
            if position < 0:
                return start, -1
            continue
        if wire == 5:
            length = 4
        elif wire == 2:
            length, position = varint(data, position, end)
        if position < 0 or length < 0 or length > end - position or wire in (3, 4, 6, 7):
            return start, -1
        if tag >> 3 == 1 and wire == 2:
            start, size = position, length
        position += length
    return start, size


@jit
def scan(  # noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917 - one loop, which calls would slow down
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    begin: int,
    messages: NDArray[np.int64],
    fields: NDArray[np.int64],
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
    """Scan messages from `begin` on. Returns the number of the first one that does not fit into the output.

    `messages` has the first and the last row of the wanted fields of each message, the root first. `fields` has a row
    per wanted field: number, kind, slot, level, message, first key, tag, default.

    - The level is that of the elements of a repeated field, 0 for another field.
    - The message is that of the field, or for a map the number of wanted keys, whose rows in `key_spans` begin at the
      first key: first byte and length in `keys`, message of the entry.
    - The tag is what is stored for an element. With a default, a field that is absent has the value 0.

    Output: as that of the scan of Avro.
    """
    # Kinds are looked up in tuples: numba would build a set at each comparison, which takes longer than all the rest.
    capacity = parents.shape[1]
    stack_message = np.empty(max_depth + 2, np.int64)
    stack_end = np.empty(max_depth + 2, np.int64)
    stack_level = np.empty(max_depth + 2, np.int64)
    stack_element = np.empty(max_depth + 2, np.int64)
    current = np.zeros(len(level_parents), np.int64)
    before = np.empty(len(level_parents), np.int64)
    for record in range(begin, len(starts)):
        before[:] = counts
        current[0] = record
        position, error, is_full, depth = starts[record], 0, False, 0
        stack_message[0], stack_end[0], stack_level[0], stack_element[0] = 0, ends[record], 0, 0
        entered = True
        while depth >= 0:
            message, end = stack_message[depth], stack_end[depth]
            if entered and message >= 0:
                for row in range(messages[message, 0], messages[message, 1]):
                    slot = fields[row, 2]
                    if fields[row, 7] == 1 and slot >= 0:
                        element = current[slot_levels[slot]]
                        if tags[slot, element] == 0:
                            tags[slot, element], values[slot, element], lengths[slot, element] = fields[row, 6], 0, 0
            entered = False
            if message != GROUP and position == end:
                if stack_level[depth] > 0:
                    current[stack_level[depth]] = stack_element[depth]
                depth -= 1
                continue
            tag, position = varint(data, position, end)
            if position < 0:
                error = TRUNCATED
                break
            number, wire = tag >> 3, tag & 7
            if number <= 0:
                error = WIRE_TYPE
                break
            if wire == 4:
                if message != GROUP or stack_element[depth] != number:
                    error = WIRE_TYPE
                    break
                depth -= 1
                continue
            if wire == 3:
                if depth >= max_depth:
                    error = DEEP
                    break
                depth += 1
                stack_message[depth], stack_end[depth] = GROUP, end
                stack_level[depth], stack_element[depth] = 0, number
                continue
            value = length = 0
            if wire == 0:
                value, position = varint(data, position, end)
                if position < 0:
                    error = TRUNCATED
                    break
            elif wire in (1, 5):
                length = 8 if wire == 1 else 4
                if length > end - position:
                    error = TRUNCATED
                    break
                value = _little_endian(data, position, length)
                position += length
            elif wire == 2:
                length, position = varint(data, position, end)
                if position < 0 or length < 0 or length > end - position:
                    error = TRUNCATED
                    break
                value = position
                position += length
            else:
                error = WIRE_TYPE
                break
            if message == GROUP:
                continue
            raw = value
            for row in range(messages[message, 0], messages[message, 1]):
                if fields[row, 0] != number:
                    continue
                kind, slot, level = fields[row, 1], fields[row, 2], fields[row, 3]
                expected = 0
                if kind == FIXED64:
                    expected = 1
                elif kind in (FIXED32, SIGNED32):
                    expected = 5
                elif kind in (BYTES, MESSAGE, MAP):
                    expected = 2
                is_packed = level > 0 and wire == 2 and expected != 2
                if wire != expected and not is_packed and kind != LIST:
                    continue
                value = inner = raw  # another row may have the same field, by another name
                stop = inner + length
                while True:
                    if is_packed:
                        if inner == stop:
                            break
                        if expected == 0:
                            value, inner = varint(data, inner, stop)
                            if inner < 0:
                                error = TRUNCATED
                                break
                        else:
                            size = 8 if expected == 1 else 4
                            if size > stop - inner:
                                error = TRUNCATED
                                break
                            value = _little_endian(data, inner, size)
                            inner += size
                    outer = 0
                    if level > 0:
                        outer = current[level]
                        element = counts[level]
                        if element == capacity:
                            is_full = True
                            break
                        parents[level, element] = current[level_parents[level]]
                        current[level] = element
                        counts[level] += 1
                    # A field of 32 bits takes the low bits of a longer number, as the libraries of Protobuf do.
                    if kind in (SIGNED32, INT32, NANOS):
                        value = ((value & LOW_32_BITS) ^ SIGN_32) - SIGN_32
                    elif kind == UINT32:
                        value &= LOW_32_BITS
                    elif kind == ZIGZAG32:
                        value = zigzag(value & LOW_32_BITS)
                    elif kind == ZIGZAG:
                        value = zigzag(value)
                    if slot >= 0:
                        element = current[slot_levels[slot]]
                        if kind == NANOS:
                            lengths[slot, element] = value
                        else:
                            tags[slot, element] = fields[row, 6]
                            values[slot, element] = value
                            if kind != SECONDS:
                                lengths[slot, element] = length
                    target = GROUP
                    if kind == MESSAGE:
                        target = fields[row, 4]
                    elif kind == MAP:
                        start, size = _key_of_entry(data, value, value + length)
                        if size < 0:
                            error = TRUNCATED
                            break
                        for key in range(fields[row, 5], fields[row, 5] + fields[row, 4]):
                            is_equal = key_spans[key, 1] == size
                            for i in range(size if is_equal else 0):
                                if keys[key_spans[key, 0] + i] != data[start + i]:
                                    is_equal = False
                                    break
                            if is_equal:
                                target = key_spans[key, 2]
                    if target >= 0:
                        if depth >= max_depth:
                            error = DEEP
                            break
                        depth += 1
                        stack_message[depth], stack_end[depth] = target, value + length
                        stack_level[depth], stack_element[depth] = level, outer
                        position, entered = value, True
                    elif level > 0:
                        current[level] = outer
                    if not is_packed:
                        break
                if error != 0 or is_full or entered:
                    break
            if error != 0 or is_full:
                break
        if error != 0 or is_full:
            drop_record(record, before, slot_levels, counts, tags)
            errors[record] = error
        if is_full:
            return record
    return len(starts)
