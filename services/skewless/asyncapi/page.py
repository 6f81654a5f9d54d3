"""The document as a page to read: each topic with who writes and reads it, key, headers, fields and an example."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from skewless.asyncapi.document import Document
from skewless.asyncapi.schemas import REF, Schema, fields, kind_of

HOUR_MS = 3_600_000


def topic_sections(made: Document) -> Iterator[str]:
    """Write a section per topic, the public ones first; a kind of record is told in the first topic that has it."""
    channels: dict[str, Any] = made["channels"]
    seen: dict[str, str] = {}
    for public in ("public", "internal"):
        for name, channel in channels.items():
            if name != "source" and channel["tags"] == [{"name": public}]:
                yield from _section(made, name, channel, seen)


def _section(made: Document, topic: str, channel: Mapping[str, Any], seen: dict[str, str]) -> Iterator[str]:
    messages = {kind: made["components"]["messages"][kind] for kind in channel["messages"]}
    yield from ["", f"## `{topic}`", ""]
    if len(messages) == 1:
        yield from [channel["description"], ""]
    yield from [f"- Written by: {_stages(made, topic, 'send')}", f"- Read by: {_readers(made, topic, channel)}"]
    yield f"- Kept: {_kept(channel['bindings']['kafka']['topicConfiguration'])}"
    for kind, message in messages.items():
        if len(messages) > 1:
            yield from ["", f"### `{topic}`: {kind}", "", message["summary"], ""]
        if kind in seen:
            yield f"The same as in topic `{seen[kind]}`."
        else:
            seen[kind] = topic
            yield from _message(made, message, topic)


def _message(made: Document, message: Mapping[str, Any], topic: str) -> Iterator[str]:
    yield f"- Value: {_value(message)}"
    yield f"- Key: {_key(message['bindings']['kafka']['key'])}"
    yield f"- Timestamp: {message['x-timestamp']}"
    yield f"- Guarantee: {message['x-guarantee']}"
    yield from _fields_table("field", made, message["payload"])
    yield from _fields_table("header", made, message.get("headers", {}))
    if columns := message["payload"].get("x-arrow-columns"):
        rows = [(f"`{name}`", facts["type"], facts["description"]) for name, facts in columns.items()]
        yield from ["", *table(["column", "type", "meaning"], rows)]
    yield from _example(message, topic if len(made["channels"][topic]["messages"]) == 1 else message["title"])


def _fields_table(head: str, made: Document, schema: Schema) -> Iterator[str]:
    known = made["components"]["schemas"]
    found = known[schema["$ref"].removeprefix(REF)] if "$ref" in schema else schema
    if "properties" in found:
        rows = [(f"`{row.path}`", row.kind, "yes" if row.always else "no", row.meaning) for row in fields(found, known)]
        yield from ["", *table([head, "type", "always", "meaning"], rows)]


def _value(message: Mapping[str, Any]) -> str:
    payload = message["payload"]
    if payload.get("type") == "null":
        return "none."
    described = payload.get("description")
    return f"`{message['contentType']}`. {described}" if described else f"`{message['contentType']}`."


def _key(schema: Schema) -> str:
    if schema == {"type": "null"}:
        return "none."
    return str(schema.get("description", f"{kind_of(schema)}."))


def _stages(made: Document, topic: str, action: str) -> str:
    at = {"$ref": f"#/channels/{topic}"}
    rows = [row for row in made["operations"].values() if row["channel"] == at and row["action"] == action]
    return ", ".join(row["tags"][0]["name"] for row in rows)


def _readers(made: Document, topic: str, channel: Mapping[str, Any]) -> str:
    yours = ["you"] if channel["tags"] == [{"name": "public"}] else []
    return ", ".join([*yours, *filter(None, [_stages(made, topic, "receive")])])


def _kept(options: Mapping[str, Any]) -> str:
    if options["cleanup.policy"] == ["compact"]:
        return "the last record of each key."
    age = options["retention.ms"]
    return "for ever." if age < 0 else f"{age / HOUR_MS:g} hours, `topics.internal_retention_s`."


def _example(message: Mapping[str, Any], name: str) -> Iterator[str]:
    for example in message.get("examples", ()):
        told = {"key": message.get("x-example-key"), "timestamp": message.get("x-example-timestamp")}
        facts = [f"{part} `{fact}`" for part, fact in told.items() if fact is not None]
        facts += [f"header `{header}` `{fact}`" for header, fact in example.get("headers", {}).items()]
        payload = example.get("payload")
        yield from ["", f"Example: {', '.join(facts)}{', value' if payload else ''}"]
        if payload:
            language = "text" if isinstance(payload, str) else f"json {name}"
            yield from ["", f"```{language}", payload if isinstance(payload, str) else json.dumps(payload), "```"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in line) + " |" for line in lines]
