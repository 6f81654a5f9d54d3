"""A stage that writes to no topic: its builder provides the output, and no code requires a topic."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from helpers.stage_start import in_memory
from laws.model_broker import Broker, Clock
from laws.model_clients import Link
from laws.model_process import Ledger
from laws.model_store import Store, StoreOutput
from skewless import topology
from skewless.config import acls, topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.errors import BrokerError
from skewless.service import build_runtime
from skewless.stages.built_stage import BuiltStage, build
from skewless.wire.topic_partition import TopicPartition

SINK = topology.Stage(
    name="sink",
    description="writes results to a database",
    inputs=("aggregates", "late"),
    outputs=(),
    builder="none:none",
    metrics="none",
    event_time=None,
    section="aggregator",
)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> PipelineSettings:
    monkeypatch.setattr(topology, "STAGES", (*topology.STAGES, SINK))
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}})


def test_build_runtime_of_a_stage_with_an_output_of_its_own_has_it_and_no_evidence(settings: PipelineSettings) -> None:
    members = []

    def output(member: str) -> StoreOutput:
        members.append(member)
        return StoreOutput(Store(), Link(Broker(Clock(), 1), member))

    built = BuiltStage(Ledger(drain=False), output=output)
    runtime = build_runtime(StageStart(SINK, settings, {"p.aggregates": 4, "p.late": 8}), built, 3)
    assert isinstance(runtime.output, StoreOutput)
    assert members == ["p-sink-3"]
    assert runtime.prior_output is None
    assert [(source.topic, source.partitions) for source in runtime.inputs] == [("p.aggregates", 4), ("p.late", 8)]


def test_acls_of_a_stage_without_outputs_read_all_inputs(settings: PipelineSettings) -> None:
    bindings = list(acls.acls_of_stage(SINK, settings))
    assert {binding.name: binding.operations for binding in bindings if binding.resource == "topic"} == {
        "p.aggregates": ("Read",),
        "p.late": ("Read",),
    }


def test_check_stage_of_a_stage_with_two_inputs_checks_both(
    settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skewless.config.topic_plan.Admin", MagicMock())
    topic_plan.check_stage(settings, SINK, {"p.aggregates": 4, "p.late": 8})
    for missing in ("p.aggregates", "p.late"):
        with pytest.raises(BrokerError, match=f"topic {missing} does not exist"):
            topic_plan.check_stage(settings, SINK, dict.fromkeys({"p.aggregates", "p.late"} - {missing}, 4))


def test_label_of_a_partition_of_several_topics_names_the_topic(settings: PipelineSettings) -> None:
    steps = [build(in_memory(stage, settings, 1)).step for stage in ("router", "splitter")]
    assert [step.label_of(TopicPartition("any", 7)) for step in steps] == ["7", "any/7"]
    assert steps[1].label_of(TopicPartition(settings.topic("source"), 7)) == "7"
