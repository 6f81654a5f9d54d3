"""Best keys of a window among those of one partition of `partials`: the state of the ranker.

Their topic has the columns of partials. The key is the number of the partition, and the pane is the start of the
window. A list of candidates replaces the previous one.
"""

from __future__ import annotations

import struct
from typing import Any

from skewless.algorithms.aggregates import BinaryColumn, Tuples, as_objects
from skewless.algorithms.aggregates.partial_column import Binary, Groups, merge_groups
from skewless.algorithms.record_size import PRODUCED_BYTES
from skewless.errors import LimitError
from skewless.wire.aggregates import encode_json

_VERSION = struct.Struct(">q")
MAX_BYTES = PRODUCED_BYTES - 65_536
"""Maximum bytes of a partial. The limit of a record includes headers and the names of columns."""


def _none(_tuples: Tuples, _group_of: Groups, groups: int) -> Binary:
    return as_objects([_VERSION.pack(0) + b"[]"] * groups)


def _newest(partials: Binary, group_of: Groups, groups: int) -> Binary:
    return merge_groups(partials, group_of, groups, max)


CANDIDATES = BinaryColumn("candidates", _none, _newest, value=None)
"""Version and list of candidates. The highest version is valid."""


def encode_candidates(version: int, content: Any) -> bytes:
    """Return content, such as a list of records of results, as a partial.

    Raises LimitError if it fits into no record.
    """
    partial = _VERSION.pack(version) + encode_json(content)
    if len(partial) > MAX_BYTES:
        raise LimitError(
            f"aggregator.top: the best keys of a window take {len(partial):,} bytes, more than the {MAX_BYTES:,} of a "
            "record: lower aggregator.top.n, or remove results that are long, and count everything again with "
            "`skewless reset --to-start`"
        )
    return partial


def candidates_json(partial: bytes) -> bytes:
    """Return the JSON of the content of a partial."""
    return partial[_VERSION.size :]
