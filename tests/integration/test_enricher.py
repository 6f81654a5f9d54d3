"""Records get the fields of their rows exactly once, while the enricher is killed and while rows change."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from helpers.avro import encoded, record_of
from helpers.kafka import START_MS, Pipeline, Sent, Source, create_with
from helpers.registry_gate import Gate
from helpers.schema_registry import API, RegistryServer
from helpers.waiting import WAIT_S, until
from integration.registry.test_avro_pipeline import readiness
from skewless.engine.message_batch import MessageBatch
from skewless.errors import BrokerError
from skewless.kafka.settings import KafkaSettings
from skewless.lab.local.ports import find_free_ports
from skewless.lab.local.supervisor import Supervisor
from skewless.stages.enricher.follower import TableFollower
from skewless.stages.enricher.settings import TableSettings
from skewless.stages.enricher.table import Table
from skewless.wire.dead_letters import DeadLetterHeaders
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

POINTS = "written", "before-offsets", "in-commit", "after-commit"
USERS = 50
PARTITIONS = 3
PORTION = 60
COMPACTED = {"cleanup.policy": "compact"}
COUNTRIES = "de", "fr", "it"


class UserTable:
    """A compacted topic with a row for each user."""

    def __init__(self, bootstrap: str, partitions: int = 2, config: Mapping[str, str] = COMPACTED) -> None:
        self.topic = f"users-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        create_with(self.admin, {self.topic: partitions}, **config)
        self._servers = {"bootstrap.servers": bootstrap, "log_level": 2}

    def put(self, rows: Mapping[int, str | None], partition: int = -1) -> None:
        """Write the country of users; None deletes the row, and an empty one is a row that cannot be read."""

        def value(country: str | None) -> bytes | None:
            return {None: None, "": b"{"}.get(country, json.dumps({"geo": {"country": country}}).encode())

        self.write({user: value(country) for user, country in rows.items()}, partition)

    def write(self, rows: Mapping[int, bytes | None], partition: int = -1) -> None:
        """Write the rows of users."""
        producer = Producer(self._servers)  # it knows the present partitions
        for user, value in rows.items():
            options = {} if partition < 0 else {"partition": partition}
            producer.produce(self.topic, value, str(user), **options)
        assert not producer.flush(WAIT_S)


def country_of(user: int) -> str:
    return COUNTRIES[user % len(COUNTRIES)]


def enriching(broker: str, folder: Path, table: UserTable, **of_table: object) -> Pipeline:
    settings = {"topic": table.topic, "key": {"field": "user"}, "fields": {"country": "geo.country"}, **of_table}
    source = Source(broker, PARTITIONS)
    enrich = {"topic": source.topic, "tables": [settings]}
    splitter = {"key": {"header": "country"}, "value": {"constant": 1}}
    return Pipeline(broker, folder, source, enrich=enrich, splitter=splitter, replicas={"enricher": 2})


def views(users: Iterable[int], start: int = 0) -> list[Sent]:
    """Return records of users, in portions of 5 for each partition."""
    return [
        (number // 5 % PARTITIONS, json.dumps({"user": user, "time": START_MS + number, "id": number}).encode())
        for number, user in enumerate(users, start)
    ]


def enriched(pipeline: Pipeline) -> dict[int, list[tuple[int, str | None]]]:
    """Return the id and the country of the records of each partition, in their order."""
    found: dict[int, list[tuple[int, str | None]]] = {partition: [] for partition in range(PARTITIONS)}
    for row in sorted(pipeline.read("enriched"), key=lambda row: row.offset):
        country = row.headers.get("country")
        found[row.partition].append((json.loads(row.value or b"")["id"], None if country is None else country.decode()))
    return found


def by_partition(records: Iterable[Sent], country: Mapping[int, str | None]) -> dict[int, list[tuple[int, str | None]]]:
    found: dict[int, list[tuple[int, str | None]]] = {partition: [] for partition in range(PARTITIONS)}
    for partition, value in records:
        view = json.loads(value or b"")
        found[partition].append((view["id"], country[view["user"]]))
    return found


def counted(pipeline: Pipeline) -> Counter[str]:
    results, errors = pipeline.results()
    assert not errors
    return Counter({key: result["count"] for (_, key), result in results.items()})


def reasons(pipeline: Pipeline) -> list[str]:
    name = f"__skewless.errors.{DeadLetterHeaders.__struct_fields__[3]}"
    return [row.headers[name].decode() for row in pipeline.read("dead-letters")]


def poll(supervisor: Supervisor) -> list[Any]:
    return supervisor.poll(time.monotonic())


def send_until_killed(pipeline: Pipeline, supervisor: Supervisor, point: str, first: int) -> list[Sent]:
    """Kill a process of the enricher at this point of a transaction with records; returns all records sent until then.

    Until the first rebalance has ended, the other process can own all partitions: records follow until the kill.
    """
    pipeline.arm("enricher-0", point, "kill", topic=pipeline.settings.topic("enriched"))
    sent: list[Sent] = []
    events: list[str] = []

    def send_more() -> None:
        records = views((user % USERS for user in range(PORTION)), first + len(sent))
        pipeline.source.send(records)
        sent.extend(records)
        events.extend(event.detail for event in poll(supervisor))

    until(lambda: any(event.startswith("was killed") for event in events), each=send_more)
    return sent


def test_enricher_killed_at_each_point_adds_the_field_to_each_record_once(broker: str, tmp_path: Path) -> None:
    table = UserTable(broker)
    table.put({user: country_of(user) for user in range(USERS)})
    pipeline = enriching(broker, tmp_path, table)
    sent: list[Sent] = []
    with pipeline.running(armed=True) as supervisor:
        for point in POINTS:
            sent += send_until_killed(pipeline, supervisor, point, len(sent))
    pipeline.drain()
    countries = {user: country_of(user) for user in range(USERS)}
    assert enriched(pipeline) == by_partition(sent, countries)
    assert counted(pipeline) == Counter(countries[json.loads(value or b"")["user"]] for _, value in sent)


def test_enricher_follows_its_table_while_it_runs(broker: str, tmp_path: Path) -> None:
    table = UserTable(broker)
    table.put({0: "de", 1: "de", 2: "de", 3: "de"})
    pipeline = enriching(broker, tmp_path, table, missing="keep", default="unknown")
    before = {0: "de", 1: "de", 2: "de", 3: "de", 4: "unknown"}
    after = {0: "fr", 1: "unknown", 2: "unknown", 3: "de", 4: "unknown"}
    with pipeline.running() as supervisor:

        def wait_for(sent: int) -> None:
            until(lambda: sum(map(len, enriched(pipeline).values())) == sent, each=lambda: poll(supervisor))

        first = views(range(5))
        pipeline.source.send(first)
        wait_for(5)
        table.put({0: "fr", 1: None, 2: ""})
        sent = len(first)

        def is_followed() -> bool:
            nonlocal sent
            pipeline.source.send(views([*range(5)] * PARTITIONS, sent))  # all users in each partition
            sent += 5 * PARTITIONS
            wait_for(sent)
            last = [[country for _, country in rows[-5:]] for rows in enriched(pipeline).values()]
            return last == [[*after.values()]] * PARTITIONS

        until(is_followed)  # rows need a moment to arrive; no row is lost if it is longer
    found = enriched(pipeline)
    assert {partition: found[partition][: len(rows)] for partition, rows in by_partition(first, before).items()} == (
        by_partition(first, before)
    )
    # One process may have had all partitions meanwhile.
    assert "unreadable row: " in "".join(log.read_text() for log in pipeline.folder.glob("enricher-*.log"))


def test_enricher_whose_record_has_no_row_writes_a_dead_letter_that_is_replayed(broker: str, tmp_path: Path) -> None:
    table = UserTable(broker)
    table.put({0: "de"})
    pipeline = enriching(broker, tmp_path, table)
    pipeline.source.send(views([0, 1]))
    pipeline.drain()
    assert counted(pipeline) == {"de": 1}
    assert reasons(pipeline) == [f"table {table.topic} has no row for its key (enrich.tables.0.key)"]


def test_enricher_reads_added_partitions_of_its_table_at_its_next_start(broker: str, tmp_path: Path) -> None:
    table = UserTable(broker, partitions=1)
    table.put({0: "de"})
    pipeline = enriching(broker, tmp_path, table)
    pipeline.source.send(views([0]))
    pipeline.drain()
    table.admin.create_partitions([NewPartitions(table.topic, 2)])[table.topic].result()
    until(lambda: len(table.admin.list_topics(table.topic, WAIT_S).topics[table.topic].partitions) == 2)
    table.put({1: "fr"}, partition=1)
    pipeline.source.send(views([1], 1))
    pipeline.drain()
    assert counted(pipeline) == {"de": 1, "fr": 1}


def test_enricher_whose_table_was_deleted_ends_with_the_topic_and_the_setting(broker: str, tmp_path: Path) -> None:
    table = UserTable(broker)
    pipeline = enriching(broker, tmp_path, table)
    table.admin.delete_topics([table.topic])[table.topic].result()
    process = pipeline.start("enricher")
    assert process.wait(WAIT_S) == 3
    log = (pipeline.folder / "enricher-0.log").read_text()
    assert f"topic {table.topic} does not exist" in log
    assert "or correct enrich.tables.0.topic" in log
    assert "Traceback" not in log


def test_follower_of_a_table_that_was_created_again_ends_with_the_topic(broker: str) -> None:
    table = UserTable(broker)
    table.put({0: "de"})
    settings = TableSettings.model_validate({"topic": table.topic, "fields": {"country": "geo.country"}})
    kafka = KafkaSettings(bootstrap_servers=broker, connect_timeout_s=WAIT_S)
    follower = TableFollower(kafka, [Table(settings)])
    follower.load()
    follower.load()
    table.admin.delete_topics([table.topic])[table.topic].result()
    until(lambda: table.topic not in table.admin.list_topics(timeout=WAIT_S).topics)
    create_with(table.admin, {table.topic: 2}, **COMPACTED)
    with pytest.raises(BrokerError, match=f"topic {table.topic} at .* was deleted and created again"):
        follower.load()


def test_follower_of_a_table_with_an_open_transaction_reads_its_rows_when_it_ends(broker: str) -> None:
    table = UserTable(broker, partitions=1)
    table.put({0: "de"})
    producer = Producer({"bootstrap.servers": broker, "log_level": 2, "transactional.id": table.topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(table.topic, b'{"geo": {"country": "fr"}}', b"1")
    assert not producer.flush(WAIT_S)
    rows = Table(TableSettings.model_validate({"topic": table.topic, "fields": {"country": "geo.country"}}))
    follower = TableFollower(KafkaSettings(bootstrap_servers=broker, connect_timeout_s=WAIT_S), [rows])
    follower.load()
    assert (rows.fields("0"), rows.fields("1")) == (["de"], None)
    producer.commit_transaction()
    records = MessageBatch.of_outputs(TopicPartition("views", 0), [OutputRecord("views", b"{}")], 0)

    async def apply_arrived() -> bool:
        if (update := follower.before_step(records)) is not None:
            await update
        return rows.fields("1") == ["fr"]

    until(lambda: asyncio.run(apply_arrived()))


def test_enricher_with_a_table_that_deletes_rows_is_refused(broker: str, tmp_path: Path) -> None:
    table = UserTable(broker, config={"cleanup.policy": "delete", "retention.ms": "604800000"})
    refused = rf"topic {table.topic} deletes rows after 604800 s .*set its option cleanup.policy to compact"
    with pytest.raises(BrokerError, match=refused):
        enriching(broker, tmp_path, table)


class AvroTable:
    """A table with a schema of its own for each portion of rows, and an enricher whose registry a test stops."""

    def __init__(self, broker: str, registry: RegistryServer, folder: Path, **parts: Any) -> None:
        self._registry, self._subject = registry, f"{folder.name}-value"
        self.table = UserTable(broker)
        self.gate = Gate(registry.port, port=find_free_ports(1)[0])
        (self.probes,) = find_free_ports(1)
        source = Source(broker, PARTITIONS)
        table = {"topic": self.table.topic, "key": {"field": "user"}, "fields": {"country": "country"}}
        self.pipeline = Pipeline(
            broker,
            folder,
            source,
            enrich={"topic": source.topic, "tables": [{**table, "format": "avro"}]},
            splitter={"key": {"header": "country"}, "value": {"constant": 1}},
            registry={"url": f"http://127.0.0.1:{self.gate.port}{API}", **parts},
            metrics={"address": "127.0.0.1", "port": self.probes},
        )
        self.sent = 0
        self._schemas = 0

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Run one process of the enricher until the end of the block."""
        self.start()
        try:
            yield
        finally:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait(WAIT_S)

    def start(self) -> None:
        self.child = self.pipeline.start("enricher")

    def restart(self) -> None:
        """Start the process again if it has ended, because the registry did not answer within its short time limit."""
        if (code := self.child.poll()) is not None:
            assert code == 3
            self.start()

    @property
    def log(self) -> str:
        return (self.pipeline.folder / "enricher-0.log").read_text()

    def page(self) -> str:
        """Return what the process says about its readiness."""
        return readiness(self.probes)

    def put(self, rows: Mapping[int, str]) -> int:
        """Write the country of users with a new schema, and return its id."""
        self._schemas += 1
        schema = record_of(f"User{self._schemas}", country="string")
        schema_id = self._registry.register(f"{self._subject}-{self._schemas}", schema)
        self.table.write({user: encoded(schema, {"country": country}, schema_id) for user, country in rows.items()})
        return schema_id

    def send(self) -> None:
        """Write a view of each user into each partition."""
        self.pipeline.source.send(views([0, 1, 2, 3, 4] * PARTITIONS, self.sent))
        self.sent += 5 * PARTITIONS

    def is_enriched(self) -> bool:
        return sum(map(len, enriched(self.pipeline).values())) == self.sent

    def last(self) -> set[tuple[str | None, ...]]:
        """Return the countries of the last view of each user, of all partitions."""
        return {tuple(country for _, country in rows[-5:]) for rows in enriched(self.pipeline).values()}


