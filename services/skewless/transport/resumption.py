"""Whether a group may go on, or begin, as it is started: on top of what it has written nothing is counted again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from skewless.errors import BrokerError, ConfigurationError
from skewless.records import PROGRESS, SCHEMA_HEADER, Headers
from skewless.shape import Saved, Shape, differences
from skewless.transport.positions import Positions

if TYPE_CHECKING:
    from skewless.transport.settings import KafkaSettings


def check_shape(saved: Mapping[int, Saved], shape: Shape | None, group: str) -> None:
    """Raise ConfigurationError, naming what was changed, where something was committed under other settings."""
    for before in {found.shape for found in saved.values()} - {None, shape}:
        if before is not None and shape is not None:
            when = f"when group {group} last committed; set it back, or give the pipeline another name"
            raise ConfigurationError(*(f"{each} {when}" for each in differences(before, shape)))


def has_begun(committed: Mapping[int, TopicPartition]) -> bool:
    """Whether there is a position of any of these partitions."""
    return any(at.offset >= 0 for at in committed.values())


def holds_results(kafka: KafkaSettings, topic: str) -> bool:
    """Whether a topic holds a committed record of a schema that says more than how far time has come.

    Records of somebody else have no schema. A topic that may not be read holds none: a stage needs no right to read
    what it writes.
    """
    positions = Positions(kafka)
    try:
        return positions.holds_more(topic, positions.begin(topic), _is_result)
    except BrokerError:
        return False


def _is_result(headers: Headers) -> bool:
    return any(name == SCHEMA_HEADER and value != PROGRESS.encode() for name, value in headers)


def positions_gone(group: str, topic: str, written: str) -> BrokerError:
    """Say that a group has written and has no position any more."""
    return BrokerError(
        f"group {group} has no position in any partition of topic {topic}, but has written to {written}: its "
        "offsets were deleted, or expired while it was stopped (the broker's offsets.retention.minutes, 7 days by "
        "default). To begin again would count everything twice: give the pipeline another name, or delete its topics"
    )
