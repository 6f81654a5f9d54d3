"""Reads the hottest keys by name from the loads that routers save. Only some groupings know names of keys."""

from __future__ import annotations

from collections import defaultdict

from skewless.algorithms.grouping import GROUPINGS, Grouping, create
from skewless.algorithms.grouping.base import HotKey
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.step import TOP_KEYS
from skewless.kafka.consumer.offsets import OffsetReader, newest_offsets
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.stages.router import state

LOOKBACK = 100
"""Offsets of a partition in which its last record is looked for. Transaction markers take some of them."""
KEPT_INTERVALS, KEPT_MS = 3, 60_000
"""Loads that are older than the newest ones by this many intervals, and this time, are those of an ended router."""


def hot_keys(settings: PipelineSettings, offsets: OffsetReader, max_workers: int) -> list[HotKey]:
    """Return the hottest keys of all routers: the sum of their tuples, and the most workers that one router uses.

    `max_workers` is the number of partitions of topic worker-input.
    """
    router, topic = settings.router, settings.topic("router-state")
    if router.grouping not in GROUPINGS or GROUPINGS[router.grouping].hot_keys is Grouping.hot_keys:
        return []
    own = state.key_of(create(router.grouping, router.workers, router))
    found: dict[int, tuple[int, bytes]] = {}
    for partition, messages in read_ranges(settings.kafka, topic, newest_offsets(offsets.ranges(topic), LOOKBACK)):
        for message in messages:
            if message.key() == own and (value := message.value()) is not None:
                found[partition] = (message.timestamp()[1], value)
    oldest = max((time for time, _ in found.values()), default=0) - max(KEPT_MS, KEPT_INTERVALS * router.snapshot_ms)
    tuples, workers = defaultdict[str, int](int), defaultdict[str, int](int)
    for time, value in found.values():
        if time >= oldest:
            grouping = create(router.grouping, router.workers, router)
            state.restore(grouping, [(own, value)], max_workers)
            for hot in grouping.hot_keys(TOP_KEYS):
                tuples[hot.key] += hot.tuples
                workers[hot.key] = max(workers[hot.key], hot.workers)
    ranked = sorted(tuples, key=lambda key: (-tuples[key], key))
    return [HotKey(key, tuples[key], workers[key]) for key in ranked[:TOP_KEYS]]
