"""Generates the AsyncAPI document of the topics that users read and write.

It describes any pipeline, with the placeholder `{pipeline}`, or a given pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import yaml

from skewless import topology
from skewless.algorithms.aggregates import AGGREGATES
from skewless.asyncapi.messages import GUARANTEE_TEXTS, Message, messages_of, with_schema
from skewless.asyncapi.schemas import Schema, ref, schemas
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import ResultOutput, aggregates_output, joined_output
from skewless.config.topic_plan import topic_spec
from skewless.kafka.settings import SaslSettings
from skewless.monitoring.tracing import PARENT, STATE
from skewless.schema_registry.result_schemas import SchemaFormat
from skewless.stages.enricher.settings import EnrichSettings
from skewless.version import VERSION
from skewless.wire.aggregates import aggregate_type, top_type
from skewless.wire.headers import JSON
from skewless.wire.tuples import TUPLE, TUPLE_V2, TupleFormat

Document = dict[str, Any]
ASYNCAPI, BINDING = "3.1.0", "0.5.0"
_ENRICH = {
    "topic": "events",
    "tables": [{"topic": "users", "key": {"field": "user"}, "fields": {"country": "country"}}],
}
ANY = PipelineSettings.model_validate(
    {
        "name": "pipeline",
        "source": {"topic": "source"},
        "splitter": {
            "format": "json",
            "key": {"field": "key"},
            "value": {"field": "value", "decimals": 2},
            "time": {"field": "time"},
        },
        "join": {
            "left": {"topic": "left", "id": {"field": "id"}, "time": {"field": "time"}},
            "right": {"topic": "right", "id": {"field": "id"}, "time": {"field": "time"}},
            "apart_s": 1,
        },
        "router": {"workers": 2},
        "worker_input": {"encoding": "record"},
        "aggregator": {"aggregates": list(AGGREGATES), "top": {"n": 10, "by": next(iter(AGGREGATES))}},
    }
).model_copy(update={"enrich": EnrichSettings.model_validate(_ENRICH)})
"""Settings with all public topics, which stand for any pipeline."""
DESCRIPTION = (
    "The API of a pipeline: one result per record, UTF-8 keys, JSON values, event time as the record's timestamp. "
    "Consumers should set `isolation.level=read_committed`, otherwise they read records of aborted transactions. With "
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
RECORD_TOPICS = ("worker-input",)
"""Internal topics that consumers of the user read where they have one record per tuple."""
MECHANISMS = {"PLAIN": "plain", "SCRAM-SHA-256": "scramSha256", "SCRAM-SHA-512": "scramSha512"}
"""Types of security schemes, without that of OAUTHBEARER, which has more fields."""
SCHEMA_FORMATS: Mapping[SchemaFormat, str] = {
    "avro": "application/vnd.apache.avro+json;version=1.9.0",
    "json_schema": "application/schema+json;version=draft-07",
    "protobuf": "application/vnd.google.protobuf;version=3",
}
"""Names of the formats of schemas in AsyncAPI."""
PARAMETERS = {
    "pipeline": {"description": "Name of the pipeline: `topics.prefix` and `name` in its file.", "examples": ["words"]},
    "source": {
        "description": "Your own topic: `source.topic` in the pipeline's file, or one of `source.topics`.",
        "examples": ["events"],
    },
    "events": {"description": "Your own topic: `enrich.topic` in the pipeline's file.", "examples": ["page-views"]},
    "left": {"description": "Your own topic: `join.left.topic` in the pipeline's file.", "examples": ["impressions"]},
    "right": {"description": "Your own topic: `join.right.topic` in the pipeline's file.", "examples": ["clicks"]},
}


def document(
    settings: PipelineSettings = ANY,
    source_partitions: int | None = None,
    examples: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> Document:
    """Return the document of a pipeline; that of `ANY` has placeholders for names. Does not connect to a broker.

    `source_partitions` is the number of partitions of the source topic, None if unknown. `examples` has fields of
    messages with an example, by the name of the message.
    """
    topics = described_topics(settings)
    messages = {message.name: message for topic in topics for message in _messages_of(topic, settings)}
    guarantee = GUARANTEE_TEXTS[settings.transport.guarantee]
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "A Skewless pipeline" if settings is ANY else f"Skewless pipeline {settings.name}",
            "version": VERSION,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": JSON,
        "servers": dict(_servers(settings)),
        "channels": {topic: _channel(topic, settings, source_partitions) for topic in topics},
        "operations": dict(_operation(topic, settings) for topic in topics),
        "components": {
            "messageTraits": {"traced": TRACED},
            "messages": {
                name: _message(message, guarantee) | examples.get(name, {}) for name, message in messages.items()
            },
            "schemas": _schemas(messages.values(), settings),
        },
    }


def described_topics(settings: PipelineSettings) -> list[str]:
    """Return the topics of the user, the public ones, and those that consumers of the user may read."""
    rows = topology.needed_topics(settings)
    by_record = RECORD_TOPICS if settings.worker_input.encoding == "record" else ()
    own = (*(row.name for row in rows if row.public), *(row.name for row in rows if row.name in by_record))
    return [*settings.user_inputs, *own]


def as_yaml(content: Document) -> str:
    """Return a document as YAML."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """YAML dumper that repeats equal objects instead of writing anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the base's
        return True


