"""Fetches the schemas that a batch needs before the batch is processed. Only the batch's partition waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from skewless.engine.message_batch import MessageBatch
from skewless.errors import UnavailableError
from skewless.parsing.record_parser import RecordParser
from skewless.schema_registry.cache import SchemaCache
from skewless.schema_registry.client import pauses
from skewless.schema_registry.schema import SchemaId
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class SchemaFetches:
    """Processes batches whose schemas are known at once, and others when their schemas are fetched.

    The order within a partition stays the same. `report_failure` receives the error that ended the processing of a
    partition.
    """

    def __init__(
        self,
        parser: RecordParser,
        schemas: SchemaCache[Any],
        process: Callable[[MessageBatch], Awaitable[None]],
        is_current: Callable[[MessageBatch], bool],
        report_failure: Callable[[Exception], None],
    ) -> None:
        self._parser = parser
        self._schemas = schemas
        self._process = process
        self._is_current = is_current
        self._report_failure = report_failure
        self._queues: dict[TopicPartition, deque[MessageBatch]] = {}
        """Batches of the partitions that wait, without the first one."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._reasons: dict[TopicPartition, str] = {}

    @property
    def waiting(self) -> tuple[str, ...]:
        """What partitions wait for."""
        return tuple(self._reasons.values())

    async def submit(self, batch: MessageBatch) -> None:
        """Process a batch, or enqueue it if its partition waits."""
        if batch.source in self._queues:
            self._queues[batch.source].append(batch)
        elif self._schemas.missing(self._parser.schema_ids(batch)):
            self._queues[batch.source] = deque()
            task = asyncio.get_running_loop().create_task(self._process_waiting(batch))
            self._tasks.add(task)
            task.add_done_callback(partial(self._on_task_end, batch.source))
        else:
            await self._process(batch)

    async def _process_waiting(self, batch: MessageBatch) -> None:
        queue = self._queues[batch.source]
        while True:
            needed = self._parser.schema_ids(batch)
            for schema_id in self._schemas.missing(needed):
                await self._fetch(batch, schema_id, needed)
            self._reasons.pop(batch.source, None)
            await self._process(batch)
            if not queue:
                return
            batch = queue.popleft()

    async def _fetch(self, batch: MessageBatch, schema_id: SchemaId, keep: Collection[SchemaId]) -> None:
        """Fetch a schema. Waits for the registry, unless the partition is revoked."""
        for pause in pauses():
            if not self._is_current(batch):
                return
            try:
                await asyncio.to_thread(self._schemas.fetch, schema_id, keep)
            except UnavailableError as error:
                reason = f"partition {batch.partition} of {batch.topic} waits for schema {schema_id}: {error}"
                if batch.source not in self._reasons:
                    log.warning("%s", reason)
                self._reasons[batch.source] = reason
                await asyncio.sleep(pause)
            else:
                return

    def _on_task_end(self, partition: TopicPartition, task: asyncio.Task[None]) -> None:
        """Drop the queue. After a failure, all uncommitted batches are delivered again."""
        self._tasks.discard(task)
        self._queues.pop(partition, None)
        self._reasons.pop(partition, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._report_failure(error)
