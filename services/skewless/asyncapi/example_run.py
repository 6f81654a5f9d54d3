"""Runs all steps in memory on a few source records, to create the example records of the document.

The result is deterministic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.engine.step import InputStep
from skewless.wire.record import OutputRecord
from skewless.wire.replays import Replay, replay_record
from skewless.wire.topic_partition import TopicPartition

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
NOW_MS = START_MS + 120_000
SOURCE_VALUES = (
    b'{"key": "en", "value": 42, "time": %d}' % (START_MS + 1_000),
    b'{"key": "de", "value": 7, "time": %d}' % (START_MS + 2_000),
    b'{"key": "en", "value": 3, "time": %d}' % (START_MS + 75_000),
    b'{"key": "fr", "value": 5, "time": %d}' % (START_MS + 3_000),
    b'{"key": "en", "value": 1',
    *[b'{"key": "en", "value": 1, "time": %d}' % (START_MS + 121_000)] * 200,
)
"""Records of three windows. One is late, one is not valid JSON, and the last tick has enough tuples for a hot key."""
JOIN_RECORDS = {
    "left": (("1a", 1_000, {"item": "mug"}), ("1b", 4_000, {"item": "cup"}), ("1c", 3_000, {"item": "pot"})),
    "right": (("1a", 1_250, {}), ("1d", 2_000, {})),
}
"""Records of both sides of a join. The last left one is late."""

KINDS = (("batch", "none"), ("record", "none"), ("batch", "buffer"))
"""Encodings of worker-input and modes of local aggregation."""

Samples = Mapping[str, Sequence[OutputRecord]]
"""Records by topic."""


def samples(settings: PipelineSettings, *others: PipelineSettings) -> Samples:
    """Run a small pipeline with the name and aggregates of `settings`, once for each of KINDS.

    The topics of tuples have the records of the `others`, too.
    """
    runs = [_run_pipeline(_small_pipeline(each, *kind)) for each in (settings, *others) for kind in KINDS]
    of_all = {topic: [record for run in runs for record in run[topic]] for topic in ("tuples", "worker-input")}
    replayed = replay_record("replays", "source", "source/0/4", Replay("malformed JSON", 1))
    return runs[0] | of_all | {"replays": [replayed]}


def _small_pipeline(settings: PipelineSettings, encoding: str, local_mode: str) -> PipelineSettings:
    of_side = {name: {"field": name} for name in ("id", "time")}
    join = {**{side: {"topic": side, **of_side} for side in JOIN_RECORDS}, "apart_s": 1}
    if settings.join is not None:
        join["repartition"] = settings.join.repartition
    fields = {name: {"field": name} for name in ("key", "time")}
    return PipelineSettings.model_validate(
        {
            "name": settings.name,
            "source": None if settings.source is None else {"topic": "source"},
            "join": None if settings.join is None else join,
            "splitter": {"format": "json", **fields, **_values(settings), "local": {"mode": local_mode}},
            "router": {"workers": 2},
            "worker_input": {"max_workers": 2, "encoding": encoding},
            "topics": {"aggregator_partitions": 1},
            "aggregator": {"aggregates": settings.aggregator.aggregates, "numbers": settings.aggregator.numbers},
        }
    )


def _values(settings: PipelineSettings) -> dict[str, Any]:
    """Return the settings of the values of a pipeline for the example records, which all have the field `value`."""
    values = {
        value.name: {"field": "value", "kind": value.kind, "missing": "skip" if value.optional else "invalid"}
        | ({"decimals": value.decimals} if value.kind == "number" else {})
        for value in settings.values
    }
    return {"value": values["value"]} if settings.splitter.values is None else {"values": values}


def _run_pipeline(settings: PipelineSettings) -> dict[str, list[OutputRecord]]:
    source = [
        OutputRecord("source", value, key=b"%d" % index, timestamp=START_MS)
        for index, value in enumerate(SOURCE_VALUES)
    ]
    topics: dict[str, list[OutputRecord]] = {row.name: [] for row in topology.TOPICS} | {"source": source}
    if settings.join is not None:
        topics |= {side: [_join_record(*record) for record in records] for side, records in JOIN_RECORDS.items()}
    # Imported here, because the steps need packages that a command for topics does not need otherwise.
    from skewless import service

    for stage in topology.needed_stages(settings):
        if not stage.outputs:
            continue
        step = service.build(stage.name, settings, drain=True, source_partitions=1).step
        for record in _run_step(step, {settings.topic(name): topics[name] for name in stage.inputs_of(settings)}):
            topics[record.topic].append(record)
    return topics


def _join_record(record_id: str, after_ms: int, fields: Mapping[str, str]) -> OutputRecord:
    value = msgspec.json.encode({"id": record_id, "time": START_MS + after_ms, **fields})
    return OutputRecord("join", value, key=record_id.encode(), timestamp=START_MS + after_ms)


def _run_step(step: InputStep[Any], inputs: Mapping[str, Sequence[OutputRecord]]) -> list[OutputRecord]:
    by_partition: defaultdict[TopicPartition, list[OutputRecord]] = defaultdict(list)
    for topic, records in inputs.items():
        for record in records:
            by_partition[TopicPartition(topic, record.partition or 0)].append(record)
    for partition in by_partition:
        step.assign(step.key_of(partition), None, ())
    outputs: list[OutputRecord] = []
    for partition, records in by_partition.items():
        outputs += step.process(MessageBatch.of_outputs(partition, records, NOW_MS), NOW_MS)
        step.end_of_partition(step.key_of(partition), NOW_MS)
    return [*outputs, *step.flush(NOW_MS)]
