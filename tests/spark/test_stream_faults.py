"""Faults of brokers and source topics during `skewless stream`: the results are exact, or the query ends by name.

The faults occur at named points of the second of several micro-batches.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition

from helpers.kafka import START_MS, Pipeline, Sent, Source, create_topics, differences, read, truth, zipf_records
from helpers.waiting import WAIT_S, until
from skewless.cli.main import main
from skewless.errors import UnreachableError
from skewless.lab.local.broker import Broker
from skewless.spark import stream_job
from skewless.spark.stream_job import StreamJob

pytestmark = [pytest.mark.thorough, pytest.mark.broker, pytest.mark.usefixtures("spark")]

PARTITIONS = 2
LATENESS_S = 10
RECORDS = 1_200
PER_BATCH = 400
MOMENTS = (
    ("updates", "_check_order"),
    ("final", "_split_task"),
    ("final", "_merge"),
    ("updates", "_commit"),
    ("updates", "_lag"),
)
"""Pipelines, and methods of the driver, in the order of a micro-batch: before its first request, before records are
read, while tasks merge and commit, before the offsets of the source, and after them.

The driver does the same in both modes, and the tasks that merge are killed in both by
`tests/acceptance/test_stream_kills.py`. So each moment is hit in one mode.
"""
DOWN_S = 2.0
ROUNDS = int(os.environ.get("SKEWLESS_KILLS", "1"))
"""How often each moment is hit."""
END_MS = START_MS + 3_600_000
"""Time at which the windows of all records but the last ones have ended."""


def stream(tested: Pipeline) -> Result:
    checkpoint = str(tested.folder / "checkpoint")
    return CliRunner().invoke(main, ["stream", "-f", str(tested.file), "--available-now", "--checkpoint", checkpoint])


def inject(monkeypatch: pytest.MonkeyPatch, moment: str, fault: Callable[[], None], number: int = 2) -> None:
    """Call a function once, before the call with this number of a method of the driver."""
    method, calls = getattr(StreamJob, moment), iter(range(1, 1_000))

    def injected(job: StreamJob, *arguments: Any) -> Any:
        if next(calls) == number:
            fault()
        return method(job, *arguments)

    monkeypatch.setattr(StreamJob, moment, injected)
    monkeypatch.setattr(stream_job, "RECORDS_PER_BATCH", PER_BATCH)


def check_exact(tested: Pipeline, closed_to: int | None = None) -> None:
    expected = truth(read(tested.bootstrap, tested.source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, expected, ticks=False, closed_to=closed_to) == []
    audit = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert audit.exit_code == 0, audit.output


class Outage(threading.Thread):
    """Kills a broker, and starts it again after `DOWN_S`. The broker ends with the thread, which lives until `end`."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(name="outage", daemon=True)  # that of a failed test never ends
        self._broker = broker
        self._back, self._end = threading.Event(), threading.Event()

    def run(self) -> None:
        time.sleep(DOWN_S)
        self._broker.start()
        self._back.set()
        self._end.wait()

    def begin(self) -> None:
        """Kill the broker."""
        self._broker.kill()
        self.start()

    def wait(self) -> None:
        """Wait until the broker answers. Fails if it was not killed."""
        assert self.ident is not None, "the fault did not occur"
        until(self._back.is_set)

    def end(self) -> None:
        """Let the broker end."""
        self._end.set()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "broker").start()
    yield broker
    broker.stop()


