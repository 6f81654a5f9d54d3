"""Scans the records of a batch that have one schema."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from skewless.parsing.avro import scan as avro
from skewless.parsing.avro.plan import plan_of
from skewless.parsing.elements import Scanned, WantedPaths

ERRORS: Final = {
    avro.TRUNCATED: "ends too early",
    avro.TRAILING: "has bytes after its end",
    avro.BRANCH: "has an unknown branch of a union",
    avro.LENGTH: "has a negative length",
    avro.DEEP: "is nested too deep",
    avro.MANY: "has too many elements for its size",
    avro.SYMBOL: "has an unknown symbol of an enum",
}
read: Final = partial(Scanned.of, avro.scan)
"""Scans records; see `Scanned.of`."""


def precompile() -> None:
    """Compile the scan, so that the first batch does not wait for it. Takes seconds unless the code is cached."""
    wanted = WantedPaths.of([("text",)])
    field = {"name": "text", "type": "string"}
    plan = plan_of({"type": "record", "name": "Precompiled", "fields": [field]}, {}, wanted)
    payload = np.array([2, 0x61], np.uint8)
    read(plan, wanted, payload, np.array([0]), np.array([2]), 1).column(0, 0)
