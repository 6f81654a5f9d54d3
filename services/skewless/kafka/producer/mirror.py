"""MirrorProducer: writes copies of records to another cluster, with the offsets of their input.

A transaction does not span clusters. So the offsets up to which a topic is copied are in the other cluster, too: in the
transaction that writes the copies, as offsets of the copy for a consumer group without members. A copy is visible to
consumers with `isolation.level=read_committed` exactly once, and this process continues where the other cluster says.
All processes have the same transactional id, so the newest one fences the others before it reads these offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer

from skewless.errors import UnavailableError, UnreachableError
from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.kafka.consumer.offsets import offset_consumer
from skewless.kafka.other_cluster import errors_of_other_cluster
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import CommittedOffset, TopicPartition


class MirrorProducer(TransactionalProducer):
    """Exactly once in another cluster.

    `copy_of` returns the name of the copy of a topic, and `topic` that of a topic of the topology. `group` is the
    consumer group of the other cluster that has the offsets. `prepare` raises an error if the copy is not as required;
    an UnreachableError is one after which it is called again. The offsets go to the own consumer group too, but only
    for those who watch the lag.
    """

    def __init__(  # noqa: PLR0913 - by name
        self,
        kafka: KafkaSettings,
        transport: TransportSettings,
        *,
        topic: Callable[[str], str],
        copy_of: Callable[[str], str],
        group: str,
        prepare: Callable[[], None],
    ) -> None:
        super().__init__(kafka, transport, topic, group)
        with errors_of_other_cluster():
            super().attach(offset_consumer(kafka, group))
        self._copy_of = copy_of
        self._prepare = prepare
        self._progress = GroupProgress()

    def attach(self, consumer: Consumer) -> None:
        """Report the progress through this consumer."""
        self._progress.attach(consumer)

    def _connect(self) -> None:
        if self._producer is None:  # otherwise only the start of transactions is repeated
            try:
                self._prepare()
            except UnreachableError as error:
                raise UnavailableError(f"connecting to the other cluster: {error}") from error
        with errors_of_other_cluster():
            super()._connect()

    def send(self, outputs: Iterable[OutputRecord]) -> None:
        """Enqueue copies; see `OutputProducer`."""
        with errors_of_other_cluster():
            super().send(outputs)

    def abort_open(self, identity: str) -> None:
        """Do nothing: all processes have one transactional id, whose transaction the next one aborts when it starts."""

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit the copies and the offsets of their input in one transaction of the other cluster."""
        with errors_of_other_cluster():
            super().commit({self._copy(partition): committed for partition, committed in offsets.items()})
        self._progress.report({partition: committed.offset for partition, committed in offsets.items()})

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets up to which the partitions are copied, without those that have none."""
        partition_of = {self._copy(partition): partition for partition in partitions}
        try:
            with errors_of_other_cluster():
                committed = super().committed_offsets(partition_of)
        except UnavailableError as error:
            # To a user that may not describe the group, librdkafka 2.16 answers that its request timed out.
            hint = f"grant Read on group {self._transactional_id}, if this user does not have it"
            raise UnavailableError(f"{error}; {hint}") from error
        return {partition_of[copy]: offset for copy, offset in committed.items()}

    def _copy(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(self._copy_of(partition.topic), partition.partition)
