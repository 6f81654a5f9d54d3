"""Reads the topics of tables: completely before the stage starts, and then whatever is appended."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence

from skewless.engine.message_batch import MessageBatch
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import PartitionRecords, TopicReader, read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.stages.enricher.table import Table
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)

REPORT_S = 10.0
"""Time between two lines of the log while a table is read."""
MAX_REPORTED = 5
"""Number of unreadable rows that the log names at a time."""
LOOK_S = 30.0
"""Time after which the topics are searched for added partitions."""


class TableFollower:
    """Keeps the tables of a process up to date."""

    def __init__(self, kafka: KafkaSettings, tables: Sequence[Table]) -> None:
        self._kafka = kafka
        self._tables = tables
        self._read: defaultdict[str, set[int]] = defaultdict(set)
        """Partitions that are read, by topic."""
        self._readers: list[tuple[Table, TopicReader]] = []
        self._looked_at = math.inf
        self._update: asyncio.Task[None] | None = None
        """The last update of the tables."""

    def load(self) -> None:
        """Read all partitions that are not read yet, up to their present ends.

        Raises BrokerError if a topic does not exist.
        """
        for table in self._tables:
            self._load(table)
        self._looked_at = time.monotonic()

    def before_step(self, _batch: MessageBatch) -> Awaitable[None] | None:
        """Apply the records that have arrived; see `StepExecutor.process`. None: there are none."""
        # Batches of several partitions may get here at the same time: those that have waited for a schema. A second
        # update beside the first one could replace a row by an older one.
        if self._update is None or self._update.done():
            self._update = self._next_update()
        return self._update

    def _next_update(self) -> asyncio.Task[None] | None:
        # In a thread, because parsing many rows would block the event loop. No step runs meanwhile.
        if time.monotonic() > self._looked_at + LOOK_S:
            return asyncio.create_task(asyncio.to_thread(self.load))
        for table, reader in self._readers:
            if records := reader.poll(0):
                return asyncio.create_task(asyncio.to_thread(apply, table, records))
        return None

    def _load(self, table: Table) -> None:
        offsets, topic = OffsetReader(self._kafka), table.topic
        added = sorted(offsets.begin(topic).keys() - self._read[topic])
        if not added:
            return
        # Up to the end of the log, as `read_compacted`.
        ranges = {partition: offsets.log_range(topic, partition) for partition in added}
        total, done = sum(end - begin for begin, end in ranges.values()), dict[int, int]()
        started = reported = time.monotonic()
        for partition, messages in read_ranges(self._kafka, topic, ranges):
            apply(table, [(partition, messages)])
            done[partition] = messages[-1].offset() + 1 - ranges[partition][0]
            if time.monotonic() > reported + REPORT_S:
                reported = time.monotonic()
                log.info("table %s: %d of %d records are read, %d rows", topic, sum(done.values()), total, len(table))
        log.info("table %s: %d rows, read in %.1f s", topic, len(table), time.monotonic() - started)
        ends = {partition: end for partition, (_, end) in ranges.items()}
        self._readers.append((table, TopicReader(self._kafka, topic, ends)))
        self._read[topic].update(added)


def apply(table: Table, records: Iterable[PartitionRecords]) -> None:
    """Apply records to a table. Fetches the schemas that they need, and logs unreadable ones."""
    for partition, messages in records:
        batch = MessageBatch(TopicPartition(table.topic, partition), 0, messages)
        for cache, ids in table.parser.needed_schemas(batch):
            for schema_id in cache.missing(ids):
                cache.fetch(schema_id, ids)
        lines = table.update(batch)
        for line in lines[:MAX_REPORTED]:
            log.warning("unreadable row: %s", line)
        if len(lines) > MAX_REPORTED:
            log.warning("table %s: %d more unreadable rows", table.topic, len(lines) - MAX_REPORTED)
