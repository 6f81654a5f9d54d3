"""The chart's generated files equal the output of their generators. These tests do not need Helm."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import yaml

from dashboards.generate import dashboard
from dashboards.generate.files import files as dashboards
from dashboards.generate.own_metrics import own_metrics
from helm.generate import files, stages
from helpers.docs_blocks import ROOT, blocks
from helpers.source_files import assert_none
from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.settings import KafkaSettings
from skewless.monitoring.metrics import METRICS
from skewless.service import STOP_S
from skewless.version import VERSION

CHART = ROOT / "helm" / "skewless"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
IN_DOCS = [block for block in blocks(PAGE) if block.language == "text" and not block.name]
EXAMPLES = sorted((CHART / "ci").glob("*.yaml"))
CONFIG_MAP_BYTES = 1024 * 1024
"""Limit of Kubernetes for the data of a ConfigMap."""
SHARE = 0.6
"""Share of this limit that a generated ConfigMap may have, so that stages can be added."""


def test_chart_files_generated_again_are_unchanged() -> None:
    made = files.files()
    assert_none(f"{name}: run `make chart`" for name, text in made.items() if (CHART / name).read_text() != text)


def test_chart_files_folder_holds_generated_files_only() -> None:
    there = {path.relative_to(CHART).as_posix() for path in (CHART / "files").rglob("*") if path.is_file()}
    assert there == {name for name in files.files() if name.startswith("files/")}


def test_chart_dashboards_and_rules_equal_their_sources() -> None:
    for name, content in dashboards().items():
        if name.startswith("dashboards/") and name != "dashboards/alerts.yaml":  # the chart replaces its thresholds
            read = json.loads if name.endswith(".json") else yaml.safe_load
            assert read((CHART / "files" / name).read_text()) == read(content)


def test_chart_dashboard_with_three_more_stages_is_below_the_limit_of_a_configmap() -> None:
    largest = max(topology.STAGES, key=lambda stage: sum(stage.name in metric.stages for metric in METRICS))
    more = [replace(largest, name=f"{largest.name}-{number}") for number in range(3)]
    metrics = [replace(each, stages=(*each.stages, *(stage.name for stage in more))) for each in METRICS]
    for made in own_metrics((*topology.STAGES, *more), metrics):
        content = files.minified(json.loads(json.dumps(dashboard.document(made))))
        assert len(content) >= len((CHART / "files" / "dashboards" / f"{made.uid}.json").read_text())
        assert len(content) < SHARE * CONFIG_MAP_BYTES


def test_chart_topology_names_the_stages_of_each_dashboard() -> None:
    shown = yaml.safe_load((CHART / "files" / "topology.yaml").read_text())["dashboards"]
    assert shown.keys() == {path.stem for path in (CHART / "files" / "dashboards").glob("*.json")}
    measured = {name for metric in METRICS for name in metric.stages}
    assert {stage for stages in shown.values() for stage in stages} == measured


def test_chart_versions_equal_the_package_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION


def test_chart_is_described_for_artifact_hub() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["maintainers"]
    assert chart["icon"].startswith("data:image/svg+xml;base64,")
    svg = base64.b64decode(chart["icon"].partition(",")[2])
    assert ET.fromstring(svg).tag.endswith("svg")  # noqa: S314 - of this project
    own = {name for name in chart["annotations"] if name.startswith("artifacthub.io/")}
    assert own == {f"artifacthub.io/{name}" for name in ("category", "license", "operator", "prerelease")}
    assert all(isinstance(value, str) for value in chart["annotations"].values())


def test_chart_termination_grace_period_exceeds_the_longest_clean_stop() -> None:
    assert VALUES["stageDefaults"]["terminationGracePeriodSeconds"] > STOP_S


def test_chart_secrets_are_detected_for_each_stage_and_section_of_settings() -> None:
    of_kafka = [("sasl", "password"), ("sasl", "oauthbearer", "client_secret"), ("tls", "key_password")]
    assert list(stages.secrets(KafkaSettings)) == of_kafka
    of_sections = {"sink": [("sink", "password")], "mirror": [("mirror", "kafka", *path) for path in of_kafka]}
    assert {stage.name: stages.credentials(stage.section) for stage in topology.STAGES} == {
        stage.name: of_sections.get(stage.section, []) for stage in topology.STAGES
    }


def test_values_schema_defaults_and_every_example_are_valid() -> None:
    validator = jsonschema.Draft7Validator(SCHEMA)
    validator.check_schema(SCHEMA)
    for document in (VALUES, *(yaml.safe_load(path.read_text()) for path in EXAMPLES)):
        assert [error.message for error in validator.iter_errors(document)] == []


def test_values_schema_objects_are_closed_unless_shared_or_free() -> None:
    open_objects = set(_open("", SCHEMA))
    managed_fields = "/$defs/apis.meta.v1.FieldsV1"  # Kubernetes itself allows any field here
    added_format = "/$defs/AddedFormatSettings"  # only its package knows its settings
    named_values = "/$defs/SplitterSettings/properties/values/anyOf/0"  # users choose the names
    added_fields = "/$defs/TableSettings/properties/fields"  # and those of these headers
    arguments = "/$defs/AggregatorSettings/properties/aggregates/items/anyOf/1"  # packages add aggregates
    free = {managed_fields, added_format, named_values, added_fields, arguments}
    assert open_objects == {"/properties/extraObjects/items", "/properties/global", *free}


def _open(path: str, part: Any) -> list[str]:
    """Return all objects that accept any field name."""
    if isinstance(part, list):
        return [found for number, each in enumerate(part) for found in _open(f"{path}/{number}", each)]
    if not isinstance(part, dict):
        return []
    is_object = part.get("type") == "object" or (isinstance(part.get("type"), list) and "object" in part["type"])
    own = [path] if is_object and part.get("additionalProperties", True) is True else []
    return own + [found for name, each in part.items() for found in _open(f"{path}/{name}", each)]


def test_values_schema_pipeline_has_all_settings_except_those_of_the_chart() -> None:
    named = set(SCHEMA["properties"]["pipeline"]["properties"])
    assert PipelineSettings.model_fields.keys() - named == {"source", "kafka", "registry", "replicas"}
    assert "port" not in SCHEMA["$defs"]["MetricsSettings"]["properties"]


def test_chart_readme_every_value_has_a_description() -> None:
    rows = re.findall(r"^\| ([\w.-]+) \|.*\| (.*) \|$", (CHART / "README.md").read_text(), re.MULTILINE)
    assert [name for name, meaning in rows if not meaning.strip()] == []
    assert [name for name, meaning in rows if "Required" in meaning] == [
        "source.topic",
        "kafka.bootstrapServers",
        "kafka.sasl.oauthbearer.tokenEndpointUrl",
    ]
    assert len(rows) > 150


def test_chart_documentation_values_are_valid() -> None:
    validator = jsonschema.Draft7Validator(SCHEMA)
    assert_none(
        f"{block}: {error.message}" for block in IN_DOCS for error in validator.iter_errors(yaml.safe_load(block.text))
    )


def test_acls_of_the_aggregator_allow_candidates_only_where_keys_are_ranked() -> None:
    found = [entry for entry in stages.document()["acls"]["aggregator"] if entry["suffix"] == ".top-candidates"]
    (entry,) = found
    assert entry["operations"] == ["Write"]
    assert [[part["name"] for part in need["path"]] for need in entry["needs"]] == [["aggregator", "top"]]
