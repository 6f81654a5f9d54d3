"""Waits for conditions: every wait polls until its condition holds or its deadline has passed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WAIT_S = 180.0
"""Deadline in s of each wait, for a machine whose cores are all busy. A wait ends as soon as its condition holds."""


def until(
    holds: Callable[[], object],
    *,
    each: Callable[[], object] = lambda: None,
    limit_s: float = WAIT_S,
    every_s: float = 0.02,
) -> None:
    """Poll until a condition holds, and call `each` between two polls. Raises AssertionError at the deadline."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"the condition did not hold within {limit_s:g} s")
        each()
        time.sleep(every_s)


async def until_in_thread(holds: Callable[[], object], *, limit_s: float = WAIT_S, every_s: float = 0.05) -> None:
    """Poll a condition in another thread until it holds, so that the event loop continues meanwhile."""
    deadline = time.monotonic() + limit_s
    while not await asyncio.to_thread(holds):
        if time.monotonic() > deadline:
            raise AssertionError(f"the condition did not hold within {limit_s:g} s")
        await asyncio.sleep(every_s)
