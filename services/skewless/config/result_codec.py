"""Chooses the functions that write and read the results of a pipeline, and registers their schemas.

Results are the records of `aggregates` and, of a join, the pairs in `joined`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BadRecordError, ConfigurationError, UnknownSchemaError
from skewless.schema_registry.client import ReferencesError, RegistryClient
from skewless.schema_registry.result_codecs import decoder, encoder
from skewless.schema_registry.result_registration import register
from skewless.schema_registry.result_schemas import ResultSchema, pair_schema, result_schema
from skewless.schema_registry.settings import REGISTRY, ResultFormat, Subject
from skewless.wire.aggregates import AGGREGATE, Encode, ToJson, encode_json, unchanged
from skewless.wire.headers import BYTES, public_headers
from skewless.wire.joined import JOINED
from skewless.wire.record import OwnHeaders


class ResultWriter(NamedTuple):
    """How results are written."""

    encode: Encode
    headers: OwnHeaders


def result_writer(settings: PipelineSettings, report_wait: Callable[[str], None] | None = None) -> ResultWriter:
    """Return how results are written. Registers their schema, unless the format is json.

    `report_wait` receives the name of the registry before that.
    Raises ConfigurationError if the schema is not compatible with the registered one, UnreachableError if the registry
    does not answer, and RegistryError if it refuses the login or the schema.
    """
    return _writer(settings, aggregates_output(settings), report_wait)


def pair_writer(settings: PipelineSettings, report_wait: Callable[[str], None] | None = None) -> ResultWriter:
    """Return how pairs are written. Registers their schema as `result_writer` does, with the same errors."""
    return _writer(settings, joined_output(settings), report_wait)


def result_reader(settings: PipelineSettings) -> ToJson:
    """Return a function from values of the topic `aggregates` to JSON. It may wait for the registry."""
    return _reader(settings, aggregates_output(settings))


def pair_reader(settings: PipelineSettings) -> ToJson:
    """Return a function from values of the topic `joined` to JSON. It may wait for the registry."""
    return _reader(settings, joined_output(settings))


@dataclass(frozen=True, slots=True)
class ResultOutput:
    """A topic of results, and how its records are written."""

    topic: str
    header: str
    """Name of the schema in the headers of its records."""
    setting: str
    """Setting on which the schema depends."""
    format: ResultFormat
    subject_strategy: Subject
    schema: ResultSchema

    @property
    def subject(self) -> str:
        """Subject of the schema by the strategy of the settings."""
        match self.subject_strategy:
            case "topic":
                return f"{self.topic}-value"
            case "record":
                return self.schema.full_name
            case "topic_record":
                return f"{self.topic}-{self.schema.full_name}"


def aggregates_output(settings: PipelineSettings) -> ResultOutput:
    """Return how the results of a pipeline are written."""
    aggregator, parts = settings.aggregator, settings.splitter.key.parts
    schema = result_schema(settings.full_name, settings.results, aggregator.numbers, parts)
    topic = settings.topic("aggregates")
    return ResultOutput(topic, AGGREGATE, "aggregator.aggregates", aggregator.format, aggregator.subject, schema)


def joined_output(settings: PipelineSettings) -> ResultOutput:
    """Return how the pairs of a pipeline are written. Raises ConfigurationError if it joins nothing."""
    join, schema = settings.joined, pair_schema(settings.full_name)
    return ResultOutput(settings.topic("joined"), JOINED, "join.format", join.format, join.subject, schema)


def _writer(
    settings: PipelineSettings, output: ResultOutput, report_wait: Callable[[str], None] | None
) -> ResultWriter:
    if output.format == "json":
        return ResultWriter(encode_json, public_headers(output.header))
    # An encoder that cannot be built, for example without its package, must not leave a schema in the registry.
    encoder(output.format, output.schema, 0)
    if report_wait is not None:
        report_wait(REGISTRY)
    schema_id = register(_client(settings), output.subject, output.format, output.schema, output.setting)
    return ResultWriter(encoder(output.format, output.schema, schema_id), public_headers(output.header, BYTES))


def _reader(settings: PipelineSettings, output: ResultOutput) -> ToJson:
    if output.format == "json":
        return unchanged
    client = _client(settings)

    def text_of(schema_id: int) -> str:
        try:
            return client.wait(partial(client.schema, schema_id)).text
        except UnknownSchemaError:
            raise BadRecordError(f"the registry has no schema {schema_id}") from None
        except ReferencesError as error:
            raise BadRecordError(f"schema {schema_id} {error.reason}") from None

    return decoder(output.format, output.schema, text_of)


def _client(settings: PipelineSettings) -> RegistryClient:
    if settings.registry is None:  # the settings are checked
        raise ConfigurationError("registry.url: missing")
    return RegistryClient(settings.registry)
