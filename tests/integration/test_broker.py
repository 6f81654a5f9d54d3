"""The embedded broker is a real Kafka: transactions, compaction, restarts, and no process that outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from helpers.kafka import create_topics
from helpers.waiting import until
from skewless.errors import BrokerError, UnreachableError
from skewless.kafka.reachability import wait_until_reachable
from skewless.lab.local import kafka_process
from skewless.lab.local.broker import Broker

pytestmark = pytest.mark.broker
WAIT_S = 90.0


def create_topic(bootstrap: str, **config: str) -> str:
    name = f"test-{uuid.uuid4().hex[:8]}"
    create_topics(bootstrap, {name: 1}, **config)
    return name


def produce(bootstrap: str, topic: str, *records: tuple[str, str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(WAIT_S) == 0


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[tuple[str, str]]:
    """Read the topic's only partition from its start to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records: list[tuple[str, str]] = []
    with contextlib.closing(consumer):
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, "the end of the partition was not reached"
            if message.error():
                return records
            records.append((message.key().decode(), message.value().decode()))


def test_embedded_broker_read_committed_skips_aborted_transactions(broker: str) -> None:
    topic = create_topic(broker)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for value, end in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, key="k", value=value)
        producer.flush(WAIT_S)
        end(WAIT_S)
    assert read(broker, topic) == [("k", "kept")]
    assert read(broker, topic, "read_uncommitted") == [("k", "kept"), ("k", "dropped")]


def test_embedded_broker_compaction_keeps_the_last_value_of_each_key(broker: str) -> None:
    topic = create_topic(
        broker,
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        },
    )
    produce(broker, topic, *[("a", str(number)) for number in range(20)])

    def compacted() -> bool:
        produce(broker, topic, ("other", ""))  # a new record rolls the segment, so the old segment can be compacted
        return [value for key, value in read(broker, topic) if key == "a"] == ["19"]

    until(compacted, limit_s=WAIT_S)


@pytest.mark.thorough
def test_embedded_broker_restarted_after_a_kill_keeps_its_port_and_data() -> None:
    with Broker() as own:
        before = own.bootstrap
        topic = create_topic(before)
        produce(before, topic, ("k", "survives"))
        own.kill()
        own.start()
        assert own.bootstrap == before
        assert read(before, topic) == [("k", "survives")]


def test_kafka_process_start_holds_connections_to_the_previous_port_unanswered(
    tmp_path: Path,
) -> None:
    with kafka_process.hold_previous_port(tmp_path):
        pass
    ports = kafka_process.free_ports()
    kafka_process.write_properties(tmp_path, ports, {})
    with kafka_process.hold_previous_port(tmp_path), socket.create_connection(("127.0.0.1", ports.internal)) as client:
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports.internal))


@pytest.mark.thorough
def test_embedded_broker_named_folder_is_kept_and_reused(tmp_path: Path) -> None:
    with Broker(tmp_path) as first:
        topic = create_topic(first.bootstrap)
        produce(first.bootstrap, topic, ("k", "kept"))
    with Broker(tmp_path) as second:
        assert read(second.bootstrap, topic) == [("k", "kept")]


def test_embedded_broker_keeps_old_records_and_stopped_leaves_neither_process_nor_folder() -> None:
    with Broker() as own:
        pid, folder = own.pid, own.folder
        resource = ConfigResource(ConfigResource.Type.TOPIC, create_topic(own.bootstrap))
        admin = AdminClient({"bootstrap.servers": own.bootstrap})  # the client must outlive its futures
        config = admin.describe_configs([resource])[resource].result()
        assert config["retention.ms"].value == "-1"
    assert pid is not None
    assert folder is not None
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


@pytest.mark.thorough
def test_embedded_broker_parent_killed_leaves_neither_process_nor_folder() -> None:
    program = (
        "from skewless.lab.local.broker import Broker; broker = Broker().start(); "
        "print(broker.pid, broker.folder, flush=True); broker.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment()
    ) as parent:
        assert parent.stdout
        pid, folder = parent.stdout.readline().split()
        assert psutil.pid_exists(int(pid))
        parent.send_signal(signal.SIGKILL)
    until(lambda: not psutil.pid_exists(int(pid)) and not Path(folder).exists(), limit_s=WAIT_S)


def environment() -> dict[str, str]:
    """Environment in which a Python child process finds the package of this process."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.mark.thorough
def test_embedded_broker_port_in_use_is_named_in_the_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with pytest.raises(UnreachableError, match=f"{port}"):
            Broker(port=port).start()


def test_embedded_broker_invalid_property_is_reported_with_the_end_of_the_log() -> None:
    with pytest.raises(UnreachableError, match=r"num\.io\.threads"):
        Broker(properties={"num.io.threads": "0"}).start()


@pytest.mark.thorough
def test_embedded_broker_security_properties_protect_the_client_listener() -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";'
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
    }
    ann = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    with (
        Broker(properties=properties, client=ann | {"sasl.password": "secret"}) as own,
        pytest.raises(BrokerError, match="Authentication failed"),
    ):
        wait_until_reachable(ann | {"sasl.password": "wrong", "bootstrap.servers": own.bootstrap}, 60.0)


def test_reachability_unreachable_broker_raises_with_its_address_silently(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(UnreachableError, match=address):
        wait_until_reachable({"bootstrap.servers": address}, 0.6)
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_embedded_broker_full_disk_is_named(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24k", "none", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted: {mounted.stderr.strip()}")
    try:
        began = time.monotonic()
        with pytest.raises(UnreachableError, match=f"did not start: the disk of {disk} is full; make room"):
            Broker(disk).start()
        assert time.monotonic() - began < kafka_process.READY_TIMEOUT_S / 2
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
