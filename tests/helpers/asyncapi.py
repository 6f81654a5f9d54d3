"""Validates AsyncAPI documents against the official schema, and records against the schemas of a document."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

from helpers.kafka import Record
from helpers.tools import unavailable
from skewless.asyncapi.document import ASYNCAPI, Document
from skewless.asyncapi.messages import Message, messages_of
from skewless.lab.local.folders import cache_folder, file_lock
from skewless.wire.headers import JSON, SCHEMA_HEADER

SPECS = "@asyncapi/specs@6.11.1"
INTEGRITY = "sha512-A3WBLqAKGoJ2+6FWFtpjBlCQ1oFCcs4GxF7zsIGvNqp/klGUHjlA3aAcZ9XMMpLGE8zPeYDz2x9FmO6DSuKraQ=="
"""Checksum of the package's tarball, in the format of npm's lock files."""
FETCH_S = 60


def official_schema() -> dict[str, Any]:
    """Return AsyncAPI's own JSON Schema, from a package that npm downloads once and whose checksum is locked here."""
    folder = cache_folder() / "asyncapi"
    with file_lock(folder / ".lock"):
        tarball = folder / "specs.tgz"
        if not tarball.is_file() or _integrity(tarball) != INTEGRITY:
            _fetch(tarball)
        with tarfile.open(tarball) as package:
            file = package.extractfile(f"package/schemas/{ASYNCAPI}-without-$id.json")
            assert file is not None
            schema: dict[str, Any] = json.load(file)
    return schema


def _fetch(tarball: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        unavailable(f"AsyncAPI's schema is fetched with npm, which is not installed: {SPECS}")
    with tempfile.TemporaryDirectory(dir=tarball.parent) as folder:
        command = [npm, "pack", "--silent", "--pack-destination", folder, SPECS]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            unavailable(f"npm cannot fetch {SPECS}: {error}\n{error.stderr!r}")
        (fetched,) = Path(folder).glob("*.tgz")
        assert _integrity(fetched) == INTEGRITY, f"what npm fetched is not the locked {SPECS}"
        fetched.replace(tarball)


def _integrity(tarball: Path) -> str:
    return f"sha512-{base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()}"


def problems(document: Any, schema: dict[str, Any]) -> list[str]:
    """List the places where a document violates a schema."""
    return [_describe(error) for error in jsonschema.Draft7Validator(schema).iter_errors(document)]


def _describe(error: jsonschema.ValidationError) -> str:
    return f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"


def message_of(topic: str, record: Record) -> Message | None:
    """Return the kind of a record; None if the topic has no such kind. Records of version 0.2.0 have no format."""
    schema = record.headers.get(SCHEMA_HEADER)
    kinds = [kind for kind in messages_of(topic) if schema is None or kind.schema_header == schema.decode()]
    of_value = [kind for kind in kinds if kind.deletes == (record.value is None)]
    return next(iter([*of_value, *kinds]), None)


class Records:
    """Validates records against the schemas of a document, which are closed here: unknown fields are errors."""

    def __init__(self, document: Document) -> None:
        messages = document["components"]["messages"]
        schemas = {name: _closed(schema) for name, schema in document["components"]["schemas"].items()}
        (trait,) = document["components"]["messageTraits"].values()
        anywhere = trait["headers"]["properties"]
        self._parts = {name: _parts(message, schemas, anywhere) for name, message in messages.items()}

    def problems(self, topic: str, record: Record) -> Iterator[str]:
        """List the differences between a record of a topic (by its name in the topology) and its schema."""
        found = message_of(topic, record)
        if found is None:
            yield f"{topic}: {record} matches no schema of the document"
            return
        is_json = found.content_type == JSON and record.value is not None
        instances = {
            "key": _text(record.key),
            "headers": {name: entry.decode() for name, entry in record.headers.items()},
            "value": json.loads(record.value or b"") if is_json else _text(record.value),
        }
        for part, instance in instances.items():
            errors = (_describe(error) for error in self._parts[found.name][part].iter_errors(instance))
            yield from (f"{topic}: {part} of {record}: {problem}" for problem in errors)


def _parts(
    message: dict[str, Any], schemas: dict[str, Any], anywhere: dict[str, Any]
) -> dict[str, jsonschema.Draft7Validator]:
    headers = message.get("headers", {"properties": {}})
    parts = {
        "key": message["bindings"]["kafka"]["key"],
        "headers": _closed(headers | {"properties": headers["properties"] | anywhere}),
        "value": message["payload"],
    }
    known = {"components": {"schemas": schemas}}
    return {name: jsonschema.Draft7Validator({"allOf": [schema], **known}) for name, schema in parts.items()}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    return schema | {"additionalProperties": False} if "properties" in schema else schema
