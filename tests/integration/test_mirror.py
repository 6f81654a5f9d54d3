"""A topic is copied to another broker exactly once, while the mirror is killed and the link to that broker is cut."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from chaos.proxy import Proxy
from chaos.server import Server
from helpers.docs_blocks import ROOT
from helpers.followed_page import follow
from helpers.kafka import Pipeline, Record, Sent, Source, create_topics, read, truth, zipf_records
from helpers.waiting import WAIT_S, until
from skewless.cli.main import main
from skewless.lab.local.supervisor import Supervisor

PREFIX = "eu."
CUT_S = float(os.environ.get("SKEWLESS_CUT_S", "5"))
"""Time for which the link is cut. Transactions end after 3 s."""
POINTS = "written", "before-offsets", "in-commit", "after-commit"
TRANSPORT = {"commit_interval_s": 0.3, "transaction_timeout_s": 3}


@pytest.fixture(scope="module")
def link() -> Iterator[Proxy]:
    with Proxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory, link: Proxy) -> Iterator[Server]:
    """Start the other cluster, which the mirror reaches by the link."""
    server = Server(tmp_path_factory.mktemp("remote") / "broker", link.port)
    link.target = server.node.behind
    server.start()
    yield server
    server.broker.kill()
    server.broker.stop()


def mirrored(broker: str, folder: Path, bootstrap: str, **mirror: object) -> Pipeline:
    settings = {"kafka": {"bootstrap_servers": bootstrap, "connect_timeout_s": 2}, "prefix": PREFIX, **mirror}
    # Each result once: compaction deletes earlier ones, in each cluster at another time.
    aggregator = {"emit": "final"}
    return Pipeline(broker, folder, Source(broker, 2), transport=TRANSPORT, aggregator=aggregator, mirror=settings)


def copied(records: Iterator[Record]) -> list[tuple[object, ...]]:
    """Return what a copy has of each record, in the order of each partition."""
    rows = [(row.partition, row.offset, row.key, row.value, row.timestamp, dict(row.headers)) for row in records]
    return [(row[0], *row[2:]) for row in sorted(rows, key=lambda row: row[:2])]


def wait_for_copies(pipeline: Pipeline, remote: Server, topic: str, supervisor: Supervisor) -> None:
    name = pipeline.settings.topic(topic)

    def equal() -> bool:
        return copied(read(remote.bootstrap, f"{PREFIX}{name}")) == copied(read(pipeline.bootstrap, name))

    until(equal, each=lambda: supervisor.poll(time.monotonic()), every_s=0.5)


def send_and_kill(point: str, pipeline: Pipeline, supervisor: Supervisor, portion: list[Sent]) -> None:
    """Kill the mirror at this point of a transaction that copies records."""
    # Armed first: the mirror can copy all that the portion becomes before this process continues.
    pipeline.arm("mirror-0", point, "kill", topic=f"{PREFIX}{pipeline.settings.topic('partials')}")
    pipeline.source.send(portion)
    events: list[str] = []
    until(
        lambda: any(event.startswith("was killed") for event in events),
        each=lambda: events.extend(event.detail for event in supervisor.poll(time.monotonic())),
    )


def cut(link: Proxy, supervisor: Supervisor) -> None:
    """Hold all data between the mirror and the other cluster."""
    replica = supervisor.processes["mirror-0"]
    until(lambda: replica.pid, each=lambda: supervisor.poll(time.monotonic()))
    link.hold(("up", "down"), frozenset(filter(None, [replica.pid])))


def run(command: str, document: Mapping[str, Any], folder: Path) -> Result:
    file = folder / "other.yaml"
    file.write_text(json.dumps(document))
    return CliRunner().invoke(main, ["run", command, "--drain", "-f", str(file)])


def test_mirror_killed_and_cut_off_feeds_a_flusher_that_equals_a_plain_count(
    broker: str, remote: Server, link: Proxy, tmp_path: Path
) -> None:
    pipeline = mirrored(broker, tmp_path, f"127.0.0.1:{link.port}", topic="partials")
    records = list(zipf_records(8000, 2, seed=11, keys=300))
    *portions, last = (records[first : first + 1600] for first in range(0, len(records), 1600))
    with pipeline.running(armed=True) as supervisor:
        for point, portion in zip(POINTS, portions, strict=True):
            send_and_kill(point, pipeline, supervisor, portion)
        wait_for_copies(pipeline, remote, "partials", supervisor)
        cut(link, supervisor)
        pipeline.source.send(last)
        time.sleep(CUT_S)
        link.heal()
        wait_for_copies(pipeline, remote, "partials", supervisor)
    pipeline.drain()
    name = pipeline.settings.topic("partials")
    assert copied(read(remote.bootstrap, f"{PREFIX}{name}")) == copied(read(broker, name))

    document = json.loads(pipeline.file.read_text())
    del document["mirror"]
    document["kafka"] = {"bootstrap_servers": remote.bootstrap, "connect_timeout_s": WAIT_S}
    document["topics"] = {**document["topics"], "prefix": PREFIX}
    document["sink"] = {"url": f"sqlite://{tmp_path}/results.db", "mode": "merge", "table": "results"}
    ended = run("flusher", document, tmp_path)
    assert ended.exit_code == 0, ended.output
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        rows = connection.execute("SELECT strftime('%s', window_start) * 1000, key, count FROM results").fetchall()
    expected = truth(read(broker, pipeline.source.topic))
    assert {(start, key): count for start, key, count in rows} == expected.counts


def test_mirror_of_results_copies_each_record_to_its_partition(broker: str, remote: Server, tmp_path: Path) -> None:
    pipeline = mirrored(broker, tmp_path, remote.bootstrap)
    pipeline.source.send(zipf_records(2000, 2, seed=12, keys=100))
    pipeline.drain()
    name = pipeline.settings.topic("aggregates")
    assert copied(read(remote.bootstrap, f"{PREFIX}{name}")) == copied(read(broker, name))


def test_mirror_after_a_reset_begins_again_when_its_copy_is_deleted(
    broker: str, remote: Server, tmp_path: Path
) -> None:
    pipeline = mirrored(broker, tmp_path, remote.bootstrap)
    pipeline.source.send(zipf_records(500, 2, seed=13, keys=50))
    pipeline.drain()
    done = CliRunner().invoke(main, ["reset", "-f", str(pipeline.file), "--to-start", "--yes"])
    copy = f"{PREFIX}{pipeline.settings.topic('aggregates')}"
    assert f"delete by hand: topic {copy} at {remote.bootstrap}, " in done.stdout, done.output
    assert pipeline.start("mirror").wait(WAIT_S) == 3
    log = (pipeline.folder / "mirror-0.log").read_text()
    assert "created again" in log
    assert f"group {PREFIX}{pipeline.name}-mirror-offsets, which no reset changes. Copying from the beginning" in log
    assert f"delete topic {copy} at {remote.bootstrap}" in log

    admin = AdminClient({"bootstrap.servers": remote.bootstrap, "log_level": 2})
    admin.delete_topics([copy])[copy].result()
    pipeline.drain()
    assert copied(read(remote.bootstrap, copy)) == copied(pipeline.read("aggregates"))


def test_mirror_whose_offsets_are_gone_refuses_to_copy_its_topic_again(
    broker: str, remote: Server, tmp_path: Path
) -> None:
    pipeline = mirrored(broker, tmp_path, remote.bootstrap, topic="partials")
    pipeline.source.send(zipf_records(500, 2, seed=14, keys=50))
    pipeline.drain()
    copy, group = f"{PREFIX}{pipeline.settings.topic('partials')}", f"{PREFIX}{pipeline.name}-mirror-offsets"
    written = copied(read(remote.bootstrap, copy))
    admin = AdminClient({"bootstrap.servers": remote.bootstrap, "log_level": 2})
    admin.delete_consumer_groups([group])[group].result()  # as brokers do after offsets.retention.minutes
    assert pipeline.start("mirror").wait(WAIT_S) == 3
    log = (pipeline.folder / "mirror-0.log").read_text()
    assert f"group {group} has no offset in any partition of topic {pipeline.settings.topic('partials')}" in log
    assert f"delete topic {copy} at {remote.bootstrap} and what was computed from it" in log
    assert copied(read(remote.bootstrap, copy)) == written


def test_mirror_of_another_topic_than_before_copies_it_too(broker: str, remote: Server, tmp_path: Path) -> None:
    pipeline = mirrored(broker, tmp_path, remote.bootstrap)
    pipeline.source.send(zipf_records(500, 2, seed=15, keys=50))
    pipeline.drain()
    document = json.loads(pipeline.file.read_text())
    document["mirror"]["topic"] = "partials"
    ended = run("mirror", document, tmp_path)
    assert ended.exit_code == 0, ended.output
    for topic in ("aggregates", "partials"):
        name = pipeline.settings.topic(topic)
        assert copied(read(remote.bootstrap, f"{PREFIX}{name}")) == copied(read(broker, name))


@pytest.mark.parametrize(
    ("mirror", "problem"),
    [
        ({"prefix": ""}, "is the cluster of the pipeline"),
        ({"create": False}, "does not exist at"),
        ({"prefix": "few."}, "has 3 partitions, the configuration wants 2"),
    ],
)
def test_mirror_whose_copy_does_not_fit_ends_with_2_and_a_remedy(
    broker: str, tmp_path: Path, mirror: dict[str, object], problem: str
) -> None:
    pipeline = mirrored(broker, tmp_path, broker, **mirror)
    create_topics(broker, {f"few.{pipeline.settings.topic('aggregates')}": 3})
    process = pipeline.start("mirror")
    assert process.wait(WAIT_S) == 2
    assert problem in (pipeline.folder / "mirror-0.log").read_text()


def test_mirror_whose_copy_the_pipeline_would_read_ends_with_2_and_a_remedy(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    pipeline = Pipeline(
        broker,
        tmp_path,
        source,
        source={"topic": None, "topics": {"match": rf"{source.topic}|read\.p-.*"}},
        mirror={"kafka": {"bootstrap_servers": broker, "connect_timeout_s": WAIT_S}, "prefix": "read."},
    )
    process = pipeline.start("mirror")
    assert process.wait(WAIT_S) == 2
    assert "so it would count its own results; use another prefix" in (pipeline.folder / "mirror-0.log").read_text()


def test_mirror_page_commands_as_written_store_the_copied_partials(broker: str, tmp_path: Path) -> None:
    up, flushed, _ = follow(ROOT / "docs" / "how-to" / "copy-to-another-cluster.md", tmp_path, broker)
    assert "mirror-0" in up
    assert len(flushed.splitlines()) == 3
