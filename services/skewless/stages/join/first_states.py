"""Reads in the background what the stages left and right know of their partitions, from the offsets they committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial

from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.algorithms.watermark import WatermarkState
from skewless.errors import SkewlessError
from skewless.kafka.call_with_timeout import in_background
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.settings import KafkaSettings
from skewless.wire.repartition_checkpoint import first_state

log = logging.getLogger(__name__)

States = Mapping[int, WatermarkState]


def first_states(
    kafka: KafkaSettings, writers: Mapping[Side, tuple[str, str]], rules: JoinRules, side: Side
) -> dict[int, WatermarkState]:
    """Return `first_state` of each partition of a side that has a commit. `writers` has groups and their topics."""
    committed = OffsetReader(kafka).committed(*writers[side])
    return {
        partition: first_state(offset.checkpoint, rules.disorder_ms(side)) for partition, offset in committed.items()
    }


class LatestStates:
    """Returns what the read that the previous call began has found. Nothing while it is not done."""

    def __init__(self, read: Callable[[Side], States]) -> None:
        self._read = read
        self._pending: dict[Side, Future[States]] = {}

    def __call__(self, side: Side) -> States:
        """Return the states of a side, and begin the next read."""
        pending = self._pending.get(side)
        if pending is not None and not pending.done():
            return {}
        self._pending[side] = in_background(partial(self._read, side))
        if pending is None:
            return {}
        try:
            return pending.result()
        except SkewlessError as error:
            log.warning("cannot read the state of the stage %s: %s", side.value, error)
            return {}
