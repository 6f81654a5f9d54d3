"""Saves the loads of a router's grouping in the compacted topic `router-state`, and restores them after a restart.

There is one record per partition and grouping. The loads are a hint: only the evenness of the load depends on them.
Without a record, loads start at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from skewless.algorithms.grouping import Grouping
from skewless.algorithms.record_size import RECORD_BYTES
from skewless.wire.record import OutputRecord

SCHEMA = "skewless.loads.v1"


class RouterState(msgspec.Struct):
    """Value of a record, encoded as MessagePack."""

    schema: str
    state: dict[str, Any]
    """Result of `Grouping.snapshot`."""


def key_of(grouping: Grouping) -> bytes:
    """Return the record key of a grouping. Each grouping has its own key, so it never restores the state of another."""
    return f"loads/{grouping.name}".encode()


def write(grouping: Grouping, partition: int) -> OutputRecord | None:
    """Return the loads as a record for a partition, reduced if they do not fit.

    None if they do not fit then either: they are only a hint, so none is saved.
    """
    for snapshot in (grouping.snapshot, grouping.reduced_snapshot):
        value = msgspec.msgpack.encode(RouterState(SCHEMA, snapshot()))
        if len(value) <= RECORD_BYTES:
            return OutputRecord("router-state", value, key_of(grouping), partition)
    return None


def excess(grouping: Grouping) -> str:
    """Return why the loads are not saved if `write` returns None, what follows, and the remedy."""
    remedy = f": lower {grouping.size_setting}" if grouping.size_setting else ""
    return (
        f"the loads of {grouping.name} are not saved, because they are larger than a record ({RECORD_BYTES:,} bytes). "
        f"After a restart the router starts without measured loads{remedy}"
    )


def restore(grouping: Grouping, records: Sequence[tuple[bytes, bytes]], max_workers: int) -> str | None:
    """Restore the loads of a grouping from its record among `records` (key, value).

    Returns a line for the log, or None without a record. A record of another version, with other options, with
    more than `max_workers` workers, or a corrupt one is ignored, and the grouping is unchanged.
    """
    value = dict(records).get(key_of(grouping))
    if value is None:
        return None
    previous = grouping.snapshot()
    try:
        saved = msgspec.msgpack.decode(value, type=RouterState)
        _check(saved, max_workers)
        grouping.restore(saved.state)
    except Exception as error:  # noqa: BLE001 - an unusable hint must not stop the router
        grouping.restore(previous)
        return f"ignored the loads in topic router-state, they start at zero: {error}"
    return f"restored the loads of {grouping.workers} workers from topic router-state"


def _check(saved: RouterState, max_workers: int) -> None:
    if saved.schema != SCHEMA:
        raise ValueError(f"their schema is {saved.schema[:40]}, not {SCHEMA}")
    workers = saved.state.get("workers")
    if not isinstance(workers, int) or not 1 <= workers <= max_workers:
        raise ValueError(f"they are for {str(workers)[:40]} workers, the maximum is {max_workers}")
