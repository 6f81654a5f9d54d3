"""Batches wait for their schemas: in the order of their partition, and without holding up other partitions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator, Sequence

from helpers.waiting import WAIT_S, until_in_thread
from skewless.engine.message_batch import MessageBatch
from skewless.errors import RegistryError, UnavailableError
from skewless.parsing.record_parser import NeededSchemas, RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import SourceRecords
from skewless.schema_registry.cache import SchemaCache
from skewless.schema_registry.schema import SchemaId, prefix
from skewless.schema_registry.settings import RegistrySettings
from skewless.stages.schema_fetches import SchemaFetches
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

REGISTRY = RegistrySettings.model_validate({"url": "http://127.0.0.1:1"})


class Registry(SchemaCache[str]):
    """A cache whose schemas a test makes available."""

    def __init__(self) -> None:
        super().__init__(REGISTRY, lambda _id, _schema: "")
        self.available: set[SchemaId] = set()
        self.known: set[SchemaId] = set()
        self.refuses = False
        self.attempts = 0
        self.requests: threading.Barrier | None = None
        """Lets requests end when so many have begun."""

    def missing(self, ids: Collection[SchemaId]) -> list[SchemaId]:  # type: ignore[override]  # narrower is enough here
        return [schema_id for schema_id in ids if schema_id not in self.known]

    def fetch(self, schema_id: SchemaId, keep: Collection[SchemaId] = ()) -> None:
        self.attempts += 1
        if self.requests is not None:
            self.requests.wait(WAIT_S)
        if self.refuses:
            raise RegistryError("refused")
        if schema_id not in self.available:
            raise UnavailableError("no schema registry answers")
        self.known.add(schema_id)


class Parser(RecordParser):
    """A parser that needs the schemas of a registry of a test."""

    registry: Registry

    def needed_schemas(self, records: SourceRecords) -> Iterator[NeededSchemas]:
        for _, needed in super().needed_schemas(records):
            yield self.registry, needed


class Fetches:
    """The object under test with what it calls."""

    def __init__(self) -> None:
        settings = ParsingSettings.model_validate({"format": "avro", "key": {"field": "key"}})
        settings.bind(REGISTRY)
        parser = Parser(settings)
        parser.registry = self.registry = Registry()
        self.processed: list[tuple[int, int]] = []
        self.failures: list[Exception] = []
        self.revoked: set[int] = set()
        self.following: Sequence[tuple[int, int]] = ()
        """Batches that arrive right after the next one was processed."""
        self.submitted: list[asyncio.Task[None]] = []
        self.fetches = SchemaFetches(parser.needed_schemas, self._process, self._is_current, self.failures.append)

    async def _process(self, batch: MessageBatch) -> None:
        for following in self.following:
            self.submitted.append(asyncio.create_task(self.submit(following)))
        self.following = ()
        if self._is_current(batch):
            self.processed.append((batch.partition, int.from_bytes((batch.values[0] or b"")[1:5], "big")))

    def _is_current(self, batch: MessageBatch) -> bool:
        return batch.partition not in self.revoked

    async def submit(self, *batches: tuple[int, int]) -> None:
        for partition, schema_id in batches:
            outputs = [OutputRecord("t", prefix(schema_id) + b"\0")]
            await self.fetches.submit(MessageBatch.of_outputs(TopicPartition("t", partition), outputs, 0))

    async def until_processed(self, count: int) -> None:
        await until_in_thread(lambda: len(self.processed) == count)


async def test_batches_of_a_partition_wait_in_order_and_others_go_on() -> None:
    tested = Fetches()
    tested.registry.known = {1}
    await tested.submit((0, 1), (1, 2), (1, 1), (0, 1))
    assert tested.processed == [(0, 1), (0, 1)]
    await until_in_thread(lambda: tested.fetches.waiting)
    assert tested.fetches.waiting == ("partition 1 of t waits for schema 2: no schema registry answers",)
    tested.registry.available = {2}
    await tested.until_processed(4)
    assert tested.processed[2:] == [(1, 2), (1, 1)]
    await until_in_thread(lambda: not tested.fetches.waiting)
    assert tested.failures == []


async def test_batch_with_many_unknown_ids_requests_several_at_a_time() -> None:
    tested = Fetches()
    tested.registry.available = set(range(100))
    tested.registry.requests = threading.Barrier(4)
    outputs = [OutputRecord("t", prefix(schema_id) + b"\0") for schema_id in range(100)]
    await tested.fetches.submit(MessageBatch.of_outputs(TopicPartition("t", 0), outputs, 0))
    await tested.until_processed(1)
    assert tested.registry.attempts == 100


async def test_partitions_that_need_the_same_schema_fetch_it_once() -> None:
    tested = Fetches()
    tested.registry.available = {2}
    await tested.submit(*((partition, 2) for partition in range(8)))
    await tested.until_processed(8)
    assert tested.registry.attempts == 1


async def test_partitions_that_need_the_same_schema_all_wait_and_one_may_be_revoked() -> None:
    tested = Fetches()
    await tested.submit(*((partition, 2) for partition in range(8)))
    await until_in_thread(lambda: len(tested.fetches.waiting) == 8)
    tested.revoked = {0}
    await until_in_thread(lambda: len(tested.fetches.waiting) == 7)
    failed = tested.registry.attempts
    tested.registry.available = {2}
    await tested.until_processed(7)
    assert tested.failures == []
    assert tested.registry.attempts - failed <= 2, "one, and one that may have begun before"


async def test_batch_that_arrives_when_the_last_waiting_one_is_processed_is_processed() -> None:
    tested = Fetches()
    tested.registry.available = {2}
    tested.following = [(0, 2)]
    await tested.submit((0, 2))
    await tested.until_processed(2)


async def test_registry_that_refuses_is_the_failure_of_the_stage() -> None:
    tested = Fetches()
    tested.registry.refuses = True
    await tested.submit((0, 2))
    await until_in_thread(lambda: tested.failures)
    assert str(tested.failures[0]) == "refused"
    assert tested.processed == []


async def test_partition_that_is_revoked_waits_no_longer() -> None:
    tested = Fetches()
    await tested.submit((0, 2))
    await until_in_thread(lambda: tested.registry.attempts)
    tested.revoked = {0}
    await until_in_thread(lambda: not tested.fetches.waiting)
    tested.revoked = set()
    tested.registry.known = {2}
    await tested.submit((0, 2))
    await tested.until_processed(1)
    assert tested.processed == [(0, 2)]
