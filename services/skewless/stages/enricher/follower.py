"""Reads the topics of tables: completely before the stage starts, and then whatever is appended."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import cached_property, partial
from typing import Any

from skewless.engine.message_batch import MessageBatch
from skewless.errors import BrokerError, UnavailableError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_ids import read_topic_ids
from skewless.kafka.consumer.topic_reader import POLL_S, PartitionRecords, TopicReader, read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.schema_registry.cache import SchemaCache
from skewless.schema_registry.client import pauses
from skewless.schema_registry.schema import SchemaId
from skewless.schema_registry.settings import REGISTRY
from skewless.stages.enricher.table import Table
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)

REPORT_S = 10.0
"""Time between two lines of the log while a table is read."""
MAX_REPORTED = 5
"""Number of unreadable rows that the log names at a time."""
IDLE_S = 1.0
"""Time between two polls after which the tables are read up to the ends of their topics: librdkafka fetches no rows
while its queue is full."""
STALL_S = 10.0
"""Maximum wait for rows before these ends."""
LOOK_S = 30.0
"""Time after which the topics are searched for added partitions, and their ids are compared."""


class TableFollower:
    """Keeps the tables of a process up to date.

    `report_wait` receives the name of what the follower waits for while it reads a table completely.
    """

    def __init__(
        self, kafka: KafkaSettings, tables: Sequence[Table], report_wait: Callable[[str], None] | None = None
    ) -> None:
        self._kafka = kafka
        self._tables = tables
        self._report_wait = report_wait or (lambda _name: None)
        self._reason: str | None = None
        """What the last attempt to apply records lacked."""
        self._read: defaultdict[str, set[int]] = defaultdict(set)
        """Partitions that are read, by topic."""
        self._readers: list[tuple[Table, TopicReader]] = []
        self._ids: dict[str, int] = {}
        """Ids of the topics, as far as they are known."""
        self._looked_at = math.inf
        self._polled_at = math.inf
        """Time of the last poll, or of the first `load` before there was one."""
        self._update: asyncio.Task[None] | None = None
        """The last update of the tables."""

    @cached_property
    def _offsets(self) -> OffsetReader:
        return OffsetReader(self._kafka)

    @property
    def waiting(self) -> tuple[str, ...]:
        """What the tables wait for."""
        return () if self._reason is None else (self._reason,)

    def load(self) -> None:
        """Read all partitions that are not read yet, up to their last committed rows. Waits for their schemas.

        Raises BrokerError if a topic does not exist, or was deleted and created again since the first call, and
        UnreachableError after the time limit of the registry.
        """
        self._check_ids()
        for table in self._tables:
            self._load(table)
        self._looked_at = time.monotonic()
        self._polled_at = min(self._polled_at, self._looked_at)

    def _check_ids(self) -> None:
        try:
            found = read_topic_ids(self._kafka.client_options(), {table.topic for table in self._tables})
        except UnavailableError:  # the stage reports a broker that does not answer
            return
        for topic, topic_id in found.items():
            if self._ids.setdefault(topic, topic_id) != topic_id:
                raise BrokerError(
                    f"topic {topic} at {self._kafka.bootstrap_servers} was deleted and created again, so the rows in "
                    "memory are those of another topic: the next start of the enricher reads the present ones"
                )

    def before_step(self, _batch: MessageBatch) -> Awaitable[None] | None:
        """Apply the records that have arrived; see `StepExecutor.process`. None: there are none."""
        # Batches of several partitions may get here at the same time: those that have waited for a schema. A second
        # update beside the first one could replace a row by an older one.
        if self._update is None or self._update.done():
            self._update = self._next_update()
        return self._update

    def _next_update(self) -> asyncio.Task[None] | None:
        # In a thread, because parsing many rows would block the event loop. No step runs meanwhile.
        now = time.monotonic()
        if now > self._looked_at + LOOK_S:
            return asyncio.create_task(asyncio.to_thread(self.load))
        if now > self._polled_at + IDLE_S:
            return asyncio.create_task(self._catch_up())
        self._polled_at = now
        for table, reader in self._readers:
            if records := reader.poll(0):
                return asyncio.create_task(self._apply_polled(table, records))
        return None

    async def _catch_up(self) -> None:
        """Apply all rows that the topics have now."""
        for table, reader in self._readers:
            ends = await asyncio.to_thread(self._offsets.end, table.topic)
            applied = time.monotonic()
            while not reader.has_reached(ends) and time.monotonic() < applied + STALL_S:
                if records := reader.poll(0):
                    await self._apply_polled(table, records)
                    applied = time.monotonic()
                else:
                    await asyncio.sleep(POLL_S)
        self._polled_at = time.monotonic()

    async def _apply_polled(self, table: Table, records: Collection[PartitionRecords]) -> None:
        """Apply records of a poll. Waits for their schemas as long as necessary: no poll returns the records again."""
        is_reported = False
        for pause in pauses():
            try:
                await asyncio.to_thread(self._attempt, table, records)
            except UnavailableError as error:
                if not is_reported:
                    log.warning("%s", error)
                is_reported = True
                await asyncio.sleep(pause)
            else:
                return

    def _attempt(self, table: Table, records: Collection[PartitionRecords]) -> None:
        """Apply records, and note what they wait for if it raises UnavailableError."""
        try:
            apply(table, records)
        except UnavailableError as error:
            self._reason = str(error)
            self._report_wait(REGISTRY)
            raise
        if self._reason is not None:
            self._reason = None
            self._report_wait(f"table {table.topic}")

    def _load(self, table: Table) -> None:
        topic, read = table.topic, self._read[table.topic]
        # Not up to the end of the log: a producer may keep a transaction open for hours.
        ranges = {partition: ends for partition, ends in self._offsets.ranges(topic).items() if partition not in read}
        if not ranges:
            return
        self._report_wait(f"table {topic}")
        total, done = sum(end - begin for begin, end in ranges.values()), dict[int, int]()
        started = reported = time.monotonic()
        for partition, messages in read_ranges(self._kafka, topic, ranges):
            _wait(table, partial(self._attempt, table, [(partition, messages)]))
            done[partition] = messages[-1].offset() + 1 - ranges[partition][0]
            if time.monotonic() > reported + REPORT_S:
                reported = time.monotonic()
                log.info("table %s: %d of %d records are read, %d rows", topic, sum(done.values()), total, len(table))
        log.info("table %s: %d rows, read in %.1f s", topic, len(table), time.monotonic() - started)
        ends = {partition: end for partition, (_, end) in ranges.items()}
        self._readers.append((table, TopicReader(self._kafka, topic, ends)))
        read.update(ranges)


def _wait(table: Table, attempt: Callable[[], None]) -> None:
    """Repeat an attempt while the registry does not answer. Raises UnreachableError after its time limit."""
    caches = table.parser.schemas
    if caches:
        caches[0].client.wait(attempt)
    else:
        attempt()


def apply(table: Table, records: Collection[PartitionRecords]) -> None:
    """Apply records to a table. Fetches the schemas that they need, and logs unreadable ones.

    Raises UnavailableError, before it applies any record, if the registry does not answer.
    """
    batches = [MessageBatch(TopicPartition(table.topic, partition), 0, messages) for partition, messages in records]
    _fetch_schemas(table, batches)
    for batch in batches:
        lines = table.update(batch)
        for line in lines[:MAX_REPORTED]:
            log.warning("unreadable row: %s", line)
        if len(lines) > MAX_REPORTED:
            log.warning("table %s: %d more unreadable rows", table.topic, len(lines) - MAX_REPORTED)


def _fetch_schemas(table: Table, batches: Sequence[MessageBatch]) -> None:
    needed: defaultdict[SchemaCache[Any], set[SchemaId]] = defaultdict(set)
    for batch in batches:
        for cache, ids in table.parser.needed_schemas(batch):
            needed[cache] |= ids
    for cache, all_ids in needed.items():
        for schema_id in cache.missing(all_ids):
            try:
                cache.fetch(schema_id, all_ids)
            except UnavailableError as error:
                raise UnavailableError(f"table {table.topic} waits for schema {schema_id}: {error}") from None
