"""A pipeline over a topic of Avro with a real registry: schemas that evolve, records that cannot be read, outages."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from helpers.avro import encoded, record_of
from helpers.kafka import Pipeline, Record, Source, differences, read, truth, zipf_records
from helpers.registry_gate import Gate, basic
from helpers.schema_registry import API, RegistryServer
from helpers.stage_hosts import hosted
from helpers.waiting import WAIT_S, until
from skewless.lab.local import restarts
from skewless.lab.local.child_process import ChildProcess
from skewless.lab.local.ports import find_free_ports

pytestmark = pytest.mark.broker

JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
RECORDS = 600
PARTITIONS = 2
FIRST = record_of("Click", key="string", value="int", time={"type": "long", "logicalType": "timestamp-millis"})
ADDED = {**FIRST, "fields": [{"name": "page", "type": "string", "default": ""}, *FIRST["fields"]]}
RENAMED = record_of("Click", country="string", value="long", time={"type": "long", "logicalType": "timestamp-micros"})
RENAMED["fields"][0]["aliases"] = ["key"]
REMOVED = record_of("Click", value="int", time="long")
OTHER = record_of("View", path="string")


def written(schema: dict[str, Any], schema_id: int, record: dict[str, Any]) -> bytes:
    """Return a record as a producer writes it with one of the schemas."""
    names = [part["name"] for part in schema["fields"]]
    known = {**record, "country": record["key"], "page": "/"}
    if schema is RENAMED:
        known["time"] *= 1000
    return encoded(schema, {name: known[name] for name in names}, schema_id)


def clicks(count: int = RECORDS, seed: int = 1) -> list[tuple[int, dict[str, Any]]]:
    """Return records of a source, with their partitions."""
    return [(at, json.loads(value or b"")) for at, value in zipf_records(count, PARTITIONS, seed)]


def as_json(pipeline: Pipeline, records: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[Record]:
    """Yield the valid records of the source as JSON, at their place in the topic. They are the first of it."""
    entries = {at: [entry for partition, entry in records if partition == at] for at in range(PARTITIONS)}
    for record in read(pipeline.bootstrap, pipeline.source.topic):
        if record.offset < len(entries[record.partition]):
            yield replace(record, value=json.dumps(entries[record.partition][record.offset]).encode())


def avro_pipeline(broker: str, folder: Path, url: str, **parts: Any) -> Pipeline:
    registry = {"url": url, "connect_timeout_s": 5, **parts.pop("registry", {})}
    return Pipeline(broker, folder, Source(broker, PARTITIONS), splitter={"format": "avro"}, registry=registry, **parts)


def reasons(pipeline: Pipeline) -> Counter[str]:
    letters = pipeline.read("dead-letters")
    return Counter(record.headers["__skewless.errors.reason"].decode() for record in letters)


def test_pipeline_avro_whose_schema_evolves_is_exact_and_unreadable_records_are_dead_letters(
    broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    subject = f"{tmp_path.name}-value"
    schemas = [(FIRST, registry_server.register(subject, FIRST))]
    tested = avro_pipeline(broker, tmp_path, registry_server.url)
    records = clicks()
    with tested.running() as supervisor:

        def send(part: Sequence[tuple[int, dict[str, Any]]]) -> None:
            turns = itertools.cycle(schemas)
            tested.source.send([(at, written(*next(turns), record)) for at, record in part])

        send(records[: RECORDS // 2])
        until(lambda: processed(tested) == RECORDS // 2, each=lambda: supervisor.poll(time.monotonic()))
        schemas += [(schema, registry_server.register(subject, schema)) for schema in (ADDED, RENAMED)]
        send(records[RECORDS // 2 :])
        until(lambda: processed(tested) == RECORDS, each=lambda: supervisor.poll(time.monotonic()))
    removed = registry_server.register(subject, REMOVED)
    other = registry_server.register(f"{subject}-other", OTHER)
    text = registry_server.register(f"{subject}-json", JSON_SCHEMA, "JSON")
    good = written(*schemas[0], records[0][1])
    bad = {
        "schema 987654 is unknown to the registry": good[:1] + (987_654).to_bytes(4, "big") + good[5:],
        f"schema {text} is of type JSON, not AVRO": good[:1] + text.to_bytes(4, "big") + good[5:],
        f"key field key is missing in schema {removed}": written(REMOVED, removed, records[0][1]),
        f"key field key is missing in schema {other}": encoded(OTHER, {"path": "/"}, other),
        "no schema id: the first byte is neither 0 nor 1": b"{" + good[1:],
        f"broken Avro: ends too early (schema {schemas[0][1]})": good[:-1],
        f"broken Avro: has bytes after its end (schema {schemas[0][1]})": good + b"\0",
    }
    tested.source.send((0, value) for value in bad.values())
    assert tested.drain()
    assert differences(tested, truth(as_json(tested, records))) == []
    assert reasons(tested) == dict.fromkeys(bad, 1)
    log = (tested.folder / "splitter-0.log").read_text()
    assert log.count(f"schema {removed} has no field for key.field of the settings") == 1


def readiness(port: int) -> str:
    """Return the answer of a process about its readiness; empty if it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        with error:
            return error.read().decode()
    except OSError:
        return ""


