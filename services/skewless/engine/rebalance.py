"""Rebalance: follows the group's assignments. Revokes, restores and resets partitions. Runs on the consumer thread.

An assignment takes two steps. The callback only adds it to `Assignment`, in state RESTORING. Between two polls the
thread restores it, in attempts (`AssignmentRestorer`). Each attempt has a timeout and is repeated while no broker
answers, so a process waits for brokers without a time limit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from skewless.engine.commit_policy import POLL_S
from skewless.engine.executor import RestoredPartition
from skewless.engine.group_session import Callbacks, GroupSession
from skewless.engine.loop_calls import LoopCalls
from skewless.engine.open_transactions import OpenTransactions
from skewless.engine.restore import AssignmentChangedError, AssignmentRestorer
from skewless.engine.stage_runtime import StageRuntime
from skewless.errors import FencedError, TransactionAbortedError
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class Rebalance:
    """The life cycle of the assignment of one process."""

    def __init__(  # noqa: PLR0913 - only `ConsumerThread` passes them
        self,
        runtime: StageRuntime,
        *,
        session: GroupSession,
        open_transactions: OpenTransactions,
        restorer: AssignmentRestorer,
        on_loop: LoopCalls,
        commit: Callable[[Collection[TopicPartition]], None],
        stopping: Callable[[], bool],
    ) -> None:
        """`commit` commits what is processed, then revokes partitions. Raises TransactionAbortedError if it fails."""
        self._session = session
        self._executor, self._output = runtime.executor, runtime.output
        self._assignment = runtime.executor.assignment
        self._open_transactions = open_transactions
        self._restorer = restorer
        self._label_of = runtime.executor.step.label_of
        self._on_loop = on_loop
        self._commit = commit
        self._stopping = stopping

    def join(self) -> None:
        """Join the group with a new consumer."""
        self._session.join(Callbacks(assign=self._assign, revoke=self._revoke, lose=self._lose))
        self._output.attach(self._session.consumer)

    # Callbacks: they run within poll()

    def _assign(self, partitions: set[TopicPartition]) -> None:
        self._open_transactions.abort_of_departed()
        # A static member that joins again gets its previous assignment, perhaps of topics that it no longer reads.
        self._on_loop.wait(
            self._assignment.begin, {partition for partition in partitions if self._restorer.reads(partition.topic)}
        )

    def _revoke(self, partitions: set[TopicPartition]) -> None:
        owned = self._revocable(partitions)
        if not owned:
            return
        try:
            self._commit(owned)
        except TransactionAbortedError as failure:
            self._drop(owned, failure)
        except Exception:
            # The process ends with this error, but the same poll may call `_assign` before it is raised.
            self._on_loop.wait(self._executor.revoke, owned)
            raise

    def _lose(self, partitions: set[TopicPartition]) -> None:
        owned = self._revocable(partitions)
        if owned:
            reason = "partitions were lost, their new owner starts at the committed offsets"
            self._drop(owned, TransactionAbortedError(reason, replace_output=True, membership_lost=True))

    def _revocable(self, partitions: set[TopicPartition]) -> frozenset[TopicPartition]:
        """Drop what is not restored, and return the partitions that are."""
        if self._assignment.awaits_restore:
            self._on_loop.wait(self._assignment.abandon_restore)
        return self._assignment.partitions & partitions

    def _drop(self, partitions: Collection[TopicPartition], failure: TransactionAbortedError) -> None:
        log.warning("partitions revoked without a commit: %s", failure, extra=self._log_fields(partitions))
        self.discard(partitions, failure)

    # Resets

    def discard(self, partitions: Collection[TopicPartition], failure: TransactionAbortedError) -> None:
        """Revoke partitions, and abort what was sent."""
        self._on_loop.wait(self._executor.revoke, partitions)
        self._abort(failure)

    def _abort(self, failure: TransactionAbortedError) -> None:
        """Abort what was sent; without the group's confirmation of this member, only discard the producer."""
        # A process that was suspended may have been replaced. If its records have timed out, librdkafka asks for a new
        # epoch to abort them, and the coordinator then aborts the open transaction of the successor and fences it
        # (KIP-360), although the epoch of this producer is older. A discarded producer asks for nothing: the broker
        # aborts its transaction when the next producer starts, and that one waits for the confirmation.
        self._session.require_confirmation()
        if failure.membership_lost:
            # The process may have been suspended, so the age of its transaction is not the time that writing it took.
            self._output.close()
        self._output.abort(replace=failure.replace_output or not self._session.is_confirmed())

    def reset(self, failure: TransactionAbortedError) -> None:
        """Abort the transaction. The partitions are restored from their committed offsets afterwards."""
        log.warning(
            "abort and reset to the committed offsets: %s", failure, extra=self._log_fields(self._assignment.partitions)
        )
        self._executor.statistics.resets += 1
        if failure.rejoin:
            self.discard(self._assignment.partitions | self._assignment.restoring, failure)
            # Also if it has no partitions: then there is nothing to wait for.
            self._on_loop.wait(self._assignment.abandon_restore)
            self._session.close()
            self.join()
            return
        self._on_loop.wait(self._executor.reset)
        self._abort(failure)
        with suppress(KafkaException):  # of a consumer that has failed permanently; the next poll raises its error
            # Fetch nothing until the partitions are restored. The membership does not change.
            self._session.consumer.assign([])

    def join_again_unless_replaced(self, failure: FencedError) -> None:
        """Join the group again, or raise the error if another process has replaced this one."""
        rejoin = TransactionAbortedError(
            "this process has lost its membership of the group, and no other process has it; joining again",
            rejoin=True,
            replace_output=True,
            membership_lost=True,
        )
        self.discard(self._assignment.partitions, rejoin)
        if self._session.is_replaced():
            raise failure
        if not self._stopping():
            self.reset(rejoin)

    # Restoring an assignment

    def restore(self) -> None:
        """Make one attempt to restore the assignment."""
        generation = self._assignment.generation

        def check_unchanged() -> None:
            if self._assignment.generation != generation or self._stopping():
                raise AssignmentChangedError

        def serve() -> None:
            self._session.serve(POLL_S)
            check_unchanged()

        try:
            self._session.serve(POLL_S if self._session.outage.waiting else 0)
            check_unchanged()
            restored = self._restorer.attempt(sorted(self._assignment.restoring), serve)
        except AssignmentChangedError:
            return
        if restored is not None:
            self._start(restored)

    def _start(self, restored: dict[TopicPartition, RestoredPartition]) -> None:
        """Assign the restored partitions to the consumer at their offsets, and to the executor."""
        self._session.consumer.assign(
            [
                KafkaPartition(
                    *partition, start.offset, "", *(() if start.leader_epoch is None else (start.leader_epoch,))
                )
                for partition, start in restored.items()
            ]
        )
        # A partition that is revoked while it is paused is still paused when it is assigned again (librdkafka), but the
        # back-pressure assumes that no assigned partition is paused.
        self._session.consumer.resume([KafkaPartition(*partition) for partition in restored])
        partitions = set(restored)
        offsets = {self._label_of(partition): start.offset for partition, start in restored.items()}
        self._on_loop.wait(self._executor.assign, restored, self._restorer.partition_counts)
        self._session.outage.over()
        log.info("assigned %d partitions", len(partitions), extra={**self._log_fields(partitions), "offsets": offsets})

    def _log_fields(self, partitions: Iterable[TopicPartition]) -> dict[str, list[str]]:
        return {"partitions": [self._label_of(partition) for partition in sorted(partitions)]}
