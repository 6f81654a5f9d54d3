"""Waits for conditions: every wait polls until its condition holds or its deadline has passed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WAIT_S = 180.0
"""Deadline in s of each wait, for a machine whose cores are all busy. A wait ends as soon as its condition holds."""
PAUSE = 9
"""Delay between two polls of a condition, divided by the time that a poll takes. Many conditions send requests to the
broker. So this is the most that a test polls: a tenth of the time, because the cores have other tests to run."""
LONGEST_S = 0.5
"""Maximum delay in s between two polls of a condition that takes long."""


def until(
    holds: Callable[[], object],
    *,
    each: Callable[[], object] = lambda: None,
    limit_s: float = WAIT_S,
    every_s: float = 0.02,
) -> None:
    """Poll until a condition holds, and call `each` between two polls.

    Raises AssertionError after a poll that began after the deadline: the machine may stand still during an earlier one.

    The delay between two polls is `PAUSE` times the time that a poll takes, but at least `every_s`.
    """
    began = time.monotonic()
    deadline = began + limit_s
    while not holds():
        if began > deadline:
            raise AssertionError(f"the condition did not hold within {limit_s:g} s")
        each()
        time.sleep(max(every_s, min(LONGEST_S, PAUSE * (time.monotonic() - began))))
        began = time.monotonic()


def without_waits(stderr: str) -> str:
    """Return what a command has written to stderr, without the line of a command that waits for a busy broker."""
    return "".join(line for line in stderr.splitlines(keepends=True) if "no Kafka broker answers" not in line)


async def until_in_thread(holds: Callable[[], object], *, limit_s: float = WAIT_S, every_s: float = 0.05) -> None:
    """Poll a condition in another thread until it holds, so that the event loop continues meanwhile."""
    began = time.monotonic()
    deadline = began + limit_s
    while not await asyncio.to_thread(holds):
        if began > deadline:
            raise AssertionError(f"the condition did not hold within {limit_s:g} s")
        await asyncio.sleep(max(every_s, min(LONGEST_S, PAUSE * (time.monotonic() - began))))
        began = time.monotonic()