def test_stream_broker_killed_at_each_point_counts_each_record_once(
    own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, outages = own_broker.bootstrap, list[Outage]()
    pipelines: dict[str, Pipeline] = {}
    for emit in ("updates", "final"):
        source, aggregator = Source(bootstrap, PARTITIONS), {"emit": emit, "aggregates": ["count", "sum"]}
        pipelines[emit] = Pipeline(bootstrap, tmp_path, source, aggregator=aggregator)
    kills = [*MOMENTS] * ROUNDS
    records = zipf_records(RECORDS * len(kills), PARTITIONS, seed=40, keys=100)
    for emit, moment in kills:
        pipelines[emit].source.send(itertools.islice(records, RECORDS))
        outages.append(Outage(own_broker))
        with monkeypatch.context() as patched:
            inject(patched, moment, outages[-1].begin)
            result = stream(pipelines[emit])
        outages[-1].wait()
        assert result.exit_code in {0, 3}, result.output
        if result.exit_code:
            assert result.output.splitlines()[-1].startswith("error: "), result.output
    last = b'{"key":"last","value":0,"time":%d}' % (END_MS + LATENESS_S * 1000)
    for emit, tested in pipelines.items():
        tested.source.send([(partition, last) for partition in range(PARTITIONS)])
        assert stream(tested).exit_code == 0
        check_exact(tested, END_MS if emit == "final" else None)
    for outage in outages:
        outage.end()


def trim(tested: Pipeline) -> None:
    """Delete all records of the first source partition."""
    end = TopicPartition(tested.source.topic, 0, -1)
    tested.admin.delete_records([end])[end].result()


def create_again(tested: Pipeline) -> None:
    """Delete the source topic and create it again with as many records."""
    topic = tested.source.topic
    tested.admin.delete_topics([topic])[topic].result()
    until(lambda: topic not in tested.admin.list_topics(timeout=WAIT_S).topics)
    create_topics(tested.bootstrap, {topic: PARTITIONS})
    tested.source.send([*more(9), *more(10)])


def more(seed: int) -> list[Sent]:
    return list(zipf_records(RECORDS, PARTITIONS, seed=seed, keys=100))


@pytest.mark.parametrize(
    ("fault", "running", "stopped"),
    [
        (trim, "were deleted before group", "were deleted before group"),
        # Kafka deletes the offsets of a topic with the topic.
        (create_again, "was deleted and created again", "the offsets were deleted"),
    ],
    ids=["trimmed", "created again"],
)
def test_stream_source_without_its_unread_records_ends_by_name_and_writes_nothing(  # noqa: PLR0913, PLR0917 - a table
    broker: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Pipeline], None],
    running: str,
    stopped: str,
) -> None:
    tested = Pipeline(broker, tmp_path, Source(broker, PARTITIONS))
    tested.source.send(more(1))
    assert stream(tested).exit_code == 0
    written = tested.written("aggregates")
    tested.source.send(more(2))
    with monkeypatch.context() as patched:
        inject(patched, "_check_order", lambda: fault(tested), number=1)
        results = [(running, stream(tested))]
    results.append((stopped, stream(tested)))
    for named, result in results:
        assert (result.exit_code, named in result.output) == (3, True), result.output
        assert tested.source.topic in result.output
    assert tested.written("aggregates") == written


