"""Scans the messages of a batch that have one type."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from skewless.parsing.elements import Plan, Scanned, WantedPaths
from skewless.parsing.protobuf import scan as protobuf
from skewless.parsing.protobuf.plan import plan_of

ERRORS: Final = {
    protobuf.TRUNCATED: "ends too early",
    protobuf.WIRE_TYPE: "has an unknown wire type",
    protobuf.DEEP: "is nested too deep",
}


def read(  # noqa: PLR0913, PLR0917 - by position
    plan: Plan,
    wanted: WantedPaths,
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    max_depth: int,
) -> Scanned:
    """Scan messages, which are at these positions of the data."""
    return Scanned.of(protobuf.scan, plan, wanted, data, starts, ends, max_depth)


def precompile() -> None:
    """Compile the scan, so that the first batch does not wait for it. Takes seconds unless the code is cached."""
    from google.protobuf.wrappers_pb2 import StringValue

    wanted = WantedPaths.of([("value",)])
    plan = plan_of(StringValue.DESCRIPTOR, wanted)
    payload = np.frombuffer(StringValue(value="a").SerializeToString(), np.uint8)
    read(plan, wanted, payload, np.array([0]), np.array([len(payload)]), 1).column(0, 0)
