"""What a router's grouping remembers, as a record of the compacted topic `control`: a hint that outlives the process.

There is one record per partition and grouping, the latest one counts. Nothing but the evenness of the load depends on
it: where there is none, loads begin at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from skewless.algorithms.grouping import Grouping
from skewless.algorithms.sized import RECORD_BYTES
from skewless.records import Output

SCHEMA = "skewless.loads.v1"


class Loads(msgspec.Struct):
    """The value of a record, as MessagePack."""

    schema: str
    state: dict[str, Any]
    """As `Grouping.snapshot` tells it."""


def key_of(grouping: Grouping) -> bytes:
    """Key of a grouping's record: one that is chosen later finds nothing of another, and that one its own again."""
    return f"loads/{grouping.name}".encode()


def write(grouping: Grouping, partition: int) -> Output | None:
    """Write the loads to a partition; None if they are too large for a record, which is no reason to stop."""
    value = msgspec.msgpack.encode(Loads(SCHEMA, grouping.snapshot()))
    return Output("control", value, key_of(grouping), partition) if len(value) <= RECORD_BYTES else None


def restore(grouping: Grouping, records: Sequence[tuple[bytes, bytes]], most: int) -> str | None:
    """Let a fresh grouping go on with the loads among these records (key, value), if it has any there.

    Returns what came of it in words, None when there were none. What cannot be used (of another version or of other
    options, of more than `most` workers, broken) is ignored, and the grouping is as it was.
    """
    value = dict(records).get(key_of(grouping))
    if value is None:
        return None
    untouched = grouping.snapshot()
    try:
        loads = msgspec.msgpack.decode(value, type=Loads)
        _check(loads, most)
        grouping.restore(loads.state)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, a hint must not stop the router
        grouping.restore(untouched)
        return f"loads in topic control are ignored and begin at zero: {error}"
    return f"goes on with the loads in topic control, of {grouping.workers} workers"


def _check(loads: Loads, most: int) -> None:
    if loads.schema != SCHEMA:
        raise ValueError(f"they are {loads.schema[:40]}, not {SCHEMA}")
    workers = loads.state.get("workers")
    if not isinstance(workers, int) or not 1 <= workers <= most:
        raise ValueError(f"they are of {str(workers)[:40]} workers, there are at most {most}")
