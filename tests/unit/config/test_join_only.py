"""A pipeline without `source` only joins: it has the stage and the topics of the join, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

import skewless as sk
from skewless import topology
from skewless.asyncapi.document import document
from skewless.cli.main import main
from skewless.config import acls, loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import desired_topics
from skewless.errors import ConfigurationError
from skewless.lab.local.supervisor import Supervisor

JOIN: dict[str, Any] = {side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")} | {"apart_s": 1}
SETTINGS = PipelineSettings.model_validate({"name": "p", "join": JOIN})
OWN = ["joined", "unmatched-left", "unmatched-right", "join-late", "join-changelog", "dead-letters"]


def test_settings_without_source_and_join_are_refused_with_both_names() -> None:
    with pytest.raises(ValidationError, match=r"source: missing; name the topic to aggregate, or set join"):
        PipelineSettings.model_validate({"name": "p"})


def test_settings_with_join_and_sink_but_without_source_are_refused_with_the_name_of_sink() -> None:
    with pytest.raises(ValidationError, match=r"sink: stores results of an aggregation, and without source there is"):
        PipelineSettings.model_validate({"name": "p", "join": JOIN, "sink": {"url": "sqlite:///results.db"}})


def test_join_only_pipeline_has_the_join_and_its_topics(tmp_path: Path) -> None:
    assert [stage.name for stage in topology.needed_stages(SETTINGS)] == ["join"]
    assert list(Supervisor(None, SETTINGS, drain=False, logs=tmp_path).processes) == ["join-0"]
    specs = desired_topics(SETTINGS, 7, join_partitions=7)
    assert [(spec.name, spec.partitions) for spec in specs] == [*((f"p.{name}", 7) for name in OWN), ("p.replays", 1)]


def test_join_only_pipeline_acls_name_both_topics_and_no_source() -> None:
    rights = acls.acls_for(SETTINGS)
    assert list(rights) == ["join", acls.TOPICS, acls.STATUS, acls.READERS, acls.DEAD_LETTERS]
    assert {right.name for right in rights[acls.TOPICS] if not right.prefixed} == {"left", "right"}


def test_join_only_pipeline_asyncapi_document_has_the_channels_of_the_join() -> None:
    channels = document(SETTINGS)["channels"]
    assert list(channels) == ["left", "right", *(name for name in OWN if topology.topic(name).public)]


def test_join_only_pipeline_is_written_and_read_again_by_the_loader(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(loader.dump(SETTINGS))
    assert loader.load(file, {}).model_dump() == SETTINGS.model_dump()


@pytest.mark.parametrize(
    "command",
    [
        ["smoke-test"],
        ["produce", "zipf"],
        ["plan"],
        ["results"],
    ],
)
def test_command_for_results_of_a_join_only_pipeline_names_the_missing_source(
    command: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(loader.dump(SETTINGS))
    done = CliRunner().invoke(main, [*command, "-f", str(file)])
    assert done.exit_code == 2, done.output
    assert "source: missing; pipeline p only joins" in done.stderr


@pytest.mark.parametrize(
    "sections",
    [
        {"source": {"topic": "p.joined"}, "join": JOIN},
        {"source": {"topic": "p.enriched"}, "enrich": {"topic": "x", "tables": [{"topic": "y", "fields": {"a": "b"}}]}},
    ],
)
def test_smoke_test_of_a_source_that_the_pipeline_writes_is_refused(sections: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(loader.dump(PipelineSettings.model_validate({"name": "p", **sections})))
    done = CliRunner().invoke(main, ["smoke-test", "-f", str(file)])
    assert done.exit_code == 2, done.output
    assert f"source.topic: the pipeline writes {sections['source']['topic']} itself" in done.stderr


def test_python_api_for_results_of_a_join_only_pipeline_names_the_missing_source(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(loader.dump(SETTINGS))
    pipeline = sk.Pipeline.load(file)
    spark: Any = None
    with pytest.raises(ConfigurationError, match="source: missing; pipeline p only joins"):
        pipeline.follow()
    with pytest.raises(ConfigurationError, match="source: missing; pipeline p only joins"):
        pipeline.batch(spark, "lines.jsonl")


def test_source_settings_of_a_join_only_pipeline_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="source: missing; pipeline p only joins"):
        SETTINGS.topic("source")
