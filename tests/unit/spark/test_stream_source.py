"""Ranges of a micro-batch: each task gets about as many offsets as the others."""

from __future__ import annotations

import pytest

from skewless.spark.stream_source import SourceRange, spread
from skewless.wire.topic_partition import TopicPartition


def ranges(*sizes: int) -> list[SourceRange]:
    return [SourceRange(TopicPartition("orders", number), 5, 5 + size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([10] * 16, 2, [80, 80]),
        ([70, 10, 20, 30, 10], 2, [70, 70]),
        ([10, 10], 16, [10, 10]),
        ([], 2, []),
    ],
    ids=["equal", "one large", "more cores than partitions", "none"],
)
def test_spread_ranges_each_task_has_about_as_many_offsets(sizes: list[int], cores: int, tasks: list[int]) -> None:
    spreading = spread(ranges(*sizes), cores)
    assert sorted(sum(each.end - each.begin for each in own) for own in spreading) == tasks
    assert sorted(each for own in spreading for each in own) == ranges(*sizes)
