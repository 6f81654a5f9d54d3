"""Runs the step of a join over two logs in memory: with commits, crashes and restores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from helpers.in_memory_batch import InMemoryBatch
from skewless.algorithms.join.held_records import records_of
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.engine.step import Sample
from skewless.parsing.join_records import side_rules
from skewless.stages.join.settings import JoinSettings
from skewless.stages.join.step import JoinState, JoinStep, JoinStepRules
from skewless.wire.join_changelog import TOPIC, decode_checkpoint, held_blocks, held_offsets
from skewless.wire.record import OutputRecord
from skewless.wire.timed_records import read_timed_records
from skewless.wire.topic_partition import TopicPartition

TOPICS = {Side.LEFT: "impressions", Side.RIGHT: "clicks"}
PARTITIONS = {side: TopicPartition(topic, 0) for side, topic in TOPICS.items()}
NOW = 10**12


def record(record_id: str | None, time: int, **more: Any) -> OutputRecord:
    """Write a record of either side."""
    value = msgspec.json.encode({"id": record_id, "time": time, **more})
    return OutputRecord("any", value, key=None if record_id is None else record_id.encode())


def step_rules(join: JoinRules, ids: Mapping[Side, Any] | None = None, **changes: Any) -> JoinStepRules:
    """Return the rules of a step that reads `record`s. `ids` has the settings of ids that are in another place."""
    found = {side: (ids or {}).get(side, {"field": "id"}) for side in Side}
    settings = JoinSettings.model_validate(
        {
            "left": {"topic": TOPICS[Side.LEFT], "id": found[Side.LEFT], "time": {"field": "time"}},
            "right": {"topic": TOPICS[Side.RIGHT], "id": found[Side.RIGHT], "time": {"field": "time"}},
            "apart_s": 1,
        }
    )
    sides = {side: replace(side_rules(settings.side(side)), earliest=0, latest=10**13) for side in Side}
    defaults = {
        "sides": sides, "topics": TOPICS, "join": join, "emit_unmatched_left": True, "max_drift_ms": 10**9,
        "buffer_records": 10**6, "buffer_bytes": 2**50, "idle_timeout_ms": None, "max_ahead_ms": 1000, "drain": False,
    }  # fmt: skip
    return JoinStepRules(**{**defaults, **changes})


class JoinRun:
    """A join of one partition of both topics, with its committed state in memory."""

    def __init__(self, rules: JoinStepRules, logs: Mapping[Side, Sequence[OutputRecord]] | None = None) -> None:
        self.rules = rules
        self.logs = {side: list((logs or {}).get(side, ())) for side in Side}
        self.offsets = dict.fromkeys(Side, 0)
        self.committed: dict[Side, tuple[int, str | None]] = dict.fromkeys(Side, (0, None))
        self.changelog: dict[bytes, bytes] = {}
        self.outputs: list[OutputRecord] = []
        """Committed outputs, without the changelog."""
        self.pending: list[OutputRecord] = []
        self.now = NOW
        self.processed: dict[Side, list[int]] = {side: [] for side in Side}
        """Partitions of the user's topics that are processed to their ends, if the logs merge them."""
        self.start()

    def start(self, step: JoinStep | None = None) -> None:
        """Start at the last commit, with a new step or one whose partitions were revoked."""
        self.step = step or JoinStep(self.rules)
        for side, partition in PARTITIONS.items():
            offset, checkpoint = self.committed[side]
            self.offsets[side] = offset
            self.step.assign(partition, checkpoint, self._state(side, checkpoint))

    def _state(self, side: Side, checkpoint: str | None) -> JoinState:
        blocks = held_blocks(self.changelog.items(), side.value, decode_checkpoint(checkpoint).version)
        offsets = held_offsets(blocks)
        if self.rules.merged_partitions is not None:
            held = [self.logs[side][at] for at in offsets.tolist()]
            keys, values = [each.key for each in held], [each.value for each in held]
            merged = read_timed_records(keys, values, offsets).records
            return JoinState(merged, processed=self.processed[side])
        stored = [msgspec.json.decode(self.logs[side][at].value or b"") for at in offsets.tolist()]
        records = records_of(
            [each["id"] for each in stored],
            np.array([each["time"] for each in stored], dtype=np.int64),
            offsets,
            [self.logs[side][at].value or b"" for at in offsets.tolist()],
        )
        return JoinState(records, [block for block, bitmap in blocks.items() if not bitmap])

    def append(self, side: Side, *records: OutputRecord) -> list[OutputRecord]:
        """Write records to a side and process them."""
        self.logs[side] += records
        return self.read(side, len(records))

    def read(self, side: Side, count: int) -> list[OutputRecord]:
        """Process the next records of a side."""
        start = self.offsets[side]
        records = self.logs[side][start : start + count]
        if not records:
            return []
        batch = InMemoryBatch(0, records, range(start, start + len(records)), topic=TOPICS[side])
        outputs = list(self.step.process(batch, self.now))
        self.offsets[side] += len(records)
        self.pending += outputs
        return outputs

    def flush(self, at_end: Iterable[Side] = ()) -> list[OutputRecord]:
        """Flush the step, as before a commit."""
        for side in at_end:
            self.step.end_of_partition(PARTITIONS[side], self.now)
        outputs = list(self.step.flush(self.now))
        self.pending += outputs
        return outputs

    def commit(self, at_end: Iterable[Side] = ()) -> None:
        """Commit what was processed."""
        self.flush(at_end)
        self.publish()
        self.committed = {
            side: (self.offsets[side], self.step.checkpoint(partition)) for side, partition in PARTITIONS.items()
        }

    def publish(self) -> None:
        """Make pending outputs visible: as part of a commit, or without one under at_least_once."""
        for output in self.pending:
            if output.topic != TOPIC:
                self.outputs.append(output)
            elif output.value is None:
                self.changelog.pop(output.key or b"", None)
            else:
                self.changelog[output.key or b""] = output.value
        self.pending = []

    def crash(self) -> None:
        """Lose what is not committed, and start again."""
        self.pending = []
        self.start()

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Return the values of the step's metrics by name and labels, without histograms."""
        samples = self.step.collect_metrics()
        return {(sample.name, *sample.labels): sample.value for sample in samples if isinstance(sample, Sample)}

    def texts(self, topic: str) -> list[Any]:
        """Return the committed records of a topic."""
        return [msgspec.json.decode(output.value or b"") for output in self.outputs if output.topic == topic]
