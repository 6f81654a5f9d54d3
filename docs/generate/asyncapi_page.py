"""Generates the Markdown sections of topics: producers and consumers, key, headers, fields and an example."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from skewless import topology
from skewless.asyncapi.document import Document
from skewless.asyncapi.messages import NOTHING
from skewless.asyncapi.schemas import REF, Schema

HOUR_MS = 3_600_000


def topic_sections(document: Document) -> Iterator[str]:
    """Yield the lines of a section per topic of the pipeline. A message is described at its first topic."""
    first_topics: dict[str, str] = {}
    for topic, channel in document["channels"].items():
        if topic not in topology.USER_TOPICS:
            yield from _section(document, topic, channel, first_topics)


def _section(document: Document, topic: str, channel: Mapping[str, Any], first_topics: dict[str, str]) -> Iterator[str]:
    messages = {name: document["components"]["messages"][name] for name in channel["messages"]}
    yield from ["", f"## `{topic}`", ""]
    if len(messages) == 1:
        yield from [channel["description"], ""]
    yield f"- Written by: {_writers(topic)}"
    yield f"- Read by: {_readers(topic)}"
    options = channel["bindings"]["kafka"]["topicConfiguration"]
    yield f"- Retention: {_retention(options, is_public=channel['tags'] == [{'name': 'public'}])}"
    for name, message in messages.items():
        if len(messages) > 1:
            yield from ["", f"### `{topic}`: {name}", "", message["summary"], ""]
        if name in first_topics:
            yield f"The same as in topic `{first_topics[name]}`."
        else:
            first_topics[name] = topic
            yield from _message(document, message, topic)


def _message(document: Document, message: Mapping[str, Any], topic: str) -> Iterator[str]:
    yield f"- Value: {_value(message)}"
    yield f"- Key: {_key(message['bindings']['kafka']['key'])}"
    yield f"- Timestamp: {message['x-timestamp']}"
    yield f"- Guarantee: {message['x-guarantee']}"
    yield from _fields_table("field", document, message["payload"])
    yield from _fields_table("header", document, message.get("headers", {}))
    messages = [document["components"]["messages"][name] for name in document["channels"][topic]["messages"]]
    with_value = [each for each in messages if each["payload"] != NOTHING]
    yield from _example(message, topic if len(with_value) == 1 else message["title"])


def _fields_table(kind: str, document: Document, schema: Schema) -> Iterator[str]:
    schema_by_name = document["components"]["schemas"]
    resolved = schema_by_name[schema["$ref"].removeprefix(REF)] if "$ref" in schema else schema
    if resolved.get("properties"):
        rows = [
            (f"`{field.path}`", field.type, "yes" if field.required else "no", field.description)
            for field in fields(resolved, schema_by_name)
        ]
        yield from ["", *table([kind, "type", "required", "description"], rows)]


class Field(NamedTuple):
    """One field of a record type."""

    path: str
    """Name with the names of the enclosing fields: `run.tuples`, `top_keys[].key`."""
    type: str
    required: bool
    description: str


def fields(schema: Mapping[str, Any], schema_by_name: Mapping[str, Schema], path: str = "") -> Iterator[Field]:
    """Yield all fields; the fields of an inner object follow the field that contains it."""
    for name, field in schema["properties"].items():
        field_path = f"{path}{name}"
        yield Field(field_path, type_of(field), name in schema["required"], field.get("description", ""))
        inner = _target(field) or _target(field.get("items", {}))
        if inner:
            yield from fields(schema_by_name[inner], schema_by_name, f"{field_path}{'[]' if 'items' in field else ''}.")


def type_of(field: Mapping[str, Any]) -> str:
    """Return the JSON type of a field as text, with its pattern."""
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "items" in field:
        return f"array of {type_of(field['items'])}"
    if "anyOf" in field:
        return " or ".join(map(type_of, field["anyOf"]))
    json_type: str = field.get("type", "object" if _target(field) else "any")
    return f"{json_type}, `{field['pattern']}`" if "pattern" in field else json_type


def _target(field: Mapping[str, Any]) -> str | None:
    refs = [field, *field.get("allOf", ())]
    return next((part["$ref"].removeprefix(REF) for part in refs if "$ref" in part), None)


def _value(message: Mapping[str, Any]) -> str:
    payload = message["payload"]
    if payload == NOTHING:
        return "none."
    description = payload.get("description")
    return f"`{message['contentType']}`. {description}" if description else f"`{message['contentType']}`."


def _key(schema: Schema) -> str:
    if schema == NOTHING:
        return "none."
    return str(schema.get("description", f"{type_of(schema)}."))


def _writers(topic: str) -> str:
    return ", ".join(stage.name for stage in topology.STAGES if topic in stage.outputs)


def _readers(topic: str) -> str:
    return ", ".join(["your consumers", *(stage.name for stage in topology.STAGES if topic in stage.all_inputs)])


def _retention(options: Mapping[str, Any], *, is_public: bool) -> str:
    if options["cleanup.policy"] == ["compact"]:
        kept = ", `topics.results_retention_s`" if is_public else ""
        return f"the last record of each key{kept}."
    retention_ms = options["retention.ms"]
    return "unlimited." if retention_ms < 0 else f"{retention_ms / HOUR_MS:g} hours, `topics.internal_retention_s`."


def _example(message: Mapping[str, Any], name: str) -> Iterator[str]:
    for example in message.get("examples", ()):
        extensions = {"key": message.get("x-example-key"), "timestamp": message.get("x-example-timestamp")}
        parts = [f"{part} `{value}`" for part, value in extensions.items() if value is not None]
        parts += [f"header `{header}` `{value}`" for header, value in example.get("headers", {}).items()]
        payload = example.get("payload")
        yield from ["", f"Example: {', '.join(parts)}{', value' if payload else ''}"]
        if payload:
            language = "text" if isinstance(payload, str) else f"json {name}"
            yield from ["", f"```{language}", payload if isinstance(payload, str) else json.dumps(payload), "```"]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in line) + " |" for line in lines]
