"""Commits the offsets at which a group starts for the first time, before it reads a record."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from skewless.engine.start_checks import Input, OffsetsLostError, PriorOutput, check_first_start, check_skip_to
from skewless.errors import UnavailableError, UnreachableError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_ids import read_topic_ids
from skewless.wire.offset_metadata import encode_offset_metadata
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RETRY_S = 0.5
WAIT_S = 60.0
"""Maximum time to wait for the first commit of another process that has joined the group."""


def commit_first_offsets(
    offset_reader: OffsetReader,
    inputs: Sequence[Input],
    start: str | int,
    first_checkpoint: Callable[[int], str],
    prior_output: PriorOutput | None,
) -> None:
    """Commit where the group starts, unless it has committed offsets of one of the topics already.

    A later start finds these offsets, so neither a crash nor new records move the start. `start` is `earliest`,
    `latest` or a Kafka timestamp in ms; `skip_to` of an input is a lower bound. `first_checkpoint` returns the
    checkpoint of a partition that starts at an offset. Several processes may call this at the same time: each reads the
    committed offsets after it has joined. Raises OffsetsLostError if the group has no offsets, but has written results,
    and ConfigurationError if `skip_to` is not in a partition.
    """
    deadline = time.monotonic() + WAIT_S
    group, topics = inputs[0].group, [source.topic for source in inputs]

    def is_committed() -> bool:
        return any(offset_reader.committed(group, topic) for topic in topics)

    while not is_committed():
        committed: dict[TopicPartition, tuple[int, str]] = {}
        topic_ids: Mapping[str, int] = {}
        with contextlib.suppress(UnavailableError):
            topic_ids = read_topic_ids(offset_reader.kafka.client_options(), topics)
        for source in inputs:
            skip_to = source.skip_to or {}
            check_skip_to(source, skip_to, offset_reader.end(source.topic) if skip_to else {})
            offsets = offset_reader.at_start(source.topic, start, skip_to)
            if prior_output is not None:
                try:
                    check_first_start(source, offsets, (), prior_output, begun=False)
                except OffsetsLostError:
                    if is_committed():  # by another process, which has written results meanwhile
                        return
                    raise
            committed |= {
                TopicPartition(source.topic, partition): (
                    offset,
                    encode_offset_metadata(first_checkpoint(offset), source.state_schema, topic_ids.get(source.topic)),
                )
                for partition, offset in offsets.items()
            }
        if offset_reader.commit_first(group, committed):
            offsets_by_name = {f"{topic}/{number}": offset for (topic, number), (offset, _) in committed.items()}
            log.info("group %s starts at %s", group, start, extra={"offsets": offsets_by_name})
            return
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"group {group} has no committed offsets of topic {', '.join(topics)} after {WAIT_S:g} s, and the "
                "broker does not accept the first ones: do all of its processes have the same source.start?"
            )
        time.sleep(RETRY_S)