def test_enricher_whose_table_has_an_unknown_schema_waits_for_the_registry_and_loses_no_row(
    broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    tested = AvroTable(broker, registry_server, tmp_path, connect_timeout_s=1, request_timeout_s=1)
    tested.put(dict.fromkeys(range(5), "de"))
    with contextlib.ExitStack() as stack:
        with tested.gate.running():
            stack.enter_context(tested.followed())
            tested.send()
            until(tested.is_enriched, each=tested.restart)
        assert tested.last() == {("de",) * 5}
        number = tested.put(dict.fromkeys(range(5), "fr"))
        waits = f"table {tested.table.topic} waits for schema {number}: "
        until(lambda: f"{waits}no schema registry answers" in tested.log, each=tested.send)
        until(lambda: f"{waits}no schema registry answers" in tested.page())
        time.sleep(2)  # longer than the time limit of a start
        tested.gate.status = 503
        with tested.gate.running():
            until(lambda: f"{waits}schema registry at {tested.gate.url} answers with status 503" in tested.page())
            tested.gate.status = None
            until(tested.is_enriched)
        assert tested.last() == {("fr",) * 5}
        until(lambda: "waits" not in tested.page())
        # A process that waits can be stopped, and its successor applies the row.
        number = tested.put(dict.fromkeys(range(5), "it"))
        until(lambda: f"waits for schema {number}" in tested.page(), each=tested.send)
        assert tested.child.poll() is None
        tested.child.send_signal(signal.SIGTERM)
        assert tested.child.wait(WAIT_S) == 0
    with tested.gate.running(), tested.followed():
        until(tested.is_enriched, each=tested.restart)
    assert tested.last() == {("it",) * 5}


def test_enricher_whose_registry_is_down_at_the_start_waits_and_its_readiness_says_so(
    broker: str, registry_server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = AvroTable(broker, registry_server, tmp_path, connect_timeout_s=3)
    number = tested.put(dict.fromkeys(range(5), "de"))
    starting = "starting: schema registry has not answered yet"
    with tested.followed():
        until(lambda: starting in tested.page(), each=tested.restart)
        assert tested.child.wait(WAIT_S) == 3
    assert "no schema registry answers" in tested.log.splitlines()[-1]
    # The registry answers, but not about the schema.
    tested.gate.status, tested.gate.part = 503, "/schemas/ids/"
    monkeypatch.setenv("SKEWLESS__REGISTRY__CONNECT_TIMEOUT_S", str(WAIT_S))
    with tested.gate.running(), tested.followed():
        until(lambda: any(f"/schemas/ids/{number}" in path for path in tested.gate.asked))
        until(lambda: starting in tested.page())
        tested.gate.status = None
        tested.send()
        until(tested.is_enriched)
        assert tested.child.poll() is None
    assert tested.last() == {("de",) * 5}