def test_stream_partitions_added_while_it_runs_and_while_it_is_stopped_count_each_record_once(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = Pipeline(broker, tmp_path, Source(broker, PARTITIONS))
    tested.source.send(more(1))

    def add() -> None:
        tested.source.add_partitions(PARTITIONS + 1)
        tested.source.send([(PARTITIONS, value) for _, value in more(2)])

    with monkeypatch.context() as patched:
        inject(patched, "_check_order", add)
        assert stream(tested).exit_code == 0
    assert stream(tested).exit_code == 0
    tested.source.add_partitions(PARTITIONS + 2)
    tested.source.send([(PARTITIONS + 1, value) for _, value in more(3)])
    tested.source.send(more(4))
    assert stream(tested).exit_code == 0
    check_exact(tested)


def test_stream_new_partition_without_its_first_records_is_named_and_read_with_a_new_checkpoint(
    broker: str, tmp_path: Path
) -> None:
    tested = Pipeline(broker, tmp_path, Source(broker, PARTITIONS))
    tested.source.send(more(1))
    assert stream(tested).exit_code == 0
    tested.source.add_partitions(PARTITIONS + 1)
    tested.source.send([(PARTITIONS, value) for _, value in more(2)])
    deleted = TopicPartition(tested.source.topic, PARTITIONS, 2)
    tested.admin.delete_records([deleted])[deleted].result()
    refused = stream(tested)
    assert refused.exit_code == 3, refused.output
    assert "or a new partition has lost its first records. Remove this folder" in refused.output
    shutil.rmtree(tested.folder / "checkpoint")
    continued = stream(tested)
    assert continued.exit_code == 0, continued.output
    counted = sum(result["count"] for result in tested.results()[0].values())
    assert counted + len([*tested.read("late")]) == 2 * RECORDS - 2


def fail() -> None:
    raise UnreachableError("injected")


@pytest.mark.parametrize("incomplete", [None, "_check_order", "_commit"])
def test_stream_without_one_of_its_source_topics_names_the_checkpoint_and_continues_with_a_new_one(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, incomplete: str | None
) -> None:
    kept, removed = Source(broker, 1), Source(broker, 1)
    topics = {"topic": None, "topics": [kept.topic, removed.topic]}
    tested = Pipeline(broker, tmp_path, kept, source=topics, event_time={"idle_timeout_s": 1})
    for source in (kept, removed):
        source.send((0, value) for _, value in more(1))
    assert stream(tested).exit_code == 0
    both = tested.file.read_text()
    only_kept = json.dumps(json.loads(both) | {"source": {"topics": [kept.topic]}})
    kept.send((0, value) for _, value in more(2))
    if incomplete is not None:
        with monkeypatch.context() as patched:
            inject(patched, incomplete, fail, number=1)
            assert stream(tested).exit_code == 3
    tested.file.write_text(only_kept)
    refused, checkpoint = stream(tested), tested.folder / "checkpoint"
    assert refused.exit_code == 3, refused.output
    assert f"error: the checkpoint {checkpoint} does not match the source: a source topic was del" in refused.output
    if incomplete == "_commit":
        assert "Name it again until the micro-batch is complete" in refused.output
        tested.file.write_text(both)
        assert stream(tested).exit_code == 0
        tested.file.write_text(only_kept)
    shutil.rmtree(checkpoint)
    continued = stream(tested)
    assert continued.exit_code == 0, continued.output
    counted = sum(result["count"] for result in tested.results()[0].values())
    assert counted + len([*tested.read("late")]) == 3 * RECORDS


def end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def close_stdout() -> None:
    raise BrokenPipeError(errno.EPIPE, "Broken pipe")


@pytest.mark.parametrize(("fault", "code"), [(end, 143), (close_stdout, 141)])
def test_stream_ended_before_all_is_read_says_so_and_continues(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[], None], code: int
) -> None:
    tested = Pipeline(broker, tmp_path, Source(broker, PARTITIONS))
    tested.source.send(more(1))
    with monkeypatch.context() as patched:
        inject(patched, "_lag", fault)
        ended = stream(tested)
    assert ended.exit_code == code, ended.output
    assert stream(tested).exit_code == 0
    check_exact(tested)


def send_in_transaction(tested: Pipeline, records: Iterable[Sent]) -> None:
    producer = Producer({"bootstrap.servers": tested.bootstrap, "transactional.id": tested.name, "log_level": 2})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for partition, value in records:
        producer.produce(tested.source.topic, value, partition=partition)
    producer.commit_transaction(WAIT_S)


def test_stream_source_whose_markers_were_deleted_with_its_read_records_is_read_on(broker: str, tmp_path: Path) -> None:
    tested = Pipeline(broker, tmp_path, Source(broker, PARTITIONS))
    send_in_transaction(tested, more(1))
    assert stream(tested).exit_code == 0
    trim(tested)
    for number in (2, 3):
        send_in_transaction(tested, more(number))
        done = stream(tested)
        assert done.exit_code == 0, done.output
    counted = sum(result["count"] for result in tested.results()[0].values())
    assert counted + len([*tested.read("late")]) == 3 * RECORDS
