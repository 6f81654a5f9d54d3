"""Generates the AsyncAPI document: of any pipeline, with the placeholder `{pipeline}`, or of a given pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from skewless import __version__
from skewless.algorithms.aggregates import AGGREGATES
from skewless.asyncapi.channels import BINDING, Names, channels, operations
from skewless.asyncapi.example_run import samples
from skewless.asyncapi.examples import Example, examples
from skewless.asyncapi.messages import (
    GUARANTEE_TEXTS,
    Message,
    payload_schema,
    types,
)
from skewless.asyncapi.schemas import Schema, schemas
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.settings import SaslSettings
from skewless.monitoring.tracing import PARENT, STATE
from skewless.wire.aggregates import aggregate_type
from skewless.wire.headers import JSON
from skewless.wire.tuples import TupleFormat

Document = dict[str, Any]
VERSION = "3.1.0"
ANY = PipelineSettings.model_validate(
    {
        "name": "pipeline",
        "source": {"topic": "source"},
        "splitter": {"format": "text", "value": {"decimals": 2}},
        "join": {
            "left": {"topic": "left", "id": {"field": "id"}},
            "right": {"topic": "right", "id": {"field": "id"}},
            "apart_s": 1,
        },
        "aggregator": {"aggregates": list(AGGREGATES)},
    }
)
WITH_VALUES = PipelineSettings.model_validate(
    {
        "name": "pipeline",
        "source": {"topic": "source"},
        "splitter": {
            "format": "json",
            "key": {"field": "key"},
            "values": {
                "amount": {"field": "value", "decimals": 2},
                "user": {"field": "value", "kind": "text", "missing": "skip"},
            },
        },
        "aggregator": {"aggregates": [next(iter(AGGREGATES))]},
    }
)
"""A pipeline with named values, for examples of their tuples."""
DESCRIPTION = (
    "Public topics are the API: one result per record, UTF-8 keys, JSON values, event time as the record's timestamp. "
    "The other topics carry columns between the stages and may change with any version. Consumers should set "
    "`isolation.level=read_committed`, otherwise they read records of aborted transactions. With "
    "`transport.guarantee: at_least_once` transactions are not used, and records may be repeated. Records have "
    "the headers `schema` (name and version of the format) and `content-type`. A version of a format only gets further "
    "fields."
)
TRACED = {
    "headers": {
        "type": "object",
        "properties": {
            PARENT: {
                "type": "string",
                "pattern": "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$",
                "description": "W3C trace context of the batch that wrote the record, with `tracing.enabled`.",
            },
            STATE: {"type": "string", "description": "W3C trace state: data that tracing systems have added."},
        },
    }
}
"""Trait with the headers that any record may have."""
MECHANISMS = {"PLAIN": "plain", "SCRAM-SHA-256": "scramSha256", "SCRAM-SHA-512": "scramSha512"}
"""Types of security schemes, without that of OAUTHBEARER, which has more fields."""


def document(settings: PipelineSettings | None = None, source_partitions: int | None = None) -> Document:
    """Return the document with all topics, messages and stages. Does not connect to a broker.

    `source_partitions` is the number of partitions of the source topic, None if unknown.
    """
    names = Names(settings or ANY, settings is not None, source_partitions)
    topics = (*names.inputs(), *(row.name for row in names.topics()))
    messages = {message.name: message for topic in topics for message in names.messages_of(topic)}
    example_by_message = examples(samples(names.settings, *(() if names.is_concrete else (WITH_VALUES,))))
    guarantee = GUARANTEE_TEXTS[names.settings.transport.guarantee]
    return {
        "asyncapi": VERSION,
        "info": {
            "title": f"Skewless pipeline {names.settings.name}" if names.is_concrete else "A Skewless pipeline",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": JSON,
        "servers": dict(_servers(names.settings)),
        "channels": dict(channels(names)),
        "operations": dict(operations(names)),
        "components": {
            "messageTraits": {"traced": TRACED},
            "messages": {
                name: _message(message, example_by_message.get(name), guarantee) for name, message in messages.items()
            },
            "schemas": _schemas(messages, names),
        },
    }


def _servers(settings: PipelineSettings) -> Iterator[tuple[str, Any]]:
    kafka = settings.kafka
    secure = "SSL" in kafka.security_protocol
    server: dict[str, Any] = {"protocol": "kafka-secure" if secure else "kafka"}
    if kafka.sasl is not None:
        server["security"] = [_login(kafka.sasl)]
    for number, host in enumerate(kafka.bootstrap_servers.split(","), 1):
        yield f"broker-{number}", {"host": host.strip(), **server}


def _login(sasl: SaslSettings) -> dict[str, Any]:
    if sasl.oauthbearer is None:
        return {"type": MECHANISMS[sasl.mechanism]}
    scopes = dict.fromkeys((sasl.oauthbearer.scope or "").split(), "")
    grant = {"tokenUrl": sasl.oauthbearer.token_endpoint_url, "availableScopes": scopes}
    return {"type": "oauth2", "flows": {"clientCredentials": grant}}


def _message(message: Message, example: Example | None, guarantee: str) -> dict[str, Any]:
    payload, headers = payload_schema(message), message.headers
    if example is not None and (columns := example.columns(message)):
        payload["x-arrow-columns"] = columns
    return {
        "name": message.schema_header or message.name,
        "traits": [{"$ref": "#/components/messageTraits/traced"}],
        "title": message.name,
        "summary": " ".join(message.summary.split()),
        "contentType": message.content_type,
        **({} if headers is None else {"headers": headers}),
        "payload": payload,
        "bindings": {"kafka": {"key": message.key, "bindingVersion": BINDING}},
        "x-timestamp": message.timestamp,
        "x-guarantee": message.guarantee.format(once=guarantee),
        **_examples(message, example),
    }


def _examples(message: Message, example: Example | None) -> dict[str, Any]:
    if example is None:
        return {}
    payload, headers = example.payload(message), example.headers
    parts = {name: part for name, part in (("headers", headers), ("payload", payload)) if part}
    if not parts:
        return {}
    extensions = {"x-example-key": example.key, "x-example-timestamp": example.record.timestamp}
    return {"examples": [parts], **{name: value for name, value in extensions.items() if value is not None}}


def _schemas(messages: Mapping[str, Message], names: Names) -> dict[str, Schema]:
    key_parts = names.settings.splitter.key.parts
    aggregate = aggregate_type(names.settings.results, names.settings.aggregator.numbers, key_parts)
    tuples = TupleFormat(names.settings.values, key_parts)
    schema_by_name = schemas(types(messages)) | schemas([aggregate, tuples.record_type, tuples.late_type])
    if not names.is_concrete:
        optional = {result.name for result in names.settings.results}
        required = schema_by_name["Aggregate"]["required"]
        schema_by_name["Aggregate"]["required"] = [name for name in required if name not in optional]
    return schema_by_name


class _Dumper(yaml.SafeDumper):
    """YAML dumper that repeats equal objects instead of writing anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the base's
        return True


def as_yaml(content: Document) -> str:
    """Return a document as YAML."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
