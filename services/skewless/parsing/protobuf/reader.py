"""Scans the messages of a batch that have one type."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from skewless.parsing.elements import Scanned, WantedPaths
from skewless.parsing.protobuf import scan as protobuf
from skewless.parsing.protobuf.plan import plan_of

ERRORS: Final = {
    protobuf.TRUNCATED: "ends too early",
    protobuf.WIRE_TYPE: "has an unknown wire type",
    protobuf.DEEP: "is nested too deep",
}
read: Final = partial(Scanned.of, protobuf.scan)
"""Scans messages; see `Scanned.of`."""


def precompile() -> None:
    """Compile the scan, so that the first batch does not wait for it. Takes seconds unless the code is cached."""
    from google.protobuf.wrappers_pb2 import StringValue

    wanted = WantedPaths.of([("value",)])
    plan = plan_of(StringValue.DESCRIPTOR, wanted)
    payload = np.frombuffer(StringValue(value="a").SerializeToString(), np.uint8)
    read(plan, wanted, payload, np.array([0]), np.array([len(payload)]), 1).column(0, 0)
