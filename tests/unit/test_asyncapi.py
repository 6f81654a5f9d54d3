"""The AsyncAPI document is valid, complete, consistent in itself, and its examples are what it says."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from skewless import cli, topology
from skewless.asyncapi.document import as_yaml, document
from skewless.asyncapi.messages import BY_RECORD, Message, find, messages_of
from skewless.asyncapi.samples import samples
from skewless.records import Output
from skewless.settings import PipelineSettings
from skewless.watch.tracing import PARENT
from support_asyncapi import Records, official_schema, problems
from support_kafka import Record

OWN = PipelineSettings.model_validate(
    {
        "name": "words",
        "source": {"topic": "events"},
        "kafka": {
            "bootstrap_servers": "one:9093, two:9093",
            "security_protocol": "SASL_SSL",
            "sasl": {"username": "me", "password": "secret"},
        },
        "worker_input": {"max_workers": 12},
        "router": {"workers": 3},
        "topics": {"aggregator_partitions": 6, "replication_factor": 3},
        "aggregator": {"aggregates": ["count", "mean"]},
    }
)
ANY_DOCUMENT = document()
OWN_DOCUMENT = document(OWN, 5)
BOTH = pytest.mark.parametrize("made", [ANY_DOCUMENT, OWN_DOCUMENT], ids=["any", "own"])


def parts(made: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(made, dict):
        yield made
    for part in made.values() if isinstance(made, dict) else made if isinstance(made, list) else ():
        yield from parts(part)


def follow(made: dict[str, Any], reference: str) -> Any:
    for step in reference.removeprefix("#/").split("/"):
        made = made[step]
    return made


@pytest.fixture(scope="module")
def official() -> dict[str, Any]:
    return official_schema()


@BOTH
def test_the_document_is_valid_by_the_official_schema(made: dict[str, Any], official: dict[str, Any]) -> None:
    assert problems(made, official) == []


@pytest.mark.parametrize("wrong", ["action", "address", "binding", "key", "message"])
def test_the_official_schema_finds_what_is_wrong(wrong: str, official: dict[str, Any]) -> None:
    made = copy.deepcopy(ANY_DOCUMENT)
    channel, message = made["channels"]["late"], made["components"]["messages"]["late"]
    match wrong:
        case "action":
            made["operations"]["splitter-writes-late"]["action"] = "publish"
        case "address":
            channel["address"] = 1
        case "binding":
            channel["bindings"]["kafka"]["partitions"] = 0
        case "key":
            message["bindings"]["kafka"]["key"] = {"type": "letters"}
        case "message":
            message["body"] = message.pop("payload")
    assert problems(made, official) != []


@BOTH
def test_every_reference_leads_somewhere(made: dict[str, Any]) -> None:
    references = [part["$ref"] for part in parts(made) if "$ref" in part]
    assert len(references) > 50
    assert all(isinstance(follow(made, reference), dict) for reference in references)


@BOTH
def test_operations_use_messages_of_their_channels(made: dict[str, Any]) -> None:
    for row in made["operations"].values():
        channel = row["channel"]["$ref"]
        assert row["messages"]
        assert all(each["$ref"].startswith(f"{channel}/messages/") for each in row["messages"])


def test_every_topic_and_every_way_of_the_topology_is_described() -> None:
    assert list(ANY_DOCUMENT["channels"]) == ["source", *(row.name for row in topology.TOPICS)]
    for stage in topology.STAGES:
        ways = {f"{stage.name}-reads-{stage.source}", *(f"{stage.name}-writes-{sink}" for sink in stage.sinks)}
        assert ways <= ANY_DOCUMENT["operations"].keys()


def test_no_kind_of_record_is_described_that_no_topic_has() -> None:
    assert BY_RECORD.keys() == {row.record for row in topology.TOPICS}


@BOTH
def test_all_schemas_are_draft_07_and_every_field_has_a_meaning(made: dict[str, Any]) -> None:
    for schema in made["components"]["schemas"].values():
        jsonschema.Draft7Validator.check_schema(schema)
        assert all("description" in field for field in schema["properties"].values())
    for message in made["components"]["messages"].values():
        jsonschema.Draft7Validator.check_schema(message["payload"])
        jsonschema.Draft7Validator.check_schema(message["bindings"]["kafka"]["key"])


def test_every_public_kind_of_record_has_an_example() -> None:
    for row in topology.TOPICS:
        for kind in messages_of(row.name):
            assert "examples" in ANY_DOCUMENT["components"]["messages"][kind.name] or not row.public


def test_what_the_steps_write_is_what_the_document_says() -> None:
    held = Records(OWN_DOCUMENT)
    written = [(topic, record_of(output)) for topic, outputs in samples(OWN).items() for output in outputs]
    assert [problem for topic, record in written for problem in held.problems(topic, record)] == []
    kinds = {kind.name for topic, record in written if (kind := kind_of(topic, record))}
    assert kinds >= {kind.name for row in topology.TOPICS for kind in messages_of(row.name)} - {"tombstone"}


def record_of(output: Output) -> Record:
    at = (output.partition or 0, 0, output.timestamp or 0)
    return Record(*at, output.key, output.value, dict(output.headers))


def kind_of(topic: str, record: Record) -> Message | None:
    return find(topic, record.key, record.value, record.headers)


def test_a_record_that_is_not_as_described_is_found() -> None:
    held = Records(ANY_DOCUMENT)
    late = ANY_DOCUMENT["components"]["messages"]["late"]["examples"][0]["payload"]
    good = Record(0, 0, 0, b"fr", json.dumps(late).encode(), {})
    wrong = [
        Record(0, 0, 0, None, good.value, {}),
        Record(0, 0, 0, b"fr", b'{"key": "fr"}', {}),
        Record(0, 0, 0, b"fr", good.value, {"surprise": b""}),
    ]
    assert [bool(list(held.problems("late", record))) for record in wrong] == [True] * 3


def test_a_record_may_carry_its_trace() -> None:
    held = Records(ANY_DOCUMENT)
    letter = {f"__skewless.errors.{name}": b"0" for name in ("topic", "partition", "offset", "reason")}
    carried = [f"00-{1:032x}-{2:016x}-01".encode(), b"00-1-2-01"]
    found = [list(held.problems("dead-letters", Record(0, 0, 0, None, None, letter | {PARENT: it}))) for it in carried]
    assert [bool(problems) for problems in found] == [False, True]


def test_a_document_of_one_pipeline_has_its_names_and_numbers() -> None:
    channels, servers = OWN_DOCUMENT["channels"], OWN_DOCUMENT["servers"]
    assert [channels[name]["address"] for name in ("source", "late")] == ["events", "words.late"]
    partitions = {name: channels[name]["bindings"]["kafka"]["partitions"] for name in channels}
    assert partitions["source"] == partitions["late"] == 5
    assert (partitions["worker-input"], partitions["aggregates"], partitions["distribution"]) == (12, 6, 1)
    assert channels["late"]["bindings"]["kafka"]["replicas"] == 3
    assert "parameters" not in channels["late"]
    assert [server["host"] for server in servers.values()] == ["one:9093", "two:9093"]
    assert {server["protocol"] for server in servers.values()} == {"kafka-secure"}
    assert "secret" not in as_yaml(OWN_DOCUMENT)


def test_aggregates_have_the_fields_that_the_pipeline_computes_and_no_others() -> None:
    own, any_ = (made["components"]["schemas"]["Aggregate"] for made in (OWN_DOCUMENT, ANY_DOCUMENT))
    wanted = ["key", "window_start", "window_end", "count", "mean", "revision"]
    assert list(own["properties"]) == own["required"] == wanted
    assert any_["required"] == ["key", "window_start", "window_end", "revision"]
    assert {"sum", "min", "max"} <= any_["properties"].keys()


def test_a_pipeline_that_may_repeat_itself_promises_no_more() -> None:
    repeating = OWN.model_copy(update={"transport": OWN.transport.model_copy(update={"guarantee": "at_least_once"})})
    told = [row["x-guarantee"] for row in document(repeating)["components"]["messages"].values()]
    assert not [text for text in told if "exactly" in text]
    assert "Each tick at least once." in told


def test_partitions_of_an_unknown_source_are_not_made_up() -> None:
    for name in ("source", "late", "tuples"):
        assert "partitions" not in ANY_DOCUMENT["channels"][name]["bindings"]["kafka"]


def test_the_document_is_the_same_each_time_and_survives_yaml() -> None:
    assert document() == ANY_DOCUMENT
    assert yaml.safe_load(as_yaml(ANY_DOCUMENT)) == ANY_DOCUMENT


def test_the_command_prints_the_document_of_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: words\nsource: {topic: events}\nsplitter: {format: text}\n")
    ran = CliRunner().invoke(cli.main, ["topics", "asyncapi", "-f", str(file), "--source-partitions", "4"])
    assert ran.exit_code == 0, ran.output
    assert yaml.safe_load(ran.output)["channels"]["tuples"]["bindings"]["kafka"]["partitions"] == 4
