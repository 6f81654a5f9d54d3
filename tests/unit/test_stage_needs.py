"""A stage with a condition exists where its condition holds: everything that lists stages agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dashboards.generate.own_metrics import own_metrics
from docs.generate import reference_pages
from helm.generate import stages as chart
from helpers import extra_stages
from helpers.source_files import assert_none
from helpers.stage_start import in_memory
from skewless import service, topology
from skewless.asyncapi.document import document
from skewless.config import acls
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import desired_topics
from skewless.errors import ConfigurationError
from skewless.in_memory import InMemoryPipeline
from skewless.lab.local.supervisor import Supervisor
from skewless.monitoring import metrics
from skewless.stages.built_stage import build
from skewless.topology import Condition
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

STAGES = [stage.name for stage in topology.STAGES]
NEEDED = [stage.name for stage in topology.STAGES if stage.option is None]
"""Stages of a pipeline that only aggregates."""
TOPICS = [
    topic.name
    for topic in topology.TOPICS
    if topology.AGGREGATION in topology.topic_needs(topic.name) or topic.command is not None
]
CASES = [
    pytest.param(None, [], id="not set"),
    pytest.param({"mode": "late"}, ["reviewer"], id="set to another value"),
    pytest.param({"mode": "results"}, ["reviewer", "archiver"], id="set"),
    pytest.param({}, ["reviewer", "archiver"], id="set by default"),
]
"""Section of the settings, and the additional stages of a pipeline with it."""
Section = dict[str, str] | None


@pytest.fixture(autouse=True)
def extended(monkeypatch: pytest.MonkeyPatch) -> type[PipelineSettings]:
    found = extra_stages.add(monkeypatch)
    monkeypatch.setattr(chart, "PipelineSettings", found)
    return found


def settings_with(extended: type[PipelineSettings], archive: Section, **parts: Any) -> PipelineSettings:
    return extended.model_validate({"name": "p", "source": {"topic": "mine"}, "archive": archive, **parts})


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Condition("sink"), "`sink` is set"),
        (Condition("sink.mode", ("replace",)), "`sink.mode` is `replace`"),
        (Condition("sink.mode", ("replace", "merge")), "`sink.mode` is `replace` or `merge`"),
    ],
)
def test_condition_as_a_text_names_path_and_values(condition: Condition, text: str) -> None:
    assert str(condition) == text


def test_condition_with_an_unknown_path_is_a_bug(extended: type[PipelineSettings]) -> None:
    with pytest.raises(AttributeError, match="moode"):
        Condition("archive.moode").holds(settings_with(extended, {}))


def test_needs_of_each_stage_is_a_path_of_the_settings() -> None:
    wanted = {row.name: [row.needs.path.count(".") + 1] if row.needs else [] for row in topology.STAGES}
    needs = {row.name: chart._needs([row.needs] if row.needs else []).get("needs", []) for row in topology.STAGES}
    parts = {name: [len(entry["path"]) for entry in entries] for name, entries in needs.items()}
    assert_none(f"{name}: {parts[name]} parts of a path" for name in wanted if parts[name] != wanted[name])


def test_topology_each_topic_has_either_a_stage_or_a_command_that_writes_it() -> None:
    written = {name for stage in topology.STAGES for name in stage.outputs}
    assert_none(row.name for row in topology.TOPICS if (row.name in written) == (row.command is not None))


@pytest.mark.parametrize(("archive", "added"), CASES)
def test_acls_contain_the_stages_that_are_needed(
    extended: type[PipelineSettings], archive: Section, added: list[str]
) -> None:
    bindings = acls.acls_for(settings_with(extended, archive))
    assert list(bindings) == [*NEEDED, *added, acls.TOPICS, acls.STATUS, acls.READERS, acls.DEAD_LETTERS]
    assert ("p.reviewed" in {binding.name for binding in bindings[acls.READERS]}) == bool(added)
    if "archiver" in added:
        topics = [binding for binding in bindings["archiver"] if binding.resource == "topic"]
        assert [(binding.name, binding.operations) for binding in topics] == [
            ("p.aggregates", ("Read",)),
            ("p.reviewed", ("Read",)),
        ]


@pytest.mark.parametrize(("archive", "added"), CASES)
def test_topic_plan_contains_the_topics_of_needed_stages(
    extended: type[PipelineSettings], archive: Section, added: list[str]
) -> None:
    plan = desired_topics(settings_with(extended, archive), source_partitions=3)
    assert [spec.name for spec in plan] == [f"p.{name}" for name in (*TOPICS, *(["reviewed"] if added else []))]


@pytest.mark.parametrize(("archive", "added"), CASES)
def test_supervisor_starts_the_stages_that_are_needed(
    extended: type[PipelineSettings], archive: Section, added: list[str], tmp_path: Path
) -> None:
    settings = settings_with(extended, archive, replicas={"reviewer": 2})
    supervisor = Supervisor(None, settings, drain=False, logs=tmp_path)
    counts = {"reviewer": 2}
    assert list(supervisor.processes) == [
        f"{stage}-{number}" for stage in (*NEEDED, *added) for number in range(counts.get(stage, 1))
    ]


def test_replica_settings_have_a_setting_for_each_stage(extended: type[PipelineSettings]) -> None:
    assert list(settings_with(extended, None).replicas.model_dump()) == [*STAGES, "reviewer", "archiver"]
    assert list(PipelineSettings.model_fields["replicas"].default.model_dump()) == STAGES
    with pytest.raises(ValidationError, match=r"replicas\.observer"):
        settings_with(extended, None, replicas={"observer": 2})


@pytest.mark.parametrize(("archive", "added"), CASES)
def test_asyncapi_document_of_a_pipeline_has_its_stages_only(
    extended: type[PipelineSettings], archive: Section, added: list[str]
) -> None:
    found = document(settings_with(extended, archive))
    public = [name for name in TOPICS if topology.topic(name).public]
    assert list(found["channels"]) == ["source", *public, *(["reviewed"] if added else [])]


def test_in_memory_pipeline_runs_a_stage_with_a_topic(extended: type[PipelineSettings]) -> None:
    value = b'{"key": "a", "time": %d}'
    splitter = {"format": "json", "key": {"field": "key"}, "time": {"field": "time"}}
    settings = settings_with(extended, {}, splitter=splitter, event_time={"max_ahead_s": 1e9})
    late = [OutputRecord("mine", value % time) for time in (1_000_000, 0)]
    written = InMemoryPipeline(settings).process(late, now=0, end=True)
    assert [record.value for record in written["reviewed"]] == [record.value for record in written["late"]] != []


def test_reference_pages_name_all_inputs_and_the_condition_of_a_stage(extended: type[PipelineSettings]) -> None:
    lines = list(reference_pages._topics(document(settings_with(extended, {}))))
    (row,) = [line for line in lines if line.startswith("| archiver |")]
    assert (
        row == "| archiver | `aggregates`, `reviewed` |  | stores results, where `archive.mode` is `all` or `results` |"
    )
    (topic,) = [line for line in lines if line.startswith("| `reviewed`, where")]
    assert topic.startswith("| `reviewed`, where `archive` is set | yes | as the source |")


def test_metrics_of_a_stage_that_is_not_always_needed_are_listed_with_it() -> None:
    (found,) = [each for each in metrics._of_stages() if each.name == "skewless_archive_rows_total"]
    assert found.stages == ("reviewer", "archiver")


def test_dashboard_of_a_stage_that_is_not_always_needed_is_its_own_and_names_the_condition() -> None:
    made = {each.uid: each for each in own_metrics(topology.STAGES, list(metrics._of_stages()))}
    assert made["skewless-archive"].stages == ["reviewer", "archiver"]
    rows = [row.title for row in made["skewless-archive"].rows]
    assert rows[1] == "archiver: stores results (where `archive.mode` is `all` or `results`)"
    assert {"reviewer", "archiver"}.isdisjoint(made["skewless-aggregation"].stages)


@pytest.mark.parametrize(("archive", "added"), CASES)
def test_run_stages_without_its_condition_is_refused(
    extended: type[PipelineSettings], archive: Section, added: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_with(extended, archive)
    monkeypatch.setattr(service, "StageMonitor", lambda *_, **__: pytest.fail("starts"))
    if "archiver" in added:
        with pytest.raises(pytest.fail.Exception, match="starts"):
            service.run_stages(["archiver"], settings)
    else:
        with pytest.raises(ConfigurationError, match=r"where `archive\.mode` is `all` or `results`"):
            service.run_stages(["archiver"], settings)


def test_build_runtime_of_a_stage_reading_public_topics_has_their_origin(extended: type[PipelineSettings]) -> None:
    settings = settings_with(extended, {})
    start = in_memory("archiver", settings, 1)
    built = build(start)
    runtime = service.build_runtime(start, built, 0)
    assert [(source.topic, source.kind) for source in runtime.inputs] == [
        ("p.aggregates", "public"),
        ("p.reviewed", "public"),
    ]
    assert built.step.key_of(TopicPartition("p.reviewed", 1)) == ("p.reviewed", 1)


def test_only_input_of_a_stage_with_several_inputs_is_refused() -> None:
    assert topology.stage("worker").input == "worker-input"
    with pytest.raises(ValueError, match="too many values"):
        _ = topology.stage("archiver").input


def test_chart_topology_has_the_conditions_with_defaults_and_all_inputs() -> None:
    found = chart.document()
    rows = {row["name"]: row for row in found["stages"]}
    path = [{"name": "archive", "default": None}, {"name": "mode", "default": "all"}]
    assert rows["archiver"]["needs"] == [{"path": path, "values": ["all", "results"]}]
    assert rows["archiver"]["inputs"] == ["aggregates", "reviewed"]
    assert rows["archiver"]["partitions"] == ["aggregator", "tuples"]
    assert rows["archiver"]["credentials"] == [{"env": "SKEWLESS__ARCHIVE__PASSWORD", "key": "password"}]
    assert rows["observer"]["needs"] == [{"path": [{"name": "source", "default": None}], "values": []}]
    (topic,) = [row for row in found["topics"] if row["name"] == "reviewed"]
    assert topic["needs"] == [{"path": path[:1], "values": []}]
    assert found["acls"].keys() >= {"reviewer", "archiver"}
