"""A pipeline with `topics.prefix` on a real broker: every name has the prefix, and commands find its topics."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

import skewless
from helpers.kafka import STAGES, Pipeline, Source, differences, read, truth, zipf_records
from helpers.waiting import WAIT_S
from skewless import topology
from skewless.cli.main import main
from skewless.kafka.admin.client import Admin

pytestmark = [pytest.mark.broker, pytest.mark.thorough]
RECORDS = 2_000
PREFIX = "prod.team_1."
INVALID = b"{"


@pytest.fixture(autouse=True)
def _children_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(skewless.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH")))))


def run(pipeline: Pipeline, *command: str) -> Result:
    return CliRunner().invoke(main, [*command, "-f", str(pipeline.file)])


def test_pipeline_with_a_prefix_uses_it_for_every_name(broker: str, tmp_path: Path) -> None:
    source, database = Source(broker, 2), tmp_path / "results.db"
    source.send(zipf_records(RECORDS, 2, seed=3, keys=50))
    source.send([(0, INVALID)])
    admin = AdminClient({"bootstrap.servers": broker})
    topics_before, groups_before = topics(admin), groups(admin)
    pipeline = Pipeline(
        broker, tmp_path, source, topics={"prefix": PREFIX}, sink={"url": f"sqlite://{database}"}, join=None
    )
    pipeline.drain()
    valid = (record for record in read(broker, source.topic) if record.value != INVALID)
    assert differences(pipeline, truth(valid)) == []

    full_name = f"{PREFIX}{pipeline.name}"
    own = {f"{full_name}.{row.name}" for row in topology.needed_topics(pipeline.settings)}
    assert topics(admin) - topics_before == own
    assert groups(admin) - groups_before == {f"{full_name}-{stage}" for stage in STAGES} | {f"{full_name}-sink"}
    with closing(sqlite3.connect(database)) as connection:
        stored = connection.execute("SELECT DISTINCT pipeline, topic FROM skewless_offsets").fetchall()
    assert stored == [(full_name, f"{full_name}.aggregates")]

    assert run(pipeline, "topics", "check").exit_code == 0
    status = run(pipeline, "status", "--json")
    lag = {stage["stage"]: stage["lag_records"] for stage in json.loads(status.stdout)["stages"]}
    assert lag == dict.fromkeys((*STAGES, "sink"), 0)
    letters = run(pipeline, "dead-letters", "list")
    assert (letters.exit_code, "malformed JSON" in letters.stdout) == (0, True), letters.output
    replayed = run(pipeline, "dead-letters", "replay")
    assert replayed.exit_code == 0, replayed.output

    removed = run(pipeline, "reset", "--delete", "--yes")
    assert removed.exit_code == 0, removed.output
    assert not own & set(Admin(pipeline.settings.kafka).partition_counts())
    assert groups(admin) - groups_before == set()


def topics(admin: AdminClient) -> set[str]:
    return {name for name in admin.list_topics(timeout=WAIT_S).topics if not name.startswith("__")}


def groups(admin: AdminClient) -> set[str]:
    return {group.group_id for group in admin.list_consumer_groups().result(WAIT_S).valid}
