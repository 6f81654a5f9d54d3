"""Simulated cost of processing: each worker partition sleeps in proportion to its tuples, concurrently with others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from skewless.engine.message_batch import MessageBatch
from skewless.errors import BadRecordError
from skewless.stages.worker.settings import CostSettings
from skewless.wire.columns import read_table
from skewless.wire.headers import WATERMARK, schema_of
from skewless.wire.tuples import TUPLE, TUPLE_V2


class SimulatedCost:
    """Delays batches by the simulated cost of their tuples, then processes them. Keeps the order within a partition.

    A batch that is not `is_current` is dropped: its partition was revoked. `report_failure` receives the error that
    ended the processing of a partition. `add_busy_time` receives a partition and the simulated seconds of a batch.
    """

    def __init__(
        self,
        settings: CostSettings,
        process: Callable[[MessageBatch], Awaitable[None]],
        is_current: Callable[[MessageBatch], bool],
        report_failure: Callable[[Exception], None],
        add_busy_time: Callable[[int, float], None],
    ) -> None:
        self._settings = settings
        self._process = process
        self._is_current = is_current
        self._report_failure = report_failure
        self._add_busy_time = add_busy_time
        self._queues: dict[int, asyncio.Queue[MessageBatch]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, batch: MessageBatch) -> None:
        """Enqueue a batch after the others of its partition."""
        if batch.partition not in self._queues:
            self._queues[batch.partition] = asyncio.Queue()
            task = asyncio.get_running_loop().create_task(self._process_queue(self._queues[batch.partition]))
            self._tasks.add(task)
            task.add_done_callback(partial(self._on_task_end, batch.partition))
        self._queues[batch.partition].put_nowait(batch)

    def _on_task_end(self, partition: int, task: asyncio.Task[None]) -> None:
        """Drop the queue. After a failure, all uncommitted batches are delivered again."""
        self._tasks.discard(task)
        self._queues.pop(partition, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._report_failure(error)

    async def _process_queue(self, queue: asyncio.Queue[MessageBatch]) -> None:
        loop = asyncio.get_running_loop()
        busy_until = loop.time()
        rows_since_sleep = 0
        while True:
            if queue.empty():
                batch = await queue.get()
                busy_until = max(busy_until, loop.time())
            else:
                batch = queue.get_nowait()
            for part in batch.parts():
                if not self._is_current(part):
                    break
                # Costs add up to one end time, which only an empty queue moves. With one sleep per cost, the
                # granularity of timers and the commits in between would take as long as the tuples.
                cycles, rows_since_sleep = divmod(rows_since_sleep + _rows(part), self._settings.cycle)
                cost_s = cycles * self._settings.process_duration_ms / 1000
                busy_until += cost_s
                self._add_busy_time(part.partition, cost_s)
                await asyncio.sleep(busy_until - loop.time())
                await self._process(part)


def _rows(part: MessageBatch) -> int:
    """Return the number of tuples, or of rows in which the splitter has aggregated tuples, in a batch of one record."""
    try:
        schema = schema_of(part.headers[0])
        if schema == WATERMARK:
            return 0
        if schema in (TUPLE, TUPLE_V2):
            return 1
        rows: int = read_table(part.values[0]).num_rows
    except BadRecordError:
        return 0
    return rows
