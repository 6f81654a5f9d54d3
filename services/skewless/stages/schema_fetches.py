"""Fetches the schemas that a batch needs before the batch is processed. Only the batch's partition waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

from skewless.engine.executor import StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.engine.step import InputStep
from skewless.errors import UnavailableError
from skewless.parsing.record_parser import NeededSchemas, RecordParser
from skewless.schema_registry.cache import SchemaCache
from skewless.schema_registry.client import pauses
from skewless.schema_registry.schema import SchemaId
from skewless.schema_registry.settings import REGISTRY
from skewless.stages.built_stage import Dependency, Process, process_at_once
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)

CONCURRENT_REQUESTS = 8
"""Maximum number of schemas that a partition requests at the same time."""


def with_schemas(
    parsers: Mapping[str | None, RecordParser],
    step: InputStep[Any],
    process: Callable[[StepExecutor], Process] = process_at_once,
) -> tuple[Callable[[StepExecutor], Process], Dependency | None]:
    """Return the processor and the dependency of a stage with these parsers, by topic; None: that of any topic.

    The processor fetches the schemas of a batch before it processes the batch with what `process` returns.
    """
    caches = [cache for parser in parsers.values() for cache in parser.schemas]
    if not caches:
        return process, None

    def needed(batch: MessageBatch) -> Iterable[NeededSchemas]:
        return (parsers.get(batch.topic) or parsers[None]).needed_schemas(batch)

    def processor(executor: StepExecutor) -> Process:
        fetches = SchemaFetches(needed, process(executor), executor.is_current, executor.fail)
        step.waits = lambda: fetches.waiting
        return fetches.submit

    return processor, Dependency(REGISTRY, caches[0].wait)


class SchemaFetches:
    """Processes batches whose schemas are known at once, and others when their schemas are fetched.

    `needed` returns the schemas of a batch. The order within a partition stays the same. `report_failure` receives the
    error that ended the processing of a partition.
    """

    def __init__(
        self,
        needed: Callable[[MessageBatch], Iterable[NeededSchemas]],
        process: Callable[[MessageBatch], Awaitable[None]],
        is_current: Callable[[MessageBatch], bool],
        report_failure: Callable[[Exception], None],
    ) -> None:
        self._needed = needed
        self._process = process
        self._is_current = is_current
        self._report_failure = report_failure
        self._queues: dict[TopicPartition, deque[MessageBatch]] = {}
        """Batches of the partitions that wait, without the first one."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._attempts: dict[tuple[SchemaCache[Any], SchemaId], asyncio.Task[None]] = {}
        """Requests that are not answered yet. All partitions that need a schema wait for the same one."""
        self._reasons: dict[TopicPartition, str] = {}

    @property
    def waiting(self) -> tuple[str, ...]:
        """What partitions wait for."""
        return tuple(self._reasons.values())

    async def submit(self, batch: MessageBatch) -> None:
        """Process a batch, or enqueue it if its partition waits."""
        if batch.source in self._queues:
            self._queues[batch.source].append(batch)
        elif any(cache.missing(ids) for cache, ids in self._needed(batch)):
            self._queues[batch.source] = deque()
            task = asyncio.get_running_loop().create_task(self._process_waiting(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            await self._process(batch)

    async def _process_waiting(self, batch: MessageBatch) -> None:
        queue = self._queues[batch.source]
        try:
            while True:
                for cache, ids in self._needed(batch):
                    await self._fetch_missing(batch, cache, ids)
                self._reasons.pop(batch.source, None)
                await self._process(batch)
                if not queue:
                    return
                batch = queue.popleft()
        except Exception as error:  # noqa: BLE001 - the engine classifies it; it delivers all uncommitted batches again
            self._report_failure(error)
        finally:
            # Not in a callback of the task, which runs later: a batch that is enqueued until then would wait forever.
            self._queues.pop(batch.source, None)
            self._reasons.pop(batch.source, None)

    async def _fetch_missing(self, batch: MessageBatch, cache: SchemaCache[Any], ids: Collection[SchemaId]) -> None:
        missing = cache.missing(ids)
        for first in range(0, len(missing), CONCURRENT_REQUESTS):
            try:
                async with asyncio.TaskGroup() as group:
                    for schema_id in missing[first : first + CONCURRENT_REQUESTS]:
                        group.create_task(self._fetch(batch, cache, schema_id, ids))
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None

    async def _fetch(
        self, batch: MessageBatch, cache: SchemaCache[Any], schema_id: SchemaId, ids: Collection[SchemaId]
    ) -> None:
        """Fetch a schema. Waits for the registry, unless the partition is revoked."""
        for pause in pauses():
            # Another partition may have fetched it meanwhile.
            if not self._is_current(batch) or not cache.missing([schema_id]):
                return
            try:
                await self._attempt(cache, schema_id, ids)
            except UnavailableError as error:
                reason = f"partition {batch.partition} of {batch.topic} waits for schema {schema_id}: {error}"
                if batch.source not in self._reasons:
                    log.warning("%s", reason)
                self._reasons[batch.source] = reason
                await asyncio.sleep(pause)
            else:
                return

    def _attempt(self, cache: SchemaCache[Any], schema_id: SchemaId, ids: Collection[SchemaId]) -> Awaitable[None]:
        """Return the request for a schema that is not answered yet, or a new one."""
        sought = cache, schema_id
        if sought not in self._attempts:
            task = asyncio.get_running_loop().create_task(asyncio.to_thread(cache.fetch, schema_id, ids))
            self._attempts[sought] = task
            task.add_done_callback(lambda _task: self._attempts.pop(sought))
        # A partition that is cancelled must not cancel the request of the others.
        return asyncio.shield(self._attempts[sought])
