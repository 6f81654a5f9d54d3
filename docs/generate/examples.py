"""Creates the examples of the reference: two small pipelines process a few source records in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from skewless.algorithms.aggregates import AGGREGATES
from skewless.asyncapi.document import ANY, described_topics
from skewless.asyncapi.messages import Message, messages_of
from skewless.config.pipeline_settings import PipelineSettings
from skewless.in_memory import InMemoryPipeline
from skewless.wire.headers import JSON, SCHEMA_HEADER
from skewless.wire.record import OutputRecord

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
NOW_MS = START_MS + 120_000
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
            "time": {"field": "time"},
        },
        "worker_input": {"encoding": "record"},
        "aggregator": {"aggregates": list(AGGREGATES)[:1]},
    }
)
"""A pipeline with named values."""
EVENTS = (("en", 42, 1_000), ("de", 7, 2_000), ("en", 3, 75_000), ("fr", 5, 3_000), *[("en", 1, 121_000)] * 200)
"""Key, value and time of tuples of three windows. One is late, and the last tick has enough tuples for a hot key."""
LEFT = (("1a", 1_000, {"item": "mug"}), ("1b", 4_000, {"item": "cup"}), ("1c", 3_000, {"item": "pot"}))
RIGHT: Sequence[tuple[str, int, dict[str, str]]] = (("1a", 1_250, {}), ("1d", 2_000, {}))
"""Id, time and other fields of the records of a join. The last left one is late."""


def examples() -> dict[str, dict[str, Any]]:
    """Return one example for each message of the document, by the message's name.

    A deletion is that of the first result: neither pipeline deletes one.
    """
    found: dict[str, dict[str, Any]] = {}
    for settings in (ANY, WITH_VALUES):
        written = written_records(settings)
        for topic in described_topics(settings):
            for record in written.get(topic, ()):
                schema = dict(record.headers).get(SCHEMA_HEADER, b"").decode()
                for message in [row for row in messages_of(topic) if (row.schema_header or "") == schema]:
                    of_kind = msgspec.structs.replace(record, value=None) if message.deletes else record
                    found.setdefault(message.name, _example(message, of_kind))
    return found


def _example(message: Message, record: OutputRecord) -> dict[str, Any]:
    text = None if record.value is None else record.value.decode()
    payload = json.loads(text) if text and message.content_type == JSON else text
    parts = {"headers": {name: value.decode() for name, value in record.headers}, "payload": payload}
    key = None if record.key is None else record.key.decode()
    extensions = {"x-example-key": key, "x-example-timestamp": record.timestamp}
    return {
        "examples": [{name: part for name, part in parts.items() if part}],
        **{name: value for name, value in extensions.items() if value is not None},
    }


def written_records(settings: PipelineSettings) -> dict[str, list[OutputRecord]]:
    """Return what a pipeline with the topics and fields of `ANY` writes to each topic."""
    tuples = [
        _record("source", START_MS, {"key": key, "value": value, "time": START_MS + ms}) for key, value, ms in EVENTS
    ]
    invalid = OutputRecord("source", b'{"key": "en", "value": 1', b"en", timestamp=START_MS)
    of_join = [
        _record(topic, START_MS + ms, {"id": row_id, "time": START_MS + ms, **fields}, row_id.encode())
        for topic, rows in (("left", LEFT), ("right", RIGHT))
        for row_id, ms, fields in rows
    ]
    event = _record("events", START_MS, {"user": "7", "page": "/", "time": START_MS})
    records = [record for record in (*tuples, invalid, *of_join, event) if record.topic in settings.user_inputs]
    rows = [_record(topic, START_MS, {"country": "de"}, b"7") for topic in settings.table_topics.values()]
    return InMemoryPipeline(settings).process([*rows, *records], NOW_MS, end=True)


def _record(topic: str, timestamp: int, fields: dict[str, Any], key: bytes | None = None) -> OutputRecord:
    return OutputRecord(topic, json.dumps(fields).encode(), key, timestamp=timestamp)
