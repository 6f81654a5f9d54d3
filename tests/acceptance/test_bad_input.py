"""Invalid records, invalid settings and a duplicate router: each is reported, and valid records are counted exactly."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from helpers.kafka import START_MS, Feed, Pipeline, Source, differences, read, truth, zipf_records
from helpers.stage_hosts import ended, stage_host
from helpers.waiting import WAIT_S, until
from skewless.lab.local import child_process
from skewless.lab.local.child_process import ChildProcess

DAY_MS = 86_400_000
HEADER = "__skewless.errors."


def entry(key: object = "good", value: object = 1, time: object = START_MS) -> bytes:
    return json.dumps({"key": key, "value": value, "time": time}).encode()


def invalid_records() -> dict[bytes | None, str]:
    """Value of an invalid record -> reason of its dead letter."""
    now = time.time_ns() // 1_000_000
    return {
        None: "empty record",
        b"": "malformed JSON",
        b"{": "malformed JSON",
        b"[1, 2": "malformed JSON",
        b'{"key":"a","value":1,"time":1}}': "malformed JSON",
        b'{"key":"\xff\xfe","value":1,"time":1}': "not UTF-8",
        b"\x00\x00\x00\x01\x00avro": "malformed JSON",
        b'{"key":' + b"[" * 100_000 + b"]" * 100_000 + b"}": "nested deeper than 32",
        b'{"key":"a","value":1}': "time field time is missing",
        b'{"value":1,"time":1}': "key field key is missing",
        entry(key=None): "key field key has the wrong type or is out of range",
        entry(key={"a": 1}): "key field key has the wrong type or is out of range",
        entry(key="k" * 2000): "key field key is longer than 1024 bytes",
        entry(key="x" * 300_000): "longer than 262144 bytes",
        entry(value="NaN"): "value field value is not a number within bounds",
        entry(value=10**29): "value field value is not a number within bounds",
        entry(value=2**63): "value field value is not a number within bounds",
        entry(time=-1): "time before splitter.time.earliest",
        entry(time=10**29): "time field time is not a number within bounds",
        entry(time=now + 2 * DAY_MS): "time too far ahead of the clock",
        b'{"key":"a","value":1e400,"time":1}': "value field value has the wrong type or is out of range",
        b'{"key":"a","value":NaN,"time":1}': "malformed JSON",
        b'{"key":"\'); DROP TABLE results; --","value":"","time":1}': "value field value is not a number within bounds",
    }


@pytest.mark.thorough
def test_pipeline_invalid_records_among_valid_ones_writes_each_dead_letter_once(broker: str, tmp_path: Path) -> None:
    invalid = invalid_records()
    good = list(zipf_records(6_000, 2, seed=5))
    mixed = []
    for index, record in enumerate(good):
        mixed.append(record)
        if index % 1000 == 500:
            mixed += [(index // 1000 % 2, value) for value in invalid]
    source = Source(broker, 2)
    pipeline = Pipeline(broker, tmp_path, source, event_time={"allowed_lateness_s": 100})
    # Armed before the records are sent: they are few.
    pipeline.arm("splitter-0", "written", "kill", topic=pipeline.settings.topic("dead-letters"))
    with Feed(source, mixed, rate=2_000), pipeline.running(armed=True) as supervisor:
        pipeline.kill_in_transaction(supervisor, "splitter-0", "dead-letters")
    pipeline.drain()

    sent = list(read(broker, source.topic))
    wanted = {(record.partition, record.offset): record.value for record in sent if record.value in invalid}
    assert len(wanted) == 6 * len(invalid)
    dead_letter_values = {}
    for dead_letter in pipeline.read("dead-letters"):
        where = {
            name: dead_letter.headers[HEADER + name].decode() for name in ("topic", "partition", "offset", "reason")
        }
        at = (int(where["partition"]), int(where["offset"]))
        assert at not in dead_letter_values
        dead_letter_values[at] = dead_letter.value
        assert (where["topic"], where["reason"]) == (source.topic, invalid[dead_letter.value])
    assert {at: value for at, value in dead_letter_values.items() if wanted.get(at, b"good") != value} == {}
    assert wanted.keys() - dead_letter_values.keys() == set()
    expected = truth([record for record in sent if record.value not in invalid], lateness_ms=100_000)
    assert differences(pipeline, expected) == []


@pytest.mark.thorough
def test_router_two_processes_with_one_instance_number_keeps_one_and_exact_results(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    pipeline = Pipeline(broker, tmp_path, source, event_time={"allowed_lateness_s": 100}, replicas={"router": 0})
    logs = [pipeline.folder / "first.log", pipeline.folder / "second.log"]
    routers: list[ChildProcess] = []
    with Feed(source, zipf_records(200_000, 2, seed=6), rate=400) as feed, pipeline.running() as supervisor:

        def look() -> None:
            supervisor.poll(time.monotonic())

        try:
            routers.append(pipeline.start("router", log=logs[0]))
            until(lambda: pipeline.tuples("worker-input") > 0, each=look)
            routers.append(pipeline.start("router", log=logs[1]))
            until(lambda: any(router.poll() is not None for router in routers), each=look)
            ended = next(number for number, router in enumerate(routers) if router.returncode is not None)
            before = pipeline.written("worker-input")
            until(lambda: pipeline.written("worker-input") > before, each=look)
            assert routers[ended].returncode == 3
            assert routers[1 - ended].poll() is None
            feed.finish()
        finally:
            for router in routers:
                child_process.stop(router)
    last = logs[ended].read_text().splitlines()[-1]
    assert last.startswith("error: ")
    assert "--instance" in last
    assert "Traceback" not in logs[ended].read_text()
    drained = ["run", "router", "--file", str(pipeline.file), "--drain"]
    router = stage_host().start("router-0", drained, os.environ, log=logs[0])
    try:
        pipeline.drain()
        assert router.wait(WAIT_S) == 0
    finally:
        child_process.stop(router)
    assert differences(pipeline, truth(read(broker, source.topic), lateness_ms=100_000)) == []


def pipeline_file(folder: Path, **parts: object) -> Path:
    path = folder / "p.yaml"
    path.write_text(json.dumps({"name": "p", "source": {"topic": "nowhere"}, **parts}))
    return path


@pytest.mark.parametrize("command", [("up",), ("run", "splitter"), ("run", "worker"), ("topics", "apply")])
def test_run_command_invalid_settings_ends_with_every_problem(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = pipeline_file(
        tmp_path,
        router={"grouping": "psychic", "worker": 3},
        worker={"pane_s": -1},
        transport={"guarantee": "at_most_once"},
        kafka={"options": {"isolation.level": "read_uncommitted"}},
    )
    code, output = ended(file, *command)
    assert code == 2
    assert "Traceback" not in output
    lines = output.splitlines()
    for path in ("router.worker", "worker.pane_s", "transport.guarantee", "kafka.options"):
        assert [line for line in lines if line.startswith("error: ") and path in line], path


@pytest.mark.parametrize("stage", ["splitter", "aggregator"])
def test_run_command_unreachable_broker_ends_in_time_with_its_address(tmp_path: Path, stage: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    file = pipeline_file(tmp_path, kafka={"bootstrap_servers": address, "connect_timeout_s": 1})
    code, output = ended(file, "run", stage)  # it ends with an error after a while
    *waiting, last = output.splitlines()
    assert (code, address in last, len(waiting) < 2) == (3, True, True), output


@pytest.mark.parametrize(
    ("stage", "topic"), [("splitter", "nowhere"), ("router", "p-without.tuples"), ("observer", "p-without.partials")]
)
def test_run_command_missing_topic_ends_with_its_name(broker: str, tmp_path: Path, stage: str, topic: str) -> None:
    file = pipeline_file(tmp_path, name="p-without", kafka={"bootstrap_servers": broker})
    code, output = ended(file, "run", stage)
    *_, last = output.splitlines()  # a busy broker may have been waited for
    assert code == 3
    assert last.startswith(f"error: topic {topic} does not exist at {broker}: ")
