"""The Protobuf files of Confluent's registry, which schemas import without a reference."""

from __future__ import annotations

from typing import Any


def built_in_files() -> list[Any]:
    """Return the descriptors of the files. Raises ImportError if the extra `registry` is not installed."""
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
    from confluent_kafka.schema_registry.confluent.types import decimal_pb2 as old_decimal_pb2

    return [module.DESCRIPTOR for module in (meta_pb2, decimal_pb2, variant_pb2, old_decimal_pb2)]
