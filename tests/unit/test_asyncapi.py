"""The AsyncAPI document is valid, complete and consistent, and its examples match its schemas."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from docs.generate.asyncapi_page import type_of
from docs.generate.examples import WITH_VALUES, examples, written_records
from helpers.asyncapi import Records, message_of, official_schema, problems
from helpers.kafka import Record
from skewless import topology
from skewless.asyncapi.document import ANY, SCHEMA_FORMATS, as_yaml, described_topics, document
from skewless.asyncapi.messages import MESSAGES, messages_of
from skewless.asyncapi.schemas import REF, Schema
from skewless.cli import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.in_memory import InMemoryPipeline
from skewless.kafka.settings import SaslSettings
from skewless.monitoring.tracing import PARENT
from skewless.stages.aggregator.settings import AggregatorSettings
from skewless.wire.headers import BYTES
from skewless.wire.record import OutputRecord

OWN = PipelineSettings.model_validate(
    {
        "name": "words",
        "source": {"topic": "events"},
        "kafka": {
            "bootstrap_servers": "one:9093, two:9093",
            "security_protocol": "SASL_SSL",
            "sasl": {"username": "me", "password": "secret"},
        },
        "worker_input": {"max_workers": 12, "encoding": "record"},
        "router": {"workers": 3},
        "topics": {"aggregator_partitions": 6, "replication_factor": 3},
        "aggregator": {"aggregates": ["count", "mean"]},
    }
)


@cache
def any_document() -> dict[str, Any]:
    """Return the document of the reference, whose examples a pipeline writes."""
    return document(examples=examples())


OWN_DOCUMENT = document(OWN, 5)


@pytest.fixture(params=["any", "own"])
def made(request: pytest.FixtureRequest) -> dict[str, Any]:
    return any_document() if request.param == "any" else OWN_DOCUMENT


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


def test_asyncapi_document_is_valid_by_the_official_schema(made: dict[str, Any], official: dict[str, Any]) -> None:
    assert problems(made, official) == []


@pytest.mark.parametrize("failures", ["action", "address", "binding", "key", "message"])
def test_asyncapi_schema_check_of_an_invalid_document_finds_problems(failures: str, official: dict[str, Any]) -> None:
    made = copy.deepcopy(any_document())
    channel, message = made["channels"]["late"], made["components"]["messages"]["late"]
    match failures:
        case "action":
            made["operations"]["send-late"]["action"] = "publish"
        case "address":
            channel["address"] = 1
        case "binding":
            channel["bindings"]["kafka"]["partitions"] = 0
        case "key":
            message["bindings"]["kafka"]["key"] = {"type": "letters"}
        case "message":
            message["body"] = message.pop("payload")
    assert problems(made, official) != []


def test_asyncapi_references_resolve_to_objects(made: dict[str, Any]) -> None:
    references = [part["$ref"] for part in parts(made) if "$ref" in part]
    assert len(references) > 30
    assert all(isinstance(follow(made, reference), dict) for reference in references)


def test_asyncapi_operations_use_messages_of_their_channels(made: dict[str, Any]) -> None:
    for row in made["operations"].values():
        channel = row["channel"]["$ref"]
        assert row["messages"]
        assert all(each["$ref"].startswith(f"{channel}/messages/") for each in row["messages"])


def test_asyncapi_document_has_all_topics_of_users_and_public_topics() -> None:
    public = [row.name for row in topology.TOPICS if row.public]
    assert list(any_document()["channels"]) == [*topology.USER_TOPICS, *public, "worker-input"]
    assert list(any_document()["operations"]) == [
        *(f"receive-{name}" for name in topology.USER_TOPICS),
        *(f"send-{name}" for name in (*public, "worker-input")),
    ]


def test_asyncapi_messages_equal_the_record_types_of_the_topics() -> None:
    assert MESSAGES.keys() == {row.record for row in topology.TOPICS if row.public or row.name == "worker-input"}


def test_asyncapi_document_has_worker_input_with_a_record_per_tuple_only() -> None:
    by_batch = OWN.model_copy(update={"worker_input": OWN.worker_input.model_copy(update={"encoding": "batch"})})
    assert OWN_DOCUMENT["channels"].keys() - document(by_batch)["channels"].keys() == {"worker-input"}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"anyOf": [{"$ref": f"{REF}Run"}, {"type": "null"}]}, "object or null"),
        ({"description": "The record."}, "any"),
    ],
)
def test_type_of_a_field_with_alternatives_or_without_a_type_is_not_object(field: Schema, expected: str) -> None:
    assert type_of(field) == expected


def test_asyncapi_schemas_are_draft_07_and_describe_every_field(made: dict[str, Any]) -> None:
    for schema in made["components"]["schemas"].values():
        jsonschema.Draft7Validator.check_schema(schema)
        assert all("description" in field for field in schema["properties"].values())
    for message in made["components"]["messages"].values():
        jsonschema.Draft7Validator.check_schema(message["payload"])
        jsonschema.Draft7Validator.check_schema(message["bindings"]["kafka"]["key"])


def test_asyncapi_messages_of_the_reference_have_an_example_that_fits_the_schemas() -> None:
    held = Records(any_document())
    for topic in topology.TOPICS:
        for kind in messages_of(topic.name) if topic.name in any_document()["channels"] else ():
            message = any_document()["components"]["messages"][kind.name]
            (example,) = message["examples"]
            payload, headers = example.get("payload"), example["headers"]
            texts = (message.get("x-example-key"), payload if isinstance(payload, str | None) else json.dumps(payload))
            key, value = (None if text is None else text.encode() for text in texts)
            encoded = {name: text.encode() for name, text in headers.items()}
            record = Record(0, 0, message.get("x-example-timestamp", 0), key, value, encoded)
            if kind.name != "tuple-with-values":  # its fields are the values of a pipeline
                assert list(held.problems(topic.name, record)) == []


def test_asyncapi_document_describes_the_records_that_the_steps_write() -> None:
    described, kinds = [ANY, WITH_VALUES], set()
    assert ANY.join is not None
    described.append(ANY.model_copy(update={"join": ANY.join.model_copy(update={"repartition": "always"})}))
    for own in described:
        held, written = Records(document(own)), written_records(own)
        for topic in [name for name in described_topics(own) if name in written]:
            records = [record_of(output) for output in written[topic]]
            assert [problem for record in records for problem in held.problems(topic, record)] == []
            kinds |= {kind.name for record in records if (kind := message_of(topic, record))}
    # Of the deletions, tests of sessions (below) and of ranks (`test_top_laws`) are those that write some.
    others = {"source-record", "join-record", "deleted-aggregate", "deleted-top"}
    assert kinds == any_document()["components"]["messages"].keys() - others


def test_asyncapi_document_describes_the_deletion_of_a_session_that_starts_earlier() -> None:
    aggregator = AggregatorSettings.model_validate({"window": {"session": {"gap_s": 60}}, "aggregates": ["count"]})
    own = WITH_VALUES.model_copy(update={"aggregator": aggregator})
    pipeline, held = InMemoryPipeline(own), Records(document(own))
    records = [
        record_of(output)
        for time in (50_000, 45_000)
        for output in pipeline.process(
            [OutputRecord("source", b'{"key":"a","value":1,"time":%d}' % time, timestamp=time)], time
        )["aggregates"]
    ]
    kinds = [kind.name for record in records if (kind := message_of("aggregates", record))]
    assert sorted(kinds) == ["aggregate", "aggregate", "deleted-aggregate"]
    assert [problem for record in records for problem in held.problems("aggregates", record)] == []


def record_of(output: OutputRecord) -> Record:
    at = (output.partition or 0, 0, output.timestamp or 0)
    return Record(*at, output.key, output.value, dict(output.headers))


def test_asyncapi_check_of_an_undescribed_record_finds_a_problem() -> None:
    held = Records(any_document())
    late = any_document()["components"]["messages"]["late"]["examples"][0]["payload"]
    good = Record(0, 0, 0, b"fr", json.dumps(late).encode(), {})
    failures = [
        Record(0, 0, 0, None, good.value, {}),
        Record(0, 0, 0, b"fr", b'{"key": "fr"}', {}),
        Record(0, 0, 0, b"fr", good.value, {"surprise": b""}),
    ]
    assert [bool(list(held.problems("late", record))) for record in failures] == [True] * 3


def test_asyncapi_check_of_a_record_with_trace_context_passes() -> None:
    held = Records(any_document())
    dead_letter = {f"__skewless.errors.{name}": b"0" for name in ("topic", "partition", "offset", "reason")}
    carried = [f"00-{1:032x}-{2:016x}-01".encode(), b"00-1-2-01"]
    found = [
        list(held.problems("dead-letters", Record(0, 0, 0, None, None, dead_letter | {PARENT: it}))) for it in carried
    ]
    assert [bool(problems) for problems in found] == [False, True]


def test_asyncapi_document_of_one_pipeline_has_its_names_and_numbers() -> None:
    channels, servers = OWN_DOCUMENT["channels"], OWN_DOCUMENT["servers"]
    assert [channels[name]["address"] for name in ("source", "late")] == ["events", "words.late"]
    partitions = {name: row["bindings"]["kafka"]["partitions"] for name, row in channels.items()}
    assert partitions["source"] == partitions["late"] == 5
    assert (partitions["worker-input"], partitions["aggregates"], partitions["distribution"]) == (12, 6, 1)
    assert channels["late"]["bindings"]["kafka"]["replicas"] == 3
    assert "parameters" not in channels["late"]
    assert [server["host"] for server in servers.values()] == ["one:9093", "two:9093"]
    assert {server["protocol"] for server in servers.values()} == {"kafka-secure"}
    assert "secret" not in as_yaml(OWN_DOCUMENT)


@pytest.mark.parametrize(
    ("sasl", "scheme"),
    [
        ({"username": "me", "password": "secret"}, "scramSha512"),
        ({"mechanism": "OAUTHBEARER", "msk_iam": {"region": "eu-west-1"}}, "http"),
        (
            {
                "mechanism": "OAUTHBEARER",
                "oauthbearer": {"token_endpoint_url": "https://id/token", "client_id": "me", "client_secret": "secret"},
            },
            "oauth2",
        ),
    ],
)
def test_asyncapi_document_names_the_login_of_each_mechanism(
    sasl: dict[str, Any], scheme: str, official: dict[str, Any]
) -> None:
    kafka = OWN.kafka.model_copy(update={"sasl": SaslSettings.model_validate(sasl)})
    made = document(OWN.model_copy(update={"kafka": kafka}))
    assert problems(made, official) == []
    assert [login["type"] for login in made["servers"]["broker-1"]["security"]] == [scheme]


def test_asyncapi_document_of_one_pipeline_has_one_version_of_tuples() -> None:
    versions = {
        settings.splitter.values is None: {
            message["name"]
            for message in document(settings)["components"]["messages"].values()
            if message["name"].startswith("skewless.tuple")
        }
        for settings in (OWN, WITH_VALUES)
    }
    assert versions == {
        True: {"skewless.tuple.v1"},
        False: {"skewless.tuple.v2"},
    }
    fields = document(WITH_VALUES)["components"]["schemas"]["ValuesRecord"]["properties"]
    assert list(fields) == ["amount", "user", "time"]


@pytest.mark.parametrize(("schema_format", "name"), SCHEMA_FORMATS.items())
def test_asyncapi_results_in_a_format_of_a_registry_have_its_schema(
    schema_format: str, name: str, official: dict[str, Any]
) -> None:
    settings = {"name": "p", "source": {"topic": "t"}, "registry": {"url": "http://localhost:1"}}
    sides = {side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")}
    parts = {"aggregator": {"format": schema_format}, "join": {**sides, "apart_s": 1, "format": schema_format}}
    made = document(PipelineSettings.model_validate({**settings, **parts}))
    assert problems(made, official) == []
    deletion = made["components"]["messages"]["deleted-aggregate"]
    assert (deletion["payload"], deletion["contentType"]) == ({"type": "null"}, BYTES)
    for message, field in (("aggregate", "window_start"), ("joined", "left_time")):
        result = made["components"]["messages"][message]
        assert (result["payload"]["schemaFormat"], result["contentType"]) == (name, BYTES)
        assert field in json.dumps(result["payload"]["schema"])


def test_asyncapi_aggregate_schema_has_the_computed_fields_only() -> None:
    own, any_ = (made["components"]["schemas"]["Aggregate"] for made in (OWN_DOCUMENT, any_document()))
    expected = ["key", "window_start", "window_end", "count", "mean", "revision"]
    assert list(own["properties"]) == own["required"] == expected
    assert any_["required"] == ["key", "window_start", "window_end", "revision"]
    assert {"sum", "min", "max"} <= any_["properties"].keys()


def test_asyncapi_document_at_least_once_promises_no_exactly_once() -> None:
    repeating = OWN.model_copy(update={"transport": OWN.transport.model_copy(update={"guarantee": "at_least_once"})})
    reported = [row["x-guarantee"] for row in document(repeating)["components"]["messages"].values()]
    assert not [text for text in reported if "exactly" in text]
    assert "Each tick at least once." in reported


def test_asyncapi_document_unknown_source_has_no_partition_counts() -> None:
    for name in ("source", "late", "joined"):
        assert "partitions" not in any_document()["channels"][name]["bindings"]["kafka"]


def test_asyncapi_document_is_deterministic_and_survives_yaml() -> None:
    assert document(examples=examples()) == any_document()
    assert yaml.safe_load(as_yaml(any_document())) == any_document()


def test_asyncapi_command_prints_the_document_of_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: words\nsource: {topic: events}\nsplitter: {format: text}\n")
    ran = CliRunner().invoke(main.main, ["topics", "asyncapi", "-f", str(file), "--source-partitions", "4"])
    assert ran.exit_code == 0, ran.output
    assert yaml.safe_load(ran.output)["channels"]["late"]["bindings"]["kafka"]["partitions"] == 4
