"""LoopCalls: the consumer thread's way to the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class LoopCalls:
    """Makes calls on the event loop. A call runs between two batches, after all earlier calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def post(self, call: Callable[Parameters, object], *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        """Make a call on the loop, and do not wait for it."""
        self._loop.call_soon_threadsafe(partial(call, *args, **kwargs))

    def wait(self, call: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Make a call on the loop, and return its result or raise its error."""
        future: concurrent.futures.Future[Result] = concurrent.futures.Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - raised on the consumer thread
                future.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return future.result()
