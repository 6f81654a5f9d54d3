"""The cache of schemas: bounded for any number of ids, and a batch keeps the schemas that it needs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import pytest

from skewless.errors import UnknownSchemaError
from skewless.schema_registry.cache import CAPACITY, UNKNOWN, UNKNOWN_S, SchemaCache, Unusable
from skewless.schema_registry.client import ReferencesError
from skewless.schema_registry.schema import Schema, SchemaId
from skewless.schema_registry.settings import RegistrySettings

IDS = 10_000
CYCLIC = -1
"""Id of a schema whose references cannot be followed."""
REGISTRY = RegistrySettings.model_validate({"url": "http://127.0.0.1:1"})


class Server:
    """A registry with the schemas 1 to IDS, which counts its requests."""

    def __init__(self) -> None:
        self.requests: Counter[SchemaId] = Counter()

    def schema(self, schema_id: SchemaId) -> Schema:
        self.requests[schema_id] += 1
        if schema_id == CYCLIC:
            raise ReferencesError(REGISTRY.url, "refers to itself")
        if not isinstance(schema_id, int) or not 0 < schema_id <= IDS:
            raise UnknownSchemaError("unknown")
        return Schema("AVRO", f"{schema_id}")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def cache(server: Server) -> SchemaCache[str]:
    made: SchemaCache[str] = SchemaCache(REGISTRY, lambda _, schema: schema.text)
    made.client = server  # type: ignore[assignment]  # has the method that the cache calls
    return made


def fetch(cache: SchemaCache[str], batch: Sequence[SchemaId]) -> list[str | Unusable]:
    """Do what a stage does with a batch: fetch what is missing, then read each schema."""
    for schema_id in cache.missing(batch):
        cache.fetch(schema_id, batch)
    return [cache.get(schema_id) for schema_id in batch]


@pytest.mark.parametrize("per_batch", [50, 3 * CAPACITY])
def test_cache_with_10_000_ids_is_bounded_and_has_all_of_a_batch(
    cache: SchemaCache[str], server: Server, per_batch: int
) -> None:
    for first in range(1, IDS + 1, per_batch):
        batch = range(first, min(first + per_batch, IDS + 1))
        assert fetch(cache, batch) == [str(schema_id) for schema_id in batch]
        assert len(cache) <= max(CAPACITY, per_batch)
    assert set(server.requests.values()) == {1}
    fetch(cache, [1])
    assert len(cache) == CAPACITY


def test_cache_keeps_the_schemas_that_were_used_last_and_those_of_a_batch(
    cache: SchemaCache[str], server: Server
) -> None:
    fetch(cache, range(1, CAPACITY + 1))
    assert cache.get(1) == "1"
    fetch(cache, [CAPACITY + 1])
    assert cache.missing([1, 2, 3]) == [2]
    # The schema 3 is the oldest now, but the batch needs it.
    fetch(cache, [3, CAPACITY + 2])
    assert (server.requests[1], server.requests[3]) == (1, 1)


def test_cache_with_unknown_ids_is_bounded_and_asks_again_after_a_time(
    cache: SchemaCache[str], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(IDS + 1, 2 * IDS, 500):
        assert set(fetch(cache, range(first, first + 500))) == {UNKNOWN}
    assert len(cache) == CAPACITY
    for _ in range(3):
        assert fetch(cache, [3 * IDS]) == [UNKNOWN]
    assert server.requests[3 * IDS] == 1
    expired = time.monotonic() + UNKNOWN_S
    monkeypatch.setattr(time, "monotonic", lambda: expired)
    assert fetch(cache, [3 * IDS]) == [UNKNOWN]
    assert server.requests[3 * IDS] == 2


def test_cache_schema_whose_references_cannot_be_followed_is_unusable(cache: SchemaCache[str], server: Server) -> None:
    for _ in range(2):
        assert fetch(cache, [CYCLIC, 1]) == [Unusable("one that refers to itself"), "1"]
    assert server.requests[CYCLIC] == 1
