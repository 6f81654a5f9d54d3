"""Helpers for tests of the engine: partitions of one topic by number, and a consumer thread that runs inline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from skewless.engine.assignment import AssignedPartition
from skewless.engine.consumer_loop import ConsumerThread
from skewless.engine.executor import RestoredPartition, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.engine.stage_runtime import StageRuntime
from skewless.kafka.consumer.membership import GroupMembership
from skewless.wire.topic_partition import TopicPartition

TOPIC = "in"


def at(partition: int) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


def assign(executor: StepExecutor, restored: Mapping[int, RestoredPartition]) -> None:
    """Assign partitions and restore them, as the consumer thread does between two polls."""
    by_partition = {at(partition): start for partition, start in restored.items()}
    executor.assignment.begin(by_partition)
    executor.assign(by_partition)


def revoke(executor: StepExecutor, partitions: Collection[int]) -> None:
    executor.revoke([at(partition) for partition in partitions])


def batch_of(executor: StepExecutor, messages: Sequence[Any], partition: int = 0) -> MessageBatch:
    """Make a batch of the current assignment."""
    return MessageBatch(at(partition), executor.assignment.generation, messages)


def waiting(executor: StepExecutor, partition: int) -> int:
    """Return the number of batches of a partition that are in flight."""
    record = record_of(executor, partition)
    return len(record.in_flight) if record else 0


def record_of(executor: StepExecutor, partition: int) -> AssignedPartition | None:
    return executor.assignment._records.get(at(partition))


def adopt(thread: ConsumerThread, consumer: object) -> None:
    """Mark the calling thread as the owner of the consumer."""
    thread._session._thread = threading.get_ident()
    thread._session._consumer = cast("Any", consumer)


def consumer_thread(runtime: StageRuntime, deliver: Callable[[MessageBatch], None]) -> ConsumerThread:
    """Make the thread of a stage, for calls of its methods in the calling thread."""
    return ConsumerThread(
        runtime,
        loop=cast("Any", EagerLoop()),
        deliver=deliver,
        stopped=lambda _failure: None,
        membership=GroupMembership({}, runtime.group, runtime.group_instance_id, TOPIC),
        read_topic_ids=lambda _topics: {},
    )


class EagerLoop:
    """Replaces the event loop of the consumer thread: posted calls run at once."""

    def call_soon_threadsafe(self, call: Callable[..., None], *args: Any) -> None:
        call(*args)
