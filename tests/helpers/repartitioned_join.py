"""Runs the stages left, right and join over topics in memory, as the engine does: a blocked partition is not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from helpers.in_memory_batch import InMemoryBatch
from helpers.join_stage import PARTITIONS, JoinRun, step_rules
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.algorithms.watermark import WatermarkState
from skewless.stages.repartition.step import RECORD_TOPICS, RepartitionRules, RepartitionStep
from skewless.wire.record import OutputRecord
from skewless.wire.repartition_checkpoint import first_state

READ_RECORDS = 10
"""Records that the join reads at once."""


class RepartitionedJoin:
    """Two topics with some partitions each, whose records one partition of the join merges."""

    def __init__(self, join: JoinRules, partitions: int | Mapping[Side, int], **changes: Any) -> None:
        counts = dict.fromkeys(Side, partitions) if isinstance(partitions, int) else partitions
        self._rules = step_rules(join, merged_partitions=counts, **changes)
        self.join = JoinRun(self._rules)
        self.offsets = {side: [0] * counts[side] for side in Side}
        self.stages = {side: self._stage(side, [None] * counts[side]) for side in Side}

    def restart(self, **changes: Any) -> None:
        """Start all three stages again at their last commit, with changed rules."""
        self._rules = self.join.rules = replace(self._rules, **changes)
        self.join.crash()
        for side, stage in self.stages.items():
            self.stages[side] = self._stage(side, [*map(stage.checkpoint, range(len(self.offsets[side])))])

    def _stage(self, side: Side, checkpoints: Sequence[str | None]) -> RepartitionStep:
        join = self._rules
        rules = RepartitionRules(
            side=side, records=replace(join.sides[side], keyed=False), disorder_ms=join.join.disorder_ms(side),
            partitions=1, max_drift_ms=join.max_drift_ms, idle_timeout_ms=join.idle_timeout_ms,
            max_ahead_ms=join.max_ahead_ms, drain=join.drain,
        )  # fmt: skip
        step = RepartitionStep(rules)
        for partition, checkpoint in enumerate(checkpoints):
            step.assign(partition, checkpoint, ())
        return step

    def add_partition(self, side: Side) -> None:
        """Add a partition to a topic. Its stage reads it."""
        self.stages[side].assign(len(self.offsets[side]), None, ())
        self.offsets[side].append(0)

    def write(self, side: Side, partition: int, *records: OutputRecord, ends: bool = True) -> list[OutputRecord]:
        """Write records to a topic, let its stage process them and commit, and return all it writes.

        With `ends`, the stage has then read all partitions to their ends.
        """
        stage, first = self.stages[side], self.offsets[side][partition]
        self.offsets[side][partition] += len(records)
        outputs: list[OutputRecord] = []
        if records:
            batch = InMemoryBatch(partition, records, range(first, first + len(records)))
            outputs += stage.process(batch, self.join.now)
        for each in range(len(self.offsets[side])) if ends else ():
            stage.end_of_partition(each, self.join.now)
        outputs += stage.flush(self.join.now)
        self.join.logs[side] += [output for output in outputs if output.topic == RECORD_TOPICS[side]]
        return outputs

    def run(self) -> None:
        """Let the join read what it does not block, and commit, until nothing is left to read."""
        self.join.step.first_states = self._first_states
        while True:
            before = dict(self.join.offsets)
            for side, partition in PARTITIONS.items():
                if partition not in self.join.step.blocked:
                    self.join.read(side, READ_RECORDS)
            self.join.commit([side for side in Side if not self.unread(side)])
            if self.join.offsets == before:
                return

    def _first_states(self, side: Side) -> dict[int, WatermarkState]:
        stage, disorder_ms = self.stages[side], self._rules.join.disorder_ms(side)
        return {each: first_state(stage.checkpoint(each), disorder_ms) for each in range(len(self.offsets[side]))}

    def unread(self, side: Side) -> int:
        """Return the number of records that the join has not read."""
        return len(self.join.logs[side]) - self.join.offsets[side]
