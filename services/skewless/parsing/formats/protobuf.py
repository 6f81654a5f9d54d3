"""Format protobuf: one Protobuf message per record, with the schema of a registry or of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np
from pydantic import Field, model_validator

from skewless.algorithms.record_size import DOCUMENT_BYTES
from skewless.errors import ConfigurationError, how_to_add
from skewless.parsing.converters import Problems
from skewless.parsing.elements import Plan, Scanned, WantedPaths
from skewless.parsing.formats.base import FormatSettings
from skewless.parsing.formats.element_format import ElementFormat, Scan
from skewless.parsing.formats.schema_format import Payloads, SchemaFormatSettings, TooLongError
from skewless.parsing.protobuf.compile_schema import compile_text, message_at, pool_of
from skewless.parsing.protobuf.plan import plan_of
from skewless.parsing.protobuf.scan import ERRORS, scan
from skewless.schema_registry.schema import FIRST, Indexes, Schema, split_indexes
from skewless.settings_base import InvalidSettingsError

SMALL_BYTES = 16_384
"""Maximum bytes of a payload whose JSON is written without an estimate: it has few messages, and so few defaults."""


class ProtobufSettings(SchemaFormatSettings):
    """Settings of the format protobuf."""

    name: Literal["protobuf"] = "protobuf"
    message: str | None = Field(
        None,
        min_length=1,
        description="Full name of the message of all records, such as `acme.Click`, in the file `schema`: descriptors "
        "as `protoc --descriptor_set_out FILE --include_imports` writes them.",
    )

    @model_validator(mode="after")
    def _message_fits(self) -> Self:
        if (self.message is None) != (self.schema_ is None):
            raise InvalidSettingsError("message: schema and message belong together, set both or none")
        return self


@dataclass(slots=True)
class ProtobufSchema:
    """A schema as the format needs it, and the plans of its messages that have occurred."""

    label: str
    file: Any
    """Descriptor of the file; None for the schema of a file, which has one message."""
    plans: dict[tuple[Indexes, bool], Plan] = field(default_factory=dict)
    """Plans by message, and by whether conditions need the fields."""
    message: Any = None
    """Descriptor of the message of the schema of a file."""


class Protobuf(ElementFormat[ProtobufSchema]):
    """One Protobuf message per record, in Confluent's wire format or, with `schema`, on its own.

    Fields have their name in the schema or that of JSON. A field without presence that is absent has its default, such
    as 0. Any other absent field is missing. A timestamp is an event time, or text in ISO 8601. A wrapper, such as
    `google.protobuf.StringValue`, is its value.
    """

    settings: ClassVar[type[FormatSettings]] = ProtobufSettings
    kind: ClassVar[str] = "Protobuf"
    schema_type: ClassVar[str] = "PROTOBUF"
    broken: ClassVar[Mapping[int, str]] = ERRORS
    lists_may_be_null: ClassVar[bool] = False

    def __init__(self, settings: ProtobufSettings, fields: Any) -> None:
        try:
            _precompile()
        except ImportError as error:
            raise ConfigurationError(
                f"format: protobuf cannot be imported ({error}): {how_to_add('registry')}"
            ) from None
        self._message = settings.message or ""
        super().__init__(settings, fields)

    def compile_file(self, path: Path) -> ProtobufSchema:
        """Read descriptors; see `SchemaFormat.compile_file`."""
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

        schema = ProtobufSchema(f"schema {path.name}", None)
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
            descriptor = pool_of(files).FindMessageTypeByName(self._message)
        except OSError as error:
            raise ConfigurationError(f"format.schema: {path}: cannot be read: {error.strerror}") from None
        except (DecodeError, ValueError):
            raise ConfigurationError(
                f"format.schema: {path}: is not a set of descriptors, as protoc writes it"
            ) from None
        except KeyError:
            raise ConfigurationError(f"format.message: {self._message} is not in {path}") from None
        schema.message = descriptor
        for optional in (False, True):
            schema.plans[FIRST, optional] = plan_of(descriptor, self.wanted(optional=optional))
        self.refuse_missing(schema.plans[FIRST, False], schema.plans[FIRST, True], schema.label)
        return schema

    def compile_schema(self, schema: Schema, label: str) -> ProtobufSchema:
        """Compile the text of a schema; see `SchemaFormat.compile_schema`."""
        return ProtobufSchema(label, compile_text(schema))

    def document(self, schema: ProtobufSchema, payload: bytes) -> bytes:
        """Return a message in Protobuf's JSON, with the names of its schema; see `SchemaFormat.document`."""
        from google.protobuf import json_format, message_factory
        from google.protobuf.message import DecodeError

        descriptor, size = schema.message, 0
        if schema.file is not None:
            indexes, size = split_indexes(payload) or (FIRST, 0)
            descriptor = message_at(schema.file, indexes)
        try:
            message = message_factory.GetMessageClass(descriptor).FromString(payload[size:])
            if len(payload) > SMALL_BYTES and least_json_bytes(message) > DOCUMENT_BYTES:
                raise TooLongError
            found = json_format.MessageToDict(
                message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        except (DecodeError, json_format.Error, TypeError) as error:  # TypeError: a message of an unknown type
            raise ValueError(str(error)) from None
        return msgspec.json.encode(found)

    def scan(self, values: Sequence[bytes | None], invalid: Problems, *, optional: bool) -> Iterator[Scan]:
        """Scan the records of each message; see `ElementFormat.scan`."""
        wanted, depth = self.wanted(optional=optional), self._limits.max_depth
        for payloads in self.payloads(values, invalid):
            schema = payloads.schema
            parts = [(FIRST, payloads)] if schema.file is None else _by_message(payloads, invalid)
            for indexes, part in parts:
                plan = self._plan(schema, indexes, wanted, optional=optional)
                if plan is None:
                    invalid |= dict.fromkeys(part.rows.tolist(), f"no such message in {schema.label}")
                else:
                    found = Scanned.of(scan, plan, wanted, part.data, part.starts, part.ends, depth)
                    yield Scan(part.rows, found, schema.label, plan.absent)

    def _plan(self, schema: ProtobufSchema, indexes: Indexes, wanted: WantedPaths, *, optional: bool) -> Plan | None:
        """Return the plan of a message; None if the schema has no such message."""
        at = (indexes, optional)
        if at not in schema.plans:
            descriptor = message_at(schema.file, indexes)
            if descriptor is None:  # not kept: a broken record may name any message
                return None
            schema.plans[at] = plan = plan_of(descriptor, wanted)
            self.warn_of_missing(plan, schema.label, optional=optional)
        return schema.plans[at]


def least_json_bytes(message: Any) -> int:
    """Return a lower bound of the bytes of a message as JSON: those of its names. Stops above `DOCUMENT_BYTES`."""
    least, remaining = 0, [message]
    defaults: dict[str, int] = {}
    while remaining and least <= DOCUMENT_BYTES:
        found = remaining.pop()
        name = found.DESCRIPTOR.full_name
        if name.startswith("google.protobuf."):  # its JSON may have other names, or none
            continue
        if name not in defaults:
            always = (part.name for part in found.DESCRIPTOR.fields if not part.has_presence)
            defaults[name] = sum(len(f'"{each}":0') for each in always)
        least += defaults[name]
        for part, value in found.ListFields():
            if part.has_presence:
                least += len(part.name)
            if part.message_type is None:
                continue
            if part.message_type.GetOptions().map_entry:
                remaining += [entry for entry in value.values() if hasattr(entry, "ListFields")]
            else:
                remaining += value if part.is_repeated else [value]
    return least


def _precompile() -> None:
    """Compile the scan, so that the first batch does not wait for it. Takes seconds unless the code is cached."""
    from google.protobuf.wrappers_pb2 import StringValue

    wanted = WantedPaths.of([("value",)])
    plan = plan_of(StringValue.DESCRIPTOR, wanted)
    payload = np.frombuffer(StringValue(value="a").SerializeToString(), np.uint8)
    Scanned.of(scan, plan, wanted, payload, np.array([0]), np.array([len(payload)]), 1).column(0, 0)


def _by_message(
    payloads: Payloads[ProtobufSchema], invalid: Problems
) -> Iterator[tuple[Indexes, Payloads[ProtobufSchema]]]:
    """Yield each message with its records, after the indexes by which a record names it."""
    data, starts, ends = payloads.data, payloads.starts, payloads.ends
    # Almost all records name the first message, with one byte.
    is_first = (starts < ends) & (data[np.minimum(starts, len(data) - 1)] == 0)
    contents = starts + 1
    others: dict[Indexes, list[int]] = {}
    for record in np.flatnonzero(~is_first).tolist():
        indexes = split_indexes(data[starts[record] : ends[record]].tobytes())
        if indexes is None:
            invalid[int(payloads.rows[record])] = f"no message at the beginning of the record ({payloads.schema.label})"
            continue
        message, size = indexes
        contents[record] = starts[record] + size
        if message == FIRST:
            is_first[record] = True
        else:
            others.setdefault(message, []).append(record)
    groups = {FIRST: np.flatnonzero(is_first)} if is_first.any() else {}
    groups |= {message: np.array(records, np.int64) for message, records in others.items()}
    for message, chosen in groups.items():
        yield message, Payloads(payloads.schema, payloads.rows[chosen], data, contents[chosen], ends[chosen])
