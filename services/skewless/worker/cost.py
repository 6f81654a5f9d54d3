"""Simulated cost of processing: worker partitions sleep for their tuples, each for itself and all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from skewless.errors import BadRecordError
from skewless.records import PROGRESS, TUPLE, read_tuples, schema_of
from skewless.transport.batch import MessageBatch
from skewless.worker.settings import CostSettings


class SimulatedCost:
    """Passes batches on after the time that their tuples cost; the order within a partition is kept."""

    def __init__(
        self,
        settings: CostSettings,
        process: Callable[[MessageBatch], Awaitable[None]],
        failed: Callable[[Exception], None],
        spent: Callable[[int, float], None],
    ) -> None:
        self._settings = settings
        self._process = process
        self._failed = failed
        """Hears of what ended the processing of a partition."""
        self._spent = spent
        """Hears what each partition has cost, in seconds."""
        self._queues: dict[int, asyncio.Queue[MessageBatch]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_free(self) -> bool:
        """Whether tuples cost nothing."""
        return self._settings.cycle == 0 or self._settings.process_duration_ms == 0

    def take_on(self, batch: MessageBatch) -> None:
        """Put a batch behind the others of its partition."""
        if batch.partition not in self._queues:
            self._queues[batch.partition] = asyncio.Queue()
            task = asyncio.get_running_loop().create_task(self._work(self._queues[batch.partition]))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, batch.partition))
        self._queues[batch.partition].put_nowait(batch)

    def _ended(self, partition: int, task: asyncio.Task[None]) -> None:
        """Begin anew with what comes next: after a failure everything that was not committed comes again."""
        self._tasks.discard(task)
        self._queues.pop(partition, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failed(error)

    async def _work(self, queue: asyncio.Queue[MessageBatch]) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.time()
        carried = 0
        while True:
            if queue.empty():
                batch = await queue.get()
                ready = max(ready, loop.time())
            else:
                batch = queue.get_nowait()
            for part in batch.parts():
                # Sleeps are added up against one clock that only idleness moves, or the timer's granularity and the
                # commits in between would cost as much as the tuples.
                cycles, carried = divmod(carried + _tuples(part), self._settings.cycle)
                cost = cycles * self._settings.process_duration_ms / 1000
                ready += cost
                self._spent(part.partition, cost)
                await asyncio.sleep(ready - loop.time())
                await self._process(part)


def _tuples(part: MessageBatch) -> int:
    try:
        schema = schema_of(part.headers[0])
        if schema == PROGRESS:
            return 0
        return 1 if schema == TUPLE else sum(batch.num_rows for batch in read_tuples(part.values[0]))
    except BadRecordError:
        return 0