def _messages_of(topic: str, settings: PipelineSettings) -> Sequence[Message]:
    """Return the messages of a topic. The tuples and results of a given pipeline have one version and format."""
    other = TUPLE if TupleFormat(settings.values).record_name == TUPLE_V2 else TUPLE_V2
    rows = [row for row in messages_of(topic) if settings is ANY or row.schema_header != other]
    outputs = [aggregates_output(settings), *([joined_output(settings)] if settings.join else [])]
    registered = {output.header: schema for output in outputs if (schema := _registered(output))}
    return [with_schema(row, registered[row.schema_header]) if row.schema_header in registered else row for row in rows]


def _registered(output: ResultOutput) -> Schema | None:
    """Return the schema of results in the registry: JSON, or the text of Protobuf. None: the format is json."""
    if output.format == "json":
        return None
    text = output.schema.text(output.format)
    return {
        "schemaFormat": SCHEMA_FORMATS[output.format],
        "schema": text if output.format == "protobuf" else msgspec.json.decode(text),
    }


def _channel(topic: str, settings: PipelineSettings, source_partitions: int | None) -> dict[str, Any]:
    messages = _messages_of(topic, settings)
    is_named = settings is not ANY and not (topic == "source" and settings.has_several_sources)
    parameter = topic if topic in topology.USER_TOPICS else "pipeline"
    placeholder = f"{{{parameter}}}" if parameter == topic else f"{{pipeline}}.{topic}"
    return {
        "address": settings.topic(topic) if is_named else placeholder,
        "title": topic,
        "description": " ".join(map(_summary, messages)),
        **({} if is_named else {"parameters": {parameter: _parameter(parameter, settings)}}),
        "messages": {message.name: {"$ref": f"#/components/messages/{message.name}"} for message in messages},
        "tags": [{"name": "internal" if topic in RECORD_TOPICS else "public"}],
        "bindings": {"kafka": {**_binding(topic, settings, source_partitions), "bindingVersion": BINDING}},
    }


def _parameter(name: str, settings: PipelineSettings) -> dict[str, Any]:
    if settings is ANY:
        return PARAMETERS[name]
    source = settings.aggregated
    names = {} if settings.source_pattern else {"enum": list(source.select(()))}
    return {"description": f"Your own topics: {source}.", **names}


def _binding(topic: str, settings: PipelineSettings, source_partitions: int | None) -> dict[str, Any]:
    """Return the number of partitions, if known, and the options of a topic of the pipeline."""
    kind = topology.partitions_of(topic)
    is_known = kind != "join" and (kind != "source" or source_partitions is not None)
    if topic in topology.USER_TOPICS:
        return {"partitions": source_partitions} if is_known else {}
    spec = topic_spec(topology.topic(topic), settings, source_partitions or 1)
    return {
        **({"partitions": spec.partitions} if is_known else {}),
        **({} if spec.replication_factor is None else {"replicas": spec.replication_factor}),
        "topicConfiguration": {name: _option(name, value) for name, value in spec.options.items()},
    }


def _option(name: str, value: str) -> Any:
    if name == "cleanup.policy":
        return value.split(",")
    return int(value) if value.lstrip("-").isdigit() else value


def _operation(topic: str, settings: PipelineSettings) -> tuple[str, dict[str, Any]]:
    """Return the name and description of what the pipeline does with a topic."""
    action, verb = ("receive", "reads") if topic in topology.USER_TOPICS else ("send", "writes")
    channel = f"#/channels/{topic}"
    return f"{action}-{topic}", {
        "action": action,
        "channel": {"$ref": channel},
        "summary": f"The pipeline {verb} {topic}.",
        "messages": [{"$ref": f"{channel}/messages/{row.name}"} for row in _messages_of(topic, settings)],
    }


def _schemas(messages: Iterable[Message], settings: PipelineSettings) -> dict[str, Schema]:
    """Return the schemas of all values, by name. Those of results and tuples depend on the settings."""
    key_parts = settings.splitter.key.parts
    aggregate = aggregate_type(settings.results, settings.aggregator.numbers, key_parts)
    top = top_type(settings.results, settings.aggregator.numbers, key_parts)
    tuples = TupleFormat(settings.values, key_parts)
    types = [message.payload for message in messages if isinstance(message.payload, type)]
    schema_by_name = schemas(types) | schemas([aggregate, top, tuples.record_type, tuples.late_type])
    if settings is ANY:
        of_any = ["key", "window_start", "window_end", "revision"]
        schema_by_name["Aggregate"]["required"], schema_by_name["Top"]["required"] = of_any, [*of_any, "rank"]
    return schema_by_name


def _summary(message: Message) -> str:
    return " ".join((message.summary or message.payload.__doc__ or "").split())


def _message(message: Message, guarantee: str) -> dict[str, Any]:
    return {
        "name": message.name if message.deletes else message.schema_header or message.name,
        "traits": [{"$ref": "#/components/messageTraits/traced"}],
        "title": message.name,
        "summary": _summary(message),
        "contentType": message.content_type,
        **({} if message.headers is None else {"headers": message.headers}),
        "payload": message.payload if isinstance(message.payload, dict) else ref(message.payload),
        "bindings": {"kafka": {"key": message.key, "bindingVersion": BINDING}},
        "x-timestamp": message.timestamp,
        "x-guarantee": message.guarantee.format(once=guarantee),
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
    if sasl.msk_iam is not None:
        return {"type": "http", "scheme": "bearer", "description": f"IAM of Amazon MSK in {sasl.msk_iam.region}"}
    if sasl.oauthbearer is None:
        return {"type": MECHANISMS[sasl.mechanism]}
    scopes = dict.fromkeys((sasl.oauthbearer.scope or "").split(), "")
    grant = {"tokenUrl": sasl.oauthbearer.token_endpoint_url, "availableScopes": scopes}
    return {"type": "oauth2", "flows": {"clientCredentials": grant}}
