"""SqlOutput: writes the rows of a stage to a database, with the offsets of their input in the same transaction.

A commit first moves the offsets, on the condition that they are what this process has last read or stored. If another
process has moved them, nothing is written, and the engine continues at the offsets that are stored now. So a process
that lost its partitions without notice cannot write, and a commit whose answer was lost is never repeated: the stored
offsets show whether it happened. The offsets go to the consumer group too, but only for those who watch the lag.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from skewless.engine.step import Sample
from skewless.errors import BadRecordError, StoreError, TransactionAbortedError, UnavailableError
from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql import schema
from skewless.sql.database import Database
from skewless.sql.errors import CAUSES, ErrorClass, Failure
from skewless.sql.rows import RefusedRow, Row, RowDecoder, RowId, row_id, split_key
from skewless.wire.offset_metadata import join_offset_metadata, split_offset_metadata
from skewless.wire.record import OutputRecord, OutputStats
from skewless.wire.table_rows import OFFSET_HEADER, REASON_HEADER, REFUSED
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 30.0
MAX_ATTEMPTS = 5
"""Number of attempts to commit without polling in between. After that, the partitions are read again, with back-off."""

Item = TypeVar("Item")


class BackOff:
    """Time of the next attempt to connect: 0.1 s after a failure, doubled at each one up to 30 s, with jitter."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._delay_s = FIRST_DELAY_S
        self._next_attempt = -float("inf")

    @property
    def is_over(self) -> bool:
        """Whether the next attempt is due."""
        return self._clock() >= self._next_attempt

    @property
    def has_failed(self) -> bool:
        """Whether an attempt has failed since the last success."""
        return self._next_attempt > -float("inf")

    def failed(self) -> None:
        """Record a failure."""
        self._next_attempt = self._clock() + self._delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._delay_s = min(2 * self._delay_s, MAX_DELAY_S)

    def succeeded(self) -> None:
        """Record a success."""
        self._delay_s, self._next_attempt = FIRST_DELAY_S, -float("inf")


