"""Types of the records that stages read and write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

Headers = Sequence[tuple[str, bytes | None]]
"""Headers of consumed records. A foreign producer may write a header without a value."""
OwnHeaders = Sequence[tuple[str, bytes]]
"""Headers of produced records."""


class Batch(Protocol):
    """Records of one partition that one poll returned, in the order of their offsets."""

    topic: str
    partition: int

    @property
    def size(self) -> int:
        """Bytes of all values."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values of the records."""

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Keys of the records."""

    @property
    def offsets(self) -> Sequence[int]:
        """Offsets of the records, ascending. Transaction markers leave gaps."""

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Kafka timestamps of the records in ms."""

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers of the records."""


class OutputRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to produce. `topic` is a name of the topology. Without a partition, the key determines the partition."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    """Event time in ms for public topics; 0 is written as 1. None for internal topics: it is the time of writing."""
    headers: OwnHeaders = ()


@dataclass(slots=True)
class OutputStats:
    """Records and the bytes of their values."""

    records: int = 0
    bytes: int = 0


def public_timestamp(time: int) -> int | None:
    """Return the Kafka timestamp of a public record with this event time in ms.

    Kafka does not support timestamps before 1970. For earlier times the result is None: Kafka uses the time of writing.
    """
    return time if time >= 0 else None
