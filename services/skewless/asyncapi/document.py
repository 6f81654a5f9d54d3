"""The AsyncAPI document: of any pipeline, with `{pipeline}` for its name, or of one with its own names and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from skewless import __version__, public_records, topology
from skewless.algorithms.aggregates import AGGREGATES
from skewless.asyncapi.channels import BINDING, Names, channels, operations
from skewless.asyncapi.examples import Example, examples
from skewless.asyncapi.messages import JSON, ONCE, Message, headers_schema, messages_of, payload_schema, types
from skewless.asyncapi.samples import samples
from skewless.asyncapi.schemas import Schema, schemas
from skewless.settings import PipelineSettings
from skewless.watch.tracing import PARENT, STATE

Document = dict[str, Any]
VERSION = "3.1.0"
ANY = PipelineSettings.model_validate(
    {"name": "pipeline", "source": {"topic": "source"}, "aggregator": {"aggregates": list(AGGREGATES)}}
)
DESCRIPTION = (
    "Public topics are the API: one record per fact, UTF-8 keys, JSON values, event time as the record's timestamp. "
    "The others carry columns between the stages and may change with any version. Readers set "
    "`isolation.level=read_committed`, or they see what was taken back; with `transport.guarantee: at_least_once` "
    "nothing is, and records may come again. Fields may be added with any version."
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
            STATE: {"type": "string", "description": "What the systems of that trace have added to it, if they have."},
        },
    }
}
"""Headers that any record may have."""
MECHANISMS = {"PLAIN": "plain", "SCRAM-SHA-256": "scramSha256", "SCRAM-SHA-512": "scramSha512"}


def document(settings: PipelineSettings | None = None, source_partitions: int | None = None) -> Document:
    """Describe all topics, records and stages; `source_partitions` where it is known. Asks no broker."""
    names = Names(settings or ANY, settings is not None, source_partitions)
    kinds = {
        row.name: row for topic in ("source", *(row.name for row in topology.TOPICS)) for row in messages_of(topic)
    }
    shown, once = examples(samples(names.settings)), ONCE[names.settings.transport.guarantee]
    return {
        "asyncapi": VERSION,
        "info": {
            "title": f"Skewless pipeline {names.settings.name}" if names.own else "A Skewless pipeline",
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
            "messages": {name: _message(kind, shown.get(name), once) for name, kind in kinds.items()},
            "schemas": _schemas(kinds, names),
        },
    }


def _servers(settings: PipelineSettings) -> Iterator[tuple[str, Any]]:
    kafka = settings.kafka
    secure = "SSL" in kafka.security_protocol
    server: dict[str, Any] = {"protocol": "kafka-secure" if secure else "kafka"}
    if kafka.sasl is not None:
        server["security"] = [{"type": MECHANISMS[kafka.sasl.mechanism]}]
    for number, host in enumerate(kafka.bootstrap_servers.split(","), 1):
        yield f"broker-{number}", {"host": host.strip(), **server}


def _message(kind: Message, example: Example | None, once: str) -> dict[str, Any]:
    payload, headers = payload_schema(kind), headers_schema(kind)
    if example is not None and (columns := example.columns(kind)):
        payload["x-arrow-columns"] = columns
    return {
        "name": kind.schema_header or kind.name,
        "traits": [{"$ref": "#/components/messageTraits/traced"}],
        "title": kind.name,
        "summary": " ".join(kind.meaning.split()),
        "contentType": kind.content_type,
        **({} if headers is None else {"headers": headers}),
        "payload": payload,
        "bindings": {"kafka": {"key": kind.key, "bindingVersion": BINDING}},
        "x-timestamp": kind.timestamp,
        "x-guarantee": kind.guarantee.format(once=once),
        **_examples(kind, example),
    }


def _examples(kind: Message, example: Example | None) -> dict[str, Any]:
    if example is None:
        return {}
    payload, headers = example.payload(kind), example.headers
    parts = {name: part for name, part in (("headers", headers), ("payload", payload)) if part}
    if not parts:
        return {}
    record = {"x-example-key": example.key, "x-example-timestamp": example.record.timestamp}
    return {"examples": [parts], **{name: fact for name, fact in record.items() if fact is not None}}


def _schemas(kinds: Mapping[str, Message], names: Names) -> dict[str, Schema]:
    aggregate = public_records.aggregate_type(names.settings.aggregator.aggregates)
    made = schemas(types(kinds)) | schemas([aggregate])
    if not names.own:
        optional = set(AGGREGATES)
        made["Aggregate"]["required"] = [name for name in made["Aggregate"]["required"] if name not in optional]
    return made


class _Dumper(yaml.SafeDumper):
    """Says everything where it stands: no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the base's
        return True


def as_yaml(made: Document) -> str:
    """Write a document."""
    return yaml.dump(made, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
