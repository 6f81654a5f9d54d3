"""Settings that may change at any time: a stage of new settings reads the records that stages of the old ones wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.config.state_layout import state_schema_of
from skewless.engine.message_batch import MessageBatch
from skewless.in_memory import InMemoryPipeline
from skewless.stages.built_stage import build
from skewless.wire.partials import read_partials
from skewless.wire.record import OutputRecord
from skewless.wire.state_schema import incompatibilities
from skewless.wire.topic_partition import TopicPartition

NOW = 1_767_225_600_000
TUPLES = 20
TWO = {"a": {"field": "a"}, "b": {"field": "b"}}
SUMS = ["count", {"sum": "a"}, {"sum": "b"}]
RECORDS = [
    OutputRecord("e", json.dumps({"k": "x", "a": n, "b": 2 * n, "t": NOW + n}).encode(), timestamp=NOW)
    for n in range(TUPLES - 1)
]


def settings_of(aggregates: list[Any], encoding: str = "batch", **splitter: Any) -> PipelineSettings:
    document = {
        "name": "p",
        "source": {"topic": "e"},
        "splitter": {"format": "json", "key": {"field": "k"}, "time": {"field": "t"}} | splitter,
        "aggregator": {"aggregates": aggregates, "window_s": 60},
        "router": {"workers": 1},
        "worker_input": {"max_workers": 1, "encoding": encoding},
    }
    return PipelineSettings.model_validate(document)


def written(settings: PipelineSettings, stage: str, records: Iterable[OutputRecord]) -> dict[str, list[OutputRecord]]:
    """Return what a new process of a stage writes for records of its input, by topic."""
    start = StageStart(topology.stage(stage), settings, InMemoryPipeline(settings)._partitions)
    step = build(start).step
    ((topic, _),) = start.input_topics()
    step.observe_topics({topic: start.partitions[topic]})
    partition: Any = TopicPartition(topic, 0) if stage == "splitter" else 0
    step.assign(partition, None, ())
    batch = MessageBatch.of_outputs(TopicPartition(topic, 0), list(records), NOW, first_offset=0)
    outputs: dict[str, list[OutputRecord]] = {}
    for output in [*step.process(batch, NOW), *step.flush(NOW)]:
        outputs.setdefault(output.topic, []).append(output)
    return outputs


VALUE, OPTIONAL = {"field": "a"}, {"field": "a", "missing": "skip"}
CHANGES: dict[str, tuple[tuple[list[Any], Any], tuple[list[Any], Any]]] = {
    "order of values": ((SUMS, {"values": TWO}), (SUMS, {"values": dict(reversed(TWO.items()))})),
    "order of aggregates": (
        (["min", "max"], {"value": VALUE, "local": {"mode": "buffer"}}),
        (["max", "min"], {"value": VALUE, "local": {"mode": "buffer"}}),
    ),
    "to skip": ((["count"], {"value": VALUE}), (["count"], {"value": OPTIONAL})),
    "from skip": ((["count"], {"value": OPTIONAL}), (["count"], {"value": VALUE})),
    "named from skip": ((["count"], {"values": {"a": OPTIONAL}}), (["count"], {"values": {"a": VALUE}})),
}
"""Settings before and after each change: aggregates, and section `splitter`."""


@pytest.mark.parametrize(
    ("change", "encoding"),
    [(name, "batch") for name in CHANGES] + [(name, "record") for name in CHANGES if name != "order of aggregates"],
)
def test_stages_after_a_change_of_settings_that_is_accepted_read_all_records_of_the_earlier_ones(
    change: str, encoding: str
) -> None:
    before, after = (settings_of(aggregates, encoding, **splitter) for aggregates, splitter in CHANGES[change])
    assert [*incompatibilities(state_schema_of(before), state_schema_of(after))] == []
    without = [OutputRecord("e", json.dumps({"k": "x", "b": 1, "t": NOW + TUPLES}).encode(), timestamp=NOW)]
    split = written(before, "splitter", RECORDS + without)
    expected = TUPLES - len(split.get("dead-letters", ()))
    routed = written(before, "router", split["tuples"])
    for found in (routed, written(after, "router", split["tuples"])):
        assert "dead-letters" not in found
        merged = written(after, "worker", found["worker-input"])
        assert "dead-letters" not in merged
        assert [row["count"] for row in counts(after, merged["partials"])] == [expected]


def counts(settings: PipelineSettings, partials: Iterable[OutputRecord]) -> list[dict[str, Any]]:
    (value,) = [record.value for record in partials if record.value]
    rows: list[dict[str, Any]] = read_partials(value, ["key"], settings.wire_columns).to_pylist()
    return rows
