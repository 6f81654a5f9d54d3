"""Limits of the source topics: what a checkpoint of the router has room for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from skewless.algorithms.watermark import MAX_SOURCE_PARTITIONS
from skewless.errors import ConfigurationError

NO_TOPIC = ""
"""Topic that is reported for a partition of `tuples` without source partitions."""
MAX_SHARING = 1_000
"""Maximum source partitions that are written to the same partition of `tuples`."""
MAX_NAME_CHARACTERS = 1_900
"""Maximum characters of the names of all source topics, with `CHARACTERS_PER_TOPIC` for each of them."""
CHARACTERS_PER_TOPIC = 8
WATERMARK_BYTES = 1_440
"""Maximum bytes of the watermarks in a checkpoint of a router that names source partitions."""


def check_source_topics(counts: Mapping[str, int], targets: int) -> None:
    """Raise ConfigurationError if the source topics exceed a limit.

    `counts` has the number of partitions of each source topic, `targets` is that of `tuples`.
    """
    partitions = sum(counts.values())
    if partitions > MAX_SOURCE_PARTITIONS:
        raise ConfigurationError(
            f"source: {_names(counts)} {partitions} partitions, the maximum is {MAX_SOURCE_PARTITIONS}: read fewer "
            "topics, or topics with fewer partitions"
        )
    sharing = sum(-(-count // targets) for count in counts.values())
    if sharing > MAX_SHARING:
        raise ConfigurationError(
            f"source: {sharing} of {partitions} source partitions would be written to the same partition of "
            f"tuples, the maximum is {MAX_SHARING}: create the pipeline with more topics.tuples_partitions"
        )
    characters = sum(len(topic) + CHARACTERS_PER_TOPIC for topic in counts)
    if characters > MAX_NAME_CHARACTERS:
        raise ConfigurationError(
            f"source.topics: the names of the {len(counts)} topics have {characters} characters, counting "
            f"{CHARACTERS_PER_TOPIC} more for each of them; the maximum is {MAX_NAME_CHARACTERS}: read fewer topics"
        )


def _names(topics: Collection[str]) -> str:
    if len(topics) == 1:
        return f"topic {next(iter(topics))} has"
    return f"the {len(topics)} topics have together"