class SqlOutput:
    """Writes rows to one table. Implements `engine.output.Output`."""

    def __init__(  # noqa: PLR0913 - by name
        self,
        database: Database,
        *,
        pipeline: str,
        stage: str,
        topics: Sequence[str],
        create: bool,
        progress: GroupProgress,
    ) -> None:
        self.ready = self.dirty = False
        self.not_ready_reason = f"no connection to the database {database.address}"
        self.replaced = 0
        self.client = None
        self.waited_s = 0.0
        self.sent: defaultdict[str, OutputStats] = defaultdict(OutputStats)
        self.outcomes: Counter[str] = Counter({"committed": 0, "aborted": 0})
        self._database = database
        self._statements = database.statements
        self._identity = (pipeline, stage)
        self._topics = topics
        self._creates = create
        self._progress = progress
        self._decode = RowDecoder(database.statements.table)
        self._back_off = BackOff()
        self._known: dict[TopicPartition, CommittedOffset | None] = {}
        """Offsets as this process has last read or stored them."""
        self._rows: list[tuple[OutputRecord, Row]] = []
        self._deleted: list[RowId] = []
        self._refused: list[RefusedRow] = []
        self._connections = 0
        self._stored = self._removed = self._refusals = self._conflicts = 0
        """Numbers for the metrics, of transactions that were committed."""
        self._retries: Counter[str] = Counter(dict.fromkeys(CAUSES, 0))

    # Connection

    def attach(self, consumer: Any) -> None:
        """Report the progress through this consumer."""
        self._progress.attach(consumer)

    def connect(self) -> None:
        """Make one attempt to connect, if there is no connection and an attempt is due."""
        if self.ready:
            return
        if not self._back_off.is_over:
            raise UnavailableError(self.not_ready_reason)
        with self._converted_errors("connecting"):
            self._database.connect()
            self._database.prepare_upserts()
            self._statements = self._database.statements
            schema.require_own_offsets(self._database, *self._identity)  # before the other table is created
            if self._creates:
                schema.apply(self._database)
            schema.require_fit(self._database)
        self._connections += 1
        self.replaced = self._connections - 1
        self.ready = True

    def abort_open(self, identity: str) -> None:
        """Do nothing: the database has aborted the transaction of a process that is gone."""

    def close(self) -> None:
        """Discard the connection and what was not committed."""
        self.ready = False
        self._database.close()
        self._clear()

    @contextmanager
    def _converted_errors(self, operation: str) -> Iterator[None]:
        """Convert errors of the driver in a block: to UnavailableError, without the connection, or to StoreError."""
        try:
            yield
        except self._database.errors as error:
            failure = self._database.failure_of(error)
            if failure.is_final:
                raise self._permanent(operation, failure) from error
            self._wait_after(failure)
            self.ready = False
            self._database.close()
            raise UnavailableError(f"{operation}: {failure.message}") from error

    def _wait_after(self, failure: Failure) -> None:
        """Count a failure, and log the first one since the last commit."""
        self._retries[failure.cause] += 1
        if not self._back_off.has_failed:
            log.warning("waits for the database: %s", failure.message)
        self._back_off.failed()

    # Rows

    def send(self, outputs: Iterable[OutputRecord]) -> None:
        """Decode rows and keep them until the commit."""
        for output in outputs:
            self.dirty = True
            self._count(output)
            if output.topic == REFUSED:
                self._refuse(output, dict(output.headers)[REASON_HEADER].decode())
                continue
            try:
                if output.value is None:
                    self._deleted.append(row_id(output.key or b""))
                else:
                    self._rows.append((output, self._decode(output.value)))
            except BadRecordError as error:
                self._refuse(output, error.reason)

    def _count(self, output: OutputRecord) -> None:
        sent = self.sent[output.topic]
        sent.records += 1
        sent.bytes += len(output.value or b"")

    def _refuse(self, output: OutputRecord, reason: str) -> None:
        self._refused.append(self._refused_row(output, reason))

    def _refused_row(self, output: OutputRecord, reason: str) -> RefusedRow:
        key = output.key or b""
        window: int | None
        try:
            window, name = split_key(key)
        except ValueError:
            window, name = None, key
        offset = int(dict(output.headers).get(OFFSET_HEADER, b"-1"))
        text = reason.replace("\0", "\ufffd")  # PostgreSQL has no NUL in text, and a foreign record may contain it
        return RefusedRow(window, name, text, output.value or b"", self._topics[0], output.partition or 0, offset)

    # Transactions

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store the rows and the offsets in one transaction. Repeats it after a deadlock or a short wait for a lock."""
        last_start = time.monotonic() + self._database.settings.statement_timeout_s  # nothing is polled meanwhile
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                refused = self._store(offsets)
                break
            except self._database.errors as error:
                may_repeat = attempt < MAX_ATTEMPTS and time.monotonic() < last_start
                self._handle_failed_commit(error, may_repeat=may_repeat)
        self._known.update(offsets)
        self._back_off.succeeded()
        self._stored += len(self._rows) - len(refused)
        self._removed += len(self._deleted)
        self._refusals += len(refused) + len(self._refused)
        for row in (*self._refused, *refused):
            place = {"partition": str(row.partition), "offset": row.offset}
            log.warning("refused a row: %s", row.reason, extra=place)
        self.outcomes["committed"] += 1
        self._clear()
        self._progress.report({partition: committed.offset for partition, committed in offsets.items()})

    def _handle_failed_commit(self, error: Exception, *, may_repeat: bool) -> None:
        """Return if the same transaction is to be repeated, otherwise raise an error."""
        failure = self._database.failure_of(error)
        with suppress(*self._database.errors):
            self._database.rollback()
        match failure.error_class:
            case ErrorClass.TRANSIENT if may_repeat:
                self._retries[failure.cause] += 1
            case ErrorClass.TRANSIENT | ErrorClass.UNAVAILABLE:
                self._wait_after(failure)
                raise TransactionAbortedError(f"storing rows: {failure.message}", replace_output=True) from error
            case _:
                raise self._permanent("storing rows", failure) from error

    def _permanent(self, operation: str, failure: Failure) -> StoreError:
        return StoreError(f"{operation} in {self._database.address}: {failure.message}")

    def _store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[RefusedRow]:
        """Run the transaction. Returns the rows that the database refused."""
        if all(self._known.get(partition) for partition in offsets):
            self._database.begin()
        else:
            self._begin_first()
        for partition, committed in sorted(offsets.items()):
            self._move_offset(partition, committed)
        if self._deleted:
            # A row that the database refuses to look for, as one of a window before the year 1, is not there.
            self._write(partial(self._database.execute_many, self._statements["delete"]), sorted(self._deleted))
        found = [failed for rows in _with_different_keys(self._rows) for failed in self._write(self._upsert, rows)]
        refused = [self._refused_row(output, reason) for (output, _), reason in found]
        if refused or self._refused:
            self._database.execute_many(self._statements["refuse"], [*self._refused, *refused])
        self._database.commit()
        return refused

    def _begin_first(self) -> None:
        """Begin the first transaction of a partition. Raises StoreError if the table is that of another pipeline.

        From this transaction on, the table has offsets of this pipeline. Another one that starts at the same time sees
        them only when they are stored, so each must look again, one after the other.
        """
        self._database.begin_alone()
        try:
            schema.require_own_offsets(self._database, *self._identity)
        except StoreError:
            with suppress(*self._database.errors):
                self._database.rollback()
            raise

    def _move_offset(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Store an offset. Raises TransactionAbortedError if another process has moved it in the meantime."""
        known = self._known.get(partition)
        checkpoint, state_schema = split_offset_metadata(committed.metadata)
        values = (committed.offset, checkpoint, state_schema, committed.leader_epoch, self._statements.table.name)
        if known is not None:
            expected = (known.offset, split_offset_metadata(known.metadata)[0])
            moved = self._database.execute(
                self._statements["offset_update"], (*values, *self._identity, *partition, *expected)
            )
        else:
            moved = self._insert_offset(partition, values)
        if moved != 1:
            self._conflicts += 1
            with suppress(*self._database.errors):
                self._database.rollback()
            raise TransactionAbortedError(
                f"another process has stored offsets of partition {partition.partition} of {partition.topic}"
            )

    def _insert_offset(self, partition: TopicPartition, values: tuple[Any, ...]) -> int:
        try:
            return self._database.execute(
                self._statements["offset_insert"], (*self._identity, *partition, self._progress.cluster_id(), *values)
            )
        except self._database.errors as error:
            if self._database.failure_of(error).error_class is not ErrorClass.DUPLICATE:
                raise
            return 0

    def _upsert(self, rows: Sequence[tuple[OutputRecord, Row]]) -> None:
        self._database.upsert([row for _, row in rows])

    def _write(self, write: Callable[[Sequence[Item]], None], items: Sequence[Item]) -> list[tuple[Item, str]]:
        """Write items, and return those that the database refuses, each with its message."""
        self._database.execute("SAVEPOINT items_to_write")
        try:
            write(items)
        except self._database.errors as error:
            failure = self._database.failure_of(error)
            if failure.error_class is not ErrorClass.VALUE:
                raise
            self._database.execute("ROLLBACK TO SAVEPOINT items_to_write")
            if len(items) == 1:
                return [(items[0], failure.message)]
            middle = len(items) // 2
            return self._write(write, items[:middle]) + self._write(write, items[middle:])
        self._database.execute("RELEASE SAVEPOINT items_to_write")
        return []

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the stored offsets of partitions, without those that have none.

        Raises StoreError if the table has rows and no offset is stored, and for offsets of another table or cluster.
        """
        requested = list(partitions)
        # `commit` stores the id of the cluster. The engine repeats an attempt to read, but not one to commit.
        cluster = self._progress.cluster_id()
        with self._converted_errors("reading the offsets"):
            schema.require_own_offsets(self._database, *self._identity)
            stored = self._database.query(self._statements["offsets_select"], self._identity)
            if not stored:
                self._require_no_rows()
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for topic, number, offset, checkpoint, state_schema, leader_epoch, stored_cluster in stored:
            if topic in self._topics:
                self._require_same_cluster(stored_cluster, cluster)
            metadata = join_offset_metadata(checkpoint, state_schema)
            offsets[TopicPartition(topic, number)] = CommittedOffset(offset, metadata, leader_epoch)
        self._known.update({partition: offsets.get(partition) for partition in requested})
        found = {partition: offsets[partition] for partition in requested if partition in offsets}
        if found:  # a process that was killed may not have reported its last commit
            self._progress.report({partition: committed.offset for partition, committed in found.items()})
        return found

    def _require_no_rows(self) -> None:
        ((has_rows,),) = self._database.query(self._statements["rows_without_offsets"], self._identity)
        if has_rows:
            table, (pipeline, stage) = self._statements.table, self._identity
            raise StoreError(
                f"table {table.name} in {self._database.address} has rows, but {schema.OFFSETS} has no offset of "
                f"stage {stage} of pipeline {pipeline}: the offsets were deleted, or another pipeline writes to this "
                f"table. Empty the table to fill it again from the topic, or name another one in {table.setting} "
                "(`skewless sink check` shows both)"
            )

    def _require_same_cluster(self, stored: str, current: str) -> None:
        if stored != current:
            raise StoreError(
                f"the offsets in {self._database.address} are of Kafka cluster {stored}, and this process "
                f"reads from cluster {current}: correct kafka.bootstrap_servers, or name another table in "
                f"{self._statements.table.setting} and give the pipeline another name"
            )

    def abort(self, *, replace: bool) -> None:
        """Discard the rows since the last commit; with `replace`, the connection too."""
        if replace:
            self.close()
        self._clear()
        self.outcomes["aborted"] += 1

    def _clear(self) -> None:
        self._rows.clear()
        self._deleted.clear()
        self._refused.clear()
        self.dirty = False

    # Metrics

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the samples of the database."""
        yield Sample("skewless_sink_store_up", (), int(self.ready))
        yield Sample("skewless_sink_rows_total", ("stored",), self._stored)
        yield Sample("skewless_sink_rows_total", ("deleted",), self._removed)
        yield Sample("skewless_sink_rows_total", ("refused",), self._refusals)
        yield Sample("skewless_sink_conflicts_total", (), self._conflicts)
        for cause, count in dict(self._retries).items():
            yield Sample("skewless_sink_retries_total", (cause,), count)


def _with_different_keys(items: Iterable[tuple[OutputRecord, Row]]) -> Iterable[list[tuple[OutputRecord, Row]]]:
    """Divide rows into lists in which each window and key occurs once. Two partitions may have the same.

    A later row of a key is in a later list.
    """
    lists: defaultdict[int, list[tuple[OutputRecord, Row]]] = defaultdict(list)
    # Sorted, so that two processes never wait for each other's rows.
    for _, same in groupby(sorted(items, key=_identity), _identity):
        for place, item in enumerate(same):
            lists[place].append(item)
    return lists.values()


def _identity(item: tuple[OutputRecord, Row]) -> Row:
    return item[1][:2]
