"""The rights that the page lists are sufficient in the other cluster. Each is necessary, and named if it is missing."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from helpers.kafka import Pipeline, Source, create_with, zipf_records
from helpers.stage_hosts import ended, hosted
from helpers.waiting import until
from integration.secured import Secured
from skewless.config.acls import AclBinding, Operation

pytestmark = pytest.mark.broker

PASSWORD = "of-every-user"  # noqa: S105 - of a broker that lives as long as this test
TOPIC = "aggregates"


def rights(user: str, pipeline: str) -> list[AclBinding]:
    """Return the rights that docs/how-to/copy-to-another-cluster.md lists, for the prefix of this user."""
    offsets, copy = f"{user}.{pipeline}-mirror-offsets", f"{user}.{pipeline}.{TOPIC}"
    return [
        AclBinding("topic", copy, ("Read", "Write", "Create", "DescribeConfigs"), ()),
        AclBinding("group", offsets, ("Read",), ()),
        AclBinding("transactional id", offsets, ("Write",), ()),
    ]


@dataclass(frozen=True)
class Case:
    """One right that a user lacks."""

    resource: str
    operation: Operation

    def __str__(self) -> str:
        return f"without-{self.operation}-on-{self.resource.replace(' ', '-')}"

    def left(self, pipeline: str) -> list[AclBinding]:
        """Return the other rights."""
        return [
            replace(right, operations=tuple(operation for operation in right.operations if operation != self.operation))
            if right.resource == self.resource
            else right
            for right in rights(str(self), pipeline)
        ]


CASES = [Case(right.resource, operation) for right in rights("", "") for operation in right.operations]


@dataclass(frozen=True)
class Clusters:
    """A pipeline with results, and the other cluster."""

    pipeline: Pipeline
    other: Secured

    def file(self, user: str) -> Path:
        """Return a file that copies the results as this user, with its name as prefix."""
        document = json.loads(self.pipeline.file.read_text())
        document["mirror"] = {"kafka": self.other.kafka(user, PASSWORD), "prefix": f"{user}."}
        file = self.pipeline.folder / f"{user}.yaml"
        file.write_text(json.dumps(document))
        return file

    def mirror(self, user: str) -> tuple[int, str]:
        """Copy the results to the end. Returns the exit code and what the process printed."""
        return ended(self.file(user), "run", "mirror", "--drain")


@pytest.fixture(scope="module")
def clusters(broker: str, secured_server: Secured, tmp_path_factory: pytest.TempPathFactory) -> Clusters:
    pipeline = Pipeline(broker, tmp_path_factory.mktemp("pipeline"), Source(broker, 1))
    pipeline.source.send(zipf_records(100, 1, seed=21, keys=10))
    pipeline.drain()
    allowed = {"all": rights("all", pipeline.name)} | {str(case): case.left(pipeline.name) for case in CASES}
    secured_server.add_users(dict.fromkeys(allowed, PASSWORD))
    secured_server.allow(allowed)
    existing = [str(case) for case in CASES if case.operation == "DescribeConfigs"]  # only such a copy is verified
    copies = {f"{user}.{pipeline.name}.{TOPIC}": pipeline.settings.topics.aggregator_partitions for user in existing}
    create_with(AdminClient(secured_server.admin_options()), copies)
    return Clusters(pipeline, secured_server)


def test_rights_as_listed_let_a_mirror_create_and_write_its_copy(clusters: Clusters) -> None:
    for _ in range(2):
        code, output = clusters.mirror("all")
        assert code == 0, output


@pytest.mark.parametrize("case", [case for case in CASES if case.resource != "group"], ids=str)
def test_rights_without_one_end_a_mirror_with_its_name(case: Case, clusters: Clusters) -> None:
    code, output = clusters.mirror(str(case))
    assert code == 3, output
    last = output.strip().splitlines()[-1]
    _, _, remedy = last.rpartition("; grant ")
    assert str(case.operation) in remedy.partition(" on ")[0], last
    assert "docs/how-to/copy-to-another-cluster.md lists" in remedy, last


def test_rights_without_that_on_the_group_are_named_while_a_mirror_waits(clusters: Clusters, tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.resource == "group")
    log = tmp_path / "mirror.log"
    with hosted(clusters.file(str(case)), "run", "mirror", "--drain", log=log) as process:
        until(lambda: f"grant Read on group {case}.{clusters.pipeline.name}-mirror-offsets" in log.read_text())
        assert process.poll() is None
