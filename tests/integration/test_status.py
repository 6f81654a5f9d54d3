"""`skewless status` of real pipelines: running, finished, without a process, without topics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from helpers.kafka import START_MS, Pipeline, Source
from helpers.stage_hosts import hosted
from helpers.terminal import terminal
from helpers.waiting import WAIT_S, until, without_waits
from skewless import topology
from skewless.cli.main import main
from skewless.lab.local import published_processes
from skewless.lab.local.ports import find_free_ports
from skewless.monitoring.settings import MetricsSettings
from skewless.operations.readiness import readiness

CLEAR = b"\x1b[2J"
"""Escape sequence that clears a terminal."""

pytestmark = pytest.mark.broker


def stages_of(pipeline: Pipeline) -> list[str]:
    return [row.name for row in topology.needed_stages(pipeline.settings)]


def status(pipeline: Pipeline, *options: str) -> Result:
    return CliRunner().invoke(main, ["status", "-f", str(pipeline.file), *options])


def status_json(pipeline: Pipeline, *options: str) -> dict[str, Any]:
    result = status(pipeline, "--json", *options)
    assert result.exit_code in (0, 1), result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    assert (result.exit_code == 1) == bool(answer["problems"]), answer
    return answer


def record(key: str, time_ms: int) -> bytes:
    return json.dumps({"key": key, "value": 1, "time": time_ms}).encode()


@pytest.mark.thorough
def test_status_of_a_pipeline_follows_its_whole_life(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    pipeline = Pipeline(broker, tmp_path, source, event_time={"idle_timeout_s": None, "allowed_lateness_s": 0})
    new = status_json(pipeline)
    assert new["state"] == "failing"
    assert [stage["stage"] for stage in new["stages"]] == [
        row.name for row in topology.needed_stages(pipeline.settings)
    ]
    assert "splitter: no process runs" in new["problems"]

    # One late tuple, two dead letters, and one partition that holds the windows open.
    newest = START_MS + 600_000
    source.send(
        [(0, record("a", newest)), (0, record("b", START_MS)), (0, b"{"), (0, b"["), (1, record("a", START_MS))]
    )
    waiting = status_json(pipeline)
    assert waiting["stages"][0]["lag_records"] == 5
    assert waiting["stages"][0]["lag_by_partition"] == {source.topic: {"0": 4, "1": 1}}
    assert "splitter: no process runs; unprocessed records: 5" in waiting["problems"]
    with pipeline.running() as supervisor:

        def has_settled() -> bool:
            answer = status_json(pipeline)
            return (
                answer["state"] == "running"
                and not any(stage["lag_records"] for stage in answer["stages"])
                and answer["stages"][3]["watermark_ms"] == START_MS
            )

        until(has_settled, each=lambda: supervisor.poll(time.monotonic()))
        running = status_json(pipeline)
        shown = status(pipeline)
    assert (shown.exit_code, shown.stderr) == (0, ""), shown.output
    assert shown.stdout.startswith(f"pipeline {pipeline.name}: running, ")
    assert [stage["processes"] for stage in running["stages"]] == [[f"{stage}-0"] for stage in stages_of(pipeline)]
    assert running["stages"][0]["behind_s"] == 600
    assert running["newest_event_ms"] == newest
    assert running["recent"] == {"seconds": 300, "late": 1, "dead-letters": 2}
    assert [wait for wait in running["waits"] if "source partitions 1" in wait and "600 s" in wait] != []

    # A process that was too slow to leave its group is a member until its session expires.
    until(lambda: status_json(pipeline)["problems"] == [f"{stage}: no process runs" for stage in stages_of(pipeline)])

    pipeline.drain()
    until(lambda: status_json(pipeline)["state"] == "finished")  # the groups know that all processes have left
    finished = status_json(pipeline)
    assert (finished["waits"], finished["problems"]) == ([], [])
    assert [stage["ended"] for stage in finished["stages"]] == [True] * 5
    assert (finished["open_windows"], finished["stages"][0]["behind_s"]) == (0, None)
    assert finished["load"]["tuples"] == 1  # the last tick

    source.send([(0, record("a", newest))])
    assert status_json(pipeline)["problems"] == ["splitter: no process runs; unprocessed records: 1"]
    time.sleep(1.1)
    limited = status_json(pipeline, "--max-lag", "1s")
    assert [problem for problem in limited["problems"] if "more than 1 s" in problem] != []


def test_status_stage_without_replicas_is_missing_only_after_it_has_run(broker: str, tmp_path: Path) -> None:
    without = {"worker": 0, "aggregator": 0, "observer": 0}
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1), replicas=without)
    assert [stage["stage"] for stage in status_json(pipeline)["stages"]] == ["splitter", "router"]

    place = TopicPartition(pipeline.settings.topic("worker-input"), 0, 0)
    commit = ConsumerGroupTopicPartitions(pipeline.settings.group("worker"), [place])
    client = AdminClient({"bootstrap.servers": broker})

    def has_committed() -> bool:
        (committed,) = client.alter_consumer_group_offsets([commit]).values()
        return all(at.error is None for at in committed.result(WAIT_S).topic_partitions)

    until(has_committed)  # a broker that has just started first loads its group coordinator
    assert [problem for problem in status_json(pipeline)["problems"] if problem.startswith("worker")] == [
        "worker: no process runs"
    ]


@pytest.mark.thorough
def test_status_of_a_starting_process_says_why_it_is_not_ready(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pipeline = Pipeline(broker, tmp_path, Source(broker, 2))
    (port,) = find_free_ports(1)
    unreachable = {
        "SKEWLESS__KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "SKEWLESS__KAFKA__CONNECT_TIMEOUT_S": "300",
        "SKEWLESS__METRICS__PORT": str(port),
    }
    with (
        hosted(pipeline.file, "run", "splitter", log=tmp_path / "log", environment=os.environ | unreachable),
        published_processes.published(pipeline.settings, {"splitter-0": port}),
    ):
        reason = "starting: Kafka has not answered yet"
        until(lambda: status_json(pipeline)["stages"][0]["not_ready"] == {"splitter-0": [reason]})
        shown = status(pipeline)
    assert published_processes.read(pipeline.settings) == {}
    assert f"waiting  splitter-0 is not ready: {reason}\n" in shown.stdout
    assert "splitter: no process runs" not in shown.stdout
    assert "router: no process runs" in shown.stdout


def test_status_of_members_whose_command_has_ended_says_that_no_process_runs(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker lists an ended process until its session expires. That of this member never does, because it lives."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1), transport={"session_timeout_s": 300})
    member = f"{pipeline.settings.full_name}-router-0"
    options = {"group.id": pipeline.settings.group("router"), "client.id": member, "group.instance.id": member}
    consumer = Consumer({"bootstrap.servers": broker, **options})
    try:
        consumer.subscribe([pipeline.settings.topic("tuples")])
        with published_processes.published(pipeline.settings, {"router-0": 0}):

            def processes() -> list[str]:
                consumer.poll(0.1)
                found: list[str] = status_json(pipeline)["stages"][1]["processes"]
                return found

            until(lambda: processes() == ["router-0"])
        result = status(pipeline)
    finally:
        consumer.close()
    assert result.exit_code == 1
    assert "problem  router: no process runs\n" in result.stdout


@pytest.mark.thorough
def test_status_names_the_hot_keys_of_the_grouping(broker: str, tmp_path: Path) -> None:
    router = {"grouping": "dynamic_key", "clock": "event", "workers": 8, "snapshot_interval_s": 0}
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1), router=router)
    keys = ["hot\x1b", "hot\x1b", "warm", "cold"]
    pipeline.source.send(
        (0, record(keys[number % 4] if number % 8 else f"rare{number}", START_MS + number * 100))
        for number in range(4_000)
    )
    pipeline.drain()
    found = status_json(pipeline)["hot_keys"]
    assert [(hot["key"], hot["tuples"]) for hot in found[:3]] == [("hot\x1b", 1_500), ("cold", 1_000), ("warm", 1_000)]
    assert found[0]["workers"] > 2
    assert "\nhot keys hot? (1,500 tuples, " in status(pipeline).stdout


@pytest.mark.thorough
def test_status_of_a_process_at_the_configured_port_has_its_answer(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    with pipeline.running() as supervisor:
        until(lambda: status_json(pipeline)["state"] == "running", each=lambda: supervisor.poll(time.monotonic()))
        port = supervisor.processes["router-0"].metrics_port
        at_port = pipeline.settings.model_copy(update={"metrics": MetricsSettings(port=port)})
        # The other processes have other ports: what answers at this one is not them.
        hosts = {"router-0": "127.0.0.1", "worker-0": "127.0.0.1"}
        until(lambda: readiness(at_port, hosts).keys() == {"router-0"})
        assert readiness(at_port, {"router-0": "192.0.2.1"}) == {}


@pytest.mark.thorough
def test_status_watch_in_a_terminal_ends_with_ctrl_c_and_leaves_it_as_it_was(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    with terminal(["status", "-f", str(pipeline.file), "--watch"]) as shown:
        before = termios.tcgetattr(shown.descriptor)
        shown.read_until(f"pipeline {pipeline.name}".encode())
        shown.read_until(CLEAR, times=2)
        os.write(shown.descriptor, b"\x03")
        assert shown.process.wait(WAIT_S) == 130
        assert termios.tcgetattr(shown.descriptor) == before
        assert b"Traceback" not in shown.output
        assert b"\x1b[?25l" not in shown.output  # the cursor stays visible


def test_status_missing_topic_is_a_problem(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    topic = pipeline.settings.topic("late")
    admin = AdminClient({"bootstrap.servers": broker})  # must outlive its futures
    admin.delete_topics([topic])[topic].result()
    until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics)
    result = status(pipeline)
    assert result.exit_code == 1
    assert f"problem  topic {topic} is missing: `skewless topics apply` creates it" in result.stdout
    assert result.stderr.startswith(f"error: pipeline {pipeline.name}: ")


def test_status_wrong_broker_or_source_is_one_line(broker: str, tmp_path: Path) -> None:
    for kafka, message in (
        ({"bootstrap_servers": broker, "connect_timeout_s": WAIT_S}, "topic nowhere does not exist"),
        ({"bootstrap_servers": "127.0.0.1:1", "connect_timeout_s": 1}, "127.0.0.1:1"),
    ):
        file = tmp_path / "pipeline.yaml"
        file.write_text(json.dumps({"name": "p-none", "source": {"topic": "nowhere"}, "kafka": kafka}))
        result = CliRunner().invoke(main, ["status", "-f", str(file)])
        assert (result.exit_code, result.stderr.count("\n")) == (3, 1), result.output
        assert message in result.stderr


@pytest.mark.thorough
def test_status_wait_ends_when_every_process_is_ready(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    command = [sys.executable, "-m", "skewless", "status", "-f", str(pipeline.file), "--wait", "5m"]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with pipeline.running() as supervisor:
        until(lambda: waiting.poll() is not None, each=lambda: supervisor.poll(time.monotonic()))
        printed, problems = waiting.communicate()
    assert (waiting.returncode, without_waits(problems)) == (0, ""), printed
    assert printed.startswith(f"pipeline {pipeline.name}: running, ")


@pytest.mark.thorough
def test_status_wait_without_processes_or_topics_ends_at_its_limit(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    started = time.monotonic()
    result = status(pipeline, "--wait", "3s")
    assert (result.exit_code, time.monotonic() - started > 3) == (1, True)
    assert "problem  router: no process runs" in result.stdout
    document = json.loads(pipeline.file.read_text()) | {"source": {"topic": "nowhere"}}
    pipeline.file.write_text(json.dumps(document))
    result = status(pipeline, "--wait", "3s")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "topic nowhere does not exist" in result.stderr


def test_status_wait_with_watch_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", "-f", str(tmp_path / "x.yaml"), "--watch", "--wait", "3s"])
    assert (result.exit_code, result.stderr) == (2, "error: --wait ends and --watch does not: use one of them\n")
