"""PriorCopy: looks for copies that an earlier start has written, in case its offsets in the other cluster are gone."""

from __future__ import annotations

from skewless.engine.start_checks import PriorOutputInTopic
from skewless.kafka.other_cluster import errors_of_other_cluster
from skewless.kafka.settings import KafkaSettings
from skewless.wire.topic_partition import TopicPartition


class PriorCopy(PriorOutputInTopic):
    """Any record of the copy is one of an earlier start, and was committed with offsets.

    `group` is the group of the other cluster that has the offsets.
    """

    def __init__(self, kafka: KafkaSettings, copy: str, group: str) -> None:
        advice = (
            f"Copying from the beginning would write every record twice: delete topic {copy} at "
            f"{kafka.bootstrap_servers} and what was computed from it, or set another mirror.prefix"
        )
        remedy = f"The offsets are those of group {group}, which no reset changes. {advice}"
        super().__init__(
            kafka, copy, aligned=True, public=True, exactly_once=True, group=group, advice=advice, remedy=remedy
        )

    def of_group(self) -> str | None:
        """Look for copies of any partition."""
        with errors_of_other_cluster():
            return super().of_group()

    def of_partition(self, partition: TopicPartition) -> str | None:
        """Look for copies of one partition."""
        with errors_of_other_cluster():
            return super().of_partition(partition)
