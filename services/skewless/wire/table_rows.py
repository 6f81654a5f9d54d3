"""Output records of the sink: rows of its table, and records that the table cannot hold."""

from __future__ import annotations

from skewless.wire.record import OutputRecord

ROWS = "rows"
"""Topic of the output records that are rows: a record of topic `aggregates`, or a tombstone, which deletes the row."""
REFUSED = "refused"
"""Topic of the output records that go to the table of refused rows."""
OFFSET_HEADER = "offset"
"""Header with the offset of the record in its topic."""
REASON_HEADER = "reason"
"""Header with the reason for which a record is refused."""


def row(partition: int, offset: int, key: bytes, value: bytes | None) -> OutputRecord:
    """Return a row, or the deletion of one without a value."""
    return OutputRecord(ROWS, value, key, partition, headers=((OFFSET_HEADER, b"%d" % offset),))


def refused_record(partition: int, offset: int, key: bytes | None, value: bytes, reason: str) -> OutputRecord:
    """Return a record that the table cannot hold."""
    headers = ((OFFSET_HEADER, b"%d" % offset), (REASON_HEADER, reason.encode()))
    return OutputRecord(REFUSED, value, key, partition, headers=headers)
