"""Chooses the functions that write and read the results of a pipeline, and registers their schema."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BadRecordError, ConfigurationError, UnknownSchemaError
from skewless.schema_registry.client import RegistryClient
from skewless.schema_registry.result_codecs import decoder, encoder
from skewless.schema_registry.result_registration import register
from skewless.schema_registry.result_schemas import ResultSchema, result_schema
from skewless.wire.aggregates import AGGREGATE, AGGREGATE_HEADERS, Encode, ToJson, encode_json, unchanged
from skewless.wire.headers import BYTES, public_headers
from skewless.wire.record import OwnHeaders


class ResultWriter(NamedTuple):
    """How results are written."""

    encode: Encode
    headers: OwnHeaders


def result_writer(settings: PipelineSettings) -> ResultWriter:
    """Return how results are written. Registers their schema, unless the format is json.

    Raises ConfigurationError if the schema is not compatible with the registered one, UnreachableError if the registry
    does not answer, and RegistryError if it refuses the login or the schema.
    """
    schema_format = settings.aggregator.format
    if schema_format == "json":
        return ResultWriter(encode_json, AGGREGATE_HEADERS)
    schema = schema_of_results(settings)
    schema_id = register(_client(settings), subject_of(settings, schema), schema_format, schema)
    return ResultWriter(encoder(schema_format, schema, schema_id), public_headers(AGGREGATE, BYTES))


def result_reader(settings: PipelineSettings) -> ToJson:
    """Return a function from values of the topic `aggregates` to JSON. It may wait for the registry."""
    schema_format = settings.aggregator.format
    if schema_format == "json":
        return unchanged
    client = _client(settings)

    def text_of(schema_id: int) -> str:
        try:
            return client.wait(partial(client.schema, schema_id)).text
        except UnknownSchemaError:
            raise BadRecordError(f"the registry has no schema {schema_id}") from None

    return decoder(schema_format, schema_of_results(settings), text_of)


def schema_of_results(settings: PipelineSettings) -> ResultSchema:
    """Return the schema of the results of a pipeline."""
    numbers, parts = settings.aggregator.numbers, settings.splitter.key.parts
    return result_schema(settings.full_name, settings.results, numbers, parts)


def subject_of(settings: PipelineSettings, schema: ResultSchema) -> str:
    """Return the subject of the schema by the strategy of the settings."""
    topic = settings.topic("aggregates")
    match settings.aggregator.subject:
        case "topic":
            return f"{topic}-value"
        case "record":
            return schema.full_name
        case "topic_record":
            return f"{topic}-{schema.full_name}"


def _client(settings: PipelineSettings) -> RegistryClient:
    if settings.registry is None:  # the settings are checked
        raise ConfigurationError("registry.url: missing")
    return RegistryClient(settings.registry)