def processed(tested: Pipeline) -> int:
    """Count the records that became tuples, also late ones."""
    return tested.tuples("tuples") + tested.count("late")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "no schema registry answers"),
        (404, "/apis/ccompat/v7: the answer has status 404, and is not a registry's"),
    ],
    ids=["down", "without-route"],
)
def test_pipeline_registry_down_holds_only_partitions_with_unknown_schemas(
    broker: str, registry_server: RegistryServer, tmp_path: Path, status: int | None, words: str
) -> None:
    """Also if an ingress in front of the registry has no route to it, and answers itself.

    The records that wait are more than may be in flight.
    """
    subject = f"{tmp_path.name}-value"
    known, unknown = registry_server.register(subject, FIRST), registry_server.register(subject, RENAMED)
    gate = Gate(registry_server.port, port=find_free_ports(1)[0])
    transport = {"max_in_flight_bytes": 2**16}
    tested = avro_pipeline(broker, tmp_path, f"http://127.0.0.1:{gate.port}{API}", transport=transport)
    before, after = clicks(200, 1), clicks(12_000, 2)
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(contextlib.ExitStack())
        opened.enter_context(gate.running())
        supervisor = stack.enter_context(tested.running())

        def poll() -> None:
            supervisor.poll(time.monotonic())

        tested.source.send((at, written(FIRST, known, record)) for at, record in before)
        until(lambda: processed(tested) == len(before), each=poll)
        if status is None:
            opened.close()
        gate.status, gate.content = status, b"<html><h1>404 page not found</h1></html>"
        # Partition 1 waits, partition 0 goes on with a cached schema.
        held = [(at, written(RENAMED, unknown, record)) for at, record in after if at == 1]
        cached = [(at, written(FIRST, known, record)) for at, record in after if at == 0]
        assert sum(len(value) for _, value in held) > transport["max_in_flight_bytes"]
        tested.source.send(held)
        log = tested.folder / "splitter-0.log"
        until(lambda: f"waits for schema {unknown}: " in log.read_text() and words in log.read_text(), each=poll)
        tested.source.send(cached)
        until(lambda: processed(tested) == len(before) + len(cached), each=poll)
        port = supervisor.processes["splitter-0"].metrics_port
        until(lambda: f"waits for schema {unknown}: " in (found := readiness(port)) and words in found, each=poll)
        assert tested.count("dead-letters") == 0
        gate.status = None
        with gate.running() if status is None else contextlib.nullcontext():
            until(lambda: processed(tested) == len(before) + len(after), each=poll)
    with gate.running():  # a start needs the registry, and the first gate is closed
        assert tested.drain()
    assert differences(tested, truth(as_json(tested, [*before, *after]))) == []
    assert tested.count("dead-letters") == 0


def test_up_restarts_a_splitter_until_the_registry_is_back(
    broker: str, registry_server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry that is down is no refusal, although the splitter waits for it less than for a broker."""
    monkeypatch.setattr(restarts, "STABLE_S", 0.5)
    monkeypatch.setattr(restarts, "MAX_CONSECUTIVE_FAILURES", 2)
    schema_id = registry_server.register(f"{tmp_path.name}-value", FIRST)
    gate = Gate(registry_server.port, port=find_free_ports(1)[0])
    tested = avro_pipeline(
        broker,
        tmp_path,
        f"http://127.0.0.1:{gate.port}{API}",
        registry={"connect_timeout_s": 1, "request_timeout_s": 1},
    )
    records = clicks(100)
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(contextlib.ExitStack())
        opened.enter_context(gate.running())
        supervisor = stack.enter_context(tested.running())
        ends: list[str] = []

        def poll() -> None:
            events = supervisor.poll(time.monotonic())
            ends.extend(event.detail for event in events if (event.name, event.kind) == ("splitter-0", "ended"))

        tested.source.send((at, written(FIRST, schema_id, record)) for at, record in records[:50])
        until(lambda: processed(tested) == 50, each=poll)
        opened.close()
        supervisor.kill("splitter-0")
        until(lambda: sum("exit code 3" in end for end in ends) >= 3, each=poll)
        assert "no schema registry answers" in ends[-1]
        tested.source.send((at, written(FIRST, schema_id, record)) for at, record in records[50:])
        with gate.running():
            until(lambda: processed(tested) == len(records), each=poll)


def test_stages_whose_registry_is_down_at_start_wait_and_their_readiness_says_so(broker: str, tmp_path: Path) -> None:
    (port, *probes) = find_free_ports(3)
    children: dict[str, ChildProcess] = {}
    for stage, of_stage in zip(("splitter", "aggregator"), probes, strict=True):
        (folder := tmp_path / stage).mkdir()
        parts = {"metrics": {"address": "127.0.0.1", "port": of_stage}, "aggregator": {"format": "avro"}}
        tested = avro_pipeline(broker, folder, f"http://127.0.0.1:{port}", registry={"connect_timeout_s": 60}, **parts)
        children[stage] = tested.start(stage, log=tmp_path / f"{stage}.log")
    for of_stage in probes:
        until(lambda: "starting: schema registry has not answered yet" in readiness(of_stage))  # noqa: B023 - is over before the next
    for stage, child in children.items():
        assert child.wait(WAIT_S) == 3
        last = (tmp_path / f"{stage}.log").read_text().splitlines()[-1]
        assert f"no schema registry answers at http://127.0.0.1:{port}" in last


def test_splitter_whose_login_is_refused_exits_with_one_line_without_the_password(
    broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    gate = Gate(registry_server.port, accepts=basic("u", "right"))
    with gate.running():
        login = {"username": "u", "allow_unencrypted": True, "password": "canary7f3a91c2"}
        tested = avro_pipeline(broker, tmp_path, gate.url, registry=login)
        log, environment = tmp_path / "log", os.environ | {"SKEWLESS__LOG__FORMAT": "text"}
        with hosted(tested.file, "run", "splitter", log=log, environment=environment) as child:
            assert child.wait(WAIT_S) == 3
    output = log.read_text()
    assert "refuses this client (401)" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert "canary7f3a91c2" not in output
