"""The printed ACLs are sufficient, and each is necessary, on a broker that allows nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from helpers.docs_blocks import ROOT
from helpers.kafka import STAGES, START_MS, create_with
from helpers.stage_hosts import hosted, share_host, stage_host
from helpers.tiers import thorough_except
from helpers.waiting import WAIT_S, until
from integration.secured import ADMIN, ADMIN_PASSWORD, Secured, refusal
from skewless import topology
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.cli.main import main
from skewless.config import acls, topic_plan
from skewless.config.acls import AclBinding, Operation
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import resolve
from skewless.config.state_layout import state_schema_of
from skewless.errors import BrokerError, UnreachableError
from skewless.kafka.producer.bulk import BulkProducer, prepare_topic
from skewless.kafka.settings import KafkaSettings
from skewless.lab.local import child_process
from skewless.operations import dead_letters
from skewless.operations.closed_windows import closed_everywhere
from skewless.operations.dead_letters import Position, ReplayReport
from skewless.operations.reset import Leftovers, leftovers, remove
from skewless.operations.status import status
from skewless.wire.offset_metadata import encode_offset_metadata

pytestmark = pytest.mark.broker

PASSWORD = "of-every-user"  # noqa: S105 - of a broker that lives as long as this test
DEADLINE_S = 120.0
LANES_S = 600.0
POLL_S = 0.05
KEYS = 3
RECORDS = 30
GARBAGE = ("tuples", "worker-input", "partials")
"""Internal topics to which the test writes an invalid record, so that every stage writes a dead letter."""


def document(secured: Secured | None, user: str, name: str = "p", **parts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"topic": "raw"},
        "kafka": secured.kafka(user, PASSWORD) if secured else {},
        "splitter": {"format": "json", "key": {"field": "key"}, "time": {"field": "time"}},
        "worker_input": {"max_workers": 2},
        "router": {"workers": 2},
        "topics": {"aggregator_partitions": 1},
        "event_time": {"idle_timeout_s": None},
        "transport": {"commit_interval_s": 0.3, "session_timeout_s": 5} | parts,
    }


def settings_of(secured: Secured | None, user: str, name: str = "p", **parts: Any) -> PipelineSettings:
    return PipelineSettings.model_validate(document(secured, user, name, **parts))


def of_pattern(secured: Secured | None, user: str) -> PipelineSettings:
    """Return the settings of a pipeline `q` whose source topics match a pattern."""
    parts = {"source": {"topics": {"match": "ra[a-z]+"}}}
    return PipelineSettings.model_validate(document(secured, user, "q") | parts)


PREFIX = "prod.team."
OF_PREFIX = [
    AclBinding("topic", "raw", ("Read",), ()),
    AclBinding("topic", PREFIX, ("Read", "Write", "Create", "DescribeConfigs"), (), prefixed=True),
    AclBinding("group", PREFIX, ("Read",), (), prefixed=True),
    AclBinding("transactional id", PREFIX, ("Write",), (), prefixed=True),
]
"""ACLs of a team that may use only names with a prefix, as docs/how-to/secured-cluster.md has them."""


def of_prefix(secured: Secured) -> dict[str, Any]:
    """Return the settings of a pipeline `p` whose names have the prefix."""
    parts = document(secured, "team")
    return {**parts, "topics": {**parts["topics"], "prefix": PREFIX}}


@dataclass(frozen=True)
class Case:
    """A role without one of its ACLs."""

    role: str
    right: AclBinding
    operation: Operation

    def __str__(self) -> str:
        return f"{self.role}-without-{self.operation}-on-{self.right.resource}-{self.right.name}".replace(" ", "-")

    @property
    def left(self) -> list[AclBinding]:
        rights = acls.acls_for(settings_of(None, ""))[self.role]
        others = tuple(operation for operation in self.right.operations if operation != self.operation)
        kept = [right for right in rights if right != self.right]
        return [*kept, replace(self.right, operations=others)] if others else kept


CASES = [
    Case(role, right, operation)
    for role, allowed in acls.acls_for(settings_of(None, "")).items()
    for right in allowed
    for operation in right.operations
]
# A stage that reads everything again finds the hot keys of its first run in its changelog. So it writes no change.
UNUSED_AGAIN = {"p.hot-keys"}
OF_STAGES = [case for case in CASES if case.role in STAGES and case.right.name not in UNUSED_AGAIN]
NEEDED_FIRST = [case for case in OF_STAGES if case.right.needed == acls.CHECKED and case.operation == "Read"]
"""ACLs that a stage needs only while its group has no checkpoint."""
OF_TOPICS = [case for case in CASES if case.role == acls.TOPICS]
OF_STATUS = [case for case in CASES if case.role == acls.STATUS]
OF_DEAD_LETTERS = [case for case in CASES if case.role == acls.DEAD_LETTERS]


@dataclass(frozen=True)
class Outcome:
    code: int | None
    """Exit code; None if the test had to kill the process."""
    output: str


class Run:
    """A process that runs a stage to the end of its input."""

    def __init__(self, folder: Path, stage: str, content: dict[str, Any], user: str | None = None) -> None:
        file = write_file(folder, user or stage, content)
        self._log = file.with_suffix(".log")
        arguments = ["run", stage, "--file", str(file), "--drain"]
        self._child = stage_host().start(stage, arguments, os.environ, log=self._log)
        self._deadline = time.monotonic() + DEADLINE_S

    def is_running(self) -> bool:
        return self._child.poll() is None and time.monotonic() < self._deadline

    def wait(self) -> Outcome:
        """Wait for the end, and kill the process at the deadline."""
        while self.is_running():
            time.sleep(POLL_S)
        code = self._child.poll()
        child_process.kill(self._child)
        return Outcome(code, self._log.read_text())


@dataclass(frozen=True)
class Settled:
    secured: Secured
    ends: dict[str, Outcome]
    """Outcomes of the stages that ran with all of their ACLs."""


def write_file(folder: Path, user: str, content: dict[str, Any]) -> Path:
    file = folder / f"{user}.yaml"
    file.write_text(json.dumps(content))
    return file


@pytest.fixture(scope="module")
def secured(secured_server: Secured) -> Secured:
    """Add a user per role and per case, each with its ACLs."""
    rights = {**acls.acls_for(settings_of(None, "")), **{str(case): case.left for case in CASES}}
    lesser = settings_of(None, "", guarantee="at_least_once")
    rights["at-least-once"] = acls.acls_for(lesser)["splitter"]
    rights |= {f"q-{role}": allowed for role, allowed in acls.acls_for(of_pattern(None, "")).items()}
    rights["team"] = OF_PREFIX
    secured_server.add_users(dict.fromkeys(rights, PASSWORD))
    secured_server.allow(rights)
    create_with(AdminClient(secured_server.admin_options()), {"raw": 1})
    return secured_server


def fill(secured: Secured) -> None:
    """Write valid, late and invalid records to the source, and invalid records to the internal topics."""
    producer = Producer(secured.admin_options())
    entries = [{"key": f"k{number % KEYS}", "time": START_MS + number * 1000} for number in range(RECORDS)]
    for value in (*entries, {"key": "late", "time": START_MS - 3_600_000}):
        producer.produce("raw", json.dumps(value).encode(), partition=0)
    producer.produce("raw", b"{", partition=0)
    for topic in GARBAGE:
        producer.produce(f"p.{topic}", b"garbage", partition=0)
    assert producer.flush(DEADLINE_S) == 0


@pytest.fixture(scope="module")
def settled(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Settled:
    """Run the pipeline to its end, with one process and one user per stage."""
    folder = tmp_path_factory.mktemp("pipeline")
    topic_plan.apply(settings_of(secured, acls.TOPICS))
    fill(secured)

    running = {stage: Run(folder, stage, document(secured, stage)) for stage in STAGES}
    return Settled(secured, {stage: run.wait() for stage, run in running.items()})


@pytest.fixture(scope="module")
def outcomes(settled: Settled, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Run each stage without each of its ACLs: the stages in parallel, the cases of one stage in turn."""
    folder = tmp_path_factory.mktemp("cases")
    found: dict[str, Outcome] = {}

    def run(stage: str, user: str, **transport: str) -> Iterator[None]:
        process = Run(folder, stage, document(settled.secured, user, **transport), user)
        while process.is_running():
            yield
        found[user] = process.wait()

    def lane(cases: Sequence[Case]) -> Iterator[None]:
        for case in cases:
            yield from run(case.role, str(case))
        if cases[0].role == "splitter" and cases[0] not in NEEDED_FIRST:
            yield from run("splitter", "at-least-once", guarantee="at_least_once")

    def run_lanes(cases: Sequence[Case]) -> None:
        lanes = [lane(list(of_role)) for _, of_role in groupby(cases, key=lambda case: case.role)]
        until(lambda: not [one for one in lanes if next(one, one) is None], every_s=POLL_S, limit_s=LANES_S)

    forget(settled.secured)
    run_lanes(NEEDED_FIRST)
    move_back(settled.secured, encode_offset_metadata("", state_schema_of(settings_of(None, ""))))
    run_lanes([case for case in OF_STAGES if case not in NEEDED_FIRST])
    return found


def forget(secured: Secured) -> None:
    """Delete the offsets of every stage, after the sessions of its earlier processes have expired.

    Without a checkpoint, a group looks for earlier results.
    """
    admin = AdminClient(secured.admin_options())
    waiting = {f"p-{stage}" for stage in STAGES}

    def forgotten() -> bool:
        for group, future in admin.delete_consumer_groups(sorted(waiting)).items():
            with contextlib.suppress(KafkaException):
                future.result()
                waiting.remove(group)
        return not waiting

    until(forgotten, every_s=0.2)


def move_back(secured: Secured, metadata: str) -> None:
    """Reset the offsets of every stage, after the sessions of its earlier processes have expired."""
    admin = AdminClient(secured.admin_options())
    known = admin.list_topics(timeout=DEADLINE_S).topics
    waiting = {}
    for stage in STAGES:
        topic = settings_of(secured, stage).topic(topology.stage(stage).input)
        begin = [TopicPartition(topic, partition, 0, metadata) for partition in known[topic].partitions]
        waiting[f"p-{stage}"] = ConsumerGroupTopicPartitions(f"p-{stage}", begin)

    def moved() -> bool:
        for group, begin in list(waiting.items()):
            with contextlib.suppress(KafkaException):
                found = admin.alter_consumer_group_offsets([begin])[group].result()
                if not any(at.error for at in found.topic_partitions):
                    del waiting[group]
        return not waiting

    until(moved, every_s=0.2)


def names_acl(case: Case, text: str) -> bool:
    """Return whether a message names the ACL and its resource."""
    reason, _, remedy = text.strip().rpartition("; grant ")
    return case.right.name in reason and str(case.operation) in remedy.partition(" on ")[0]


def test_acls_as_printed_let_every_stage_finish(settled: Settled) -> None:
    assert {stage: end.code for stage, end in settled.ends.items()} == dict.fromkeys(STAGES, 0), settled.ends


def test_acls_as_printed_let_a_reader_read_the_results(settled: Settled) -> None:
    found = read(settled.secured, "p.aggregates")
    counts = {entry["key"]: entry["count"] for entry in found}
    assert counts == {f"k{number}": RECORDS // KEYS for number in range(KEYS)}
    assert len(read(settled.secured, "p.late")) == 1


def test_acls_as_printed_let_the_example_reader_print_the_results(
    settled: Settled, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = settings_of(settled.secured, acls.READERS).kafka
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda own: Consumer({**kafka.client_options(), **own}))
    monkeypatch.setattr(sys, "argv", ["results.py", kafka.bootstrap_servers, "p"])
    runpy.run_path(str(ROOT / "deploy" / "examples" / "readers" / "results.py"), run_name="__main__")
    assert {json.loads(line)["key"] for line in capsys.readouterr().out.splitlines()} == {"k0", "k1", "k2"}


def test_acls_as_printed_let_only_status_know_the_closed_windows(settled: Settled) -> None:
    assert closed_everywhere(settings_of(settled.secured, acls.STATUS), topology.RESULTS_STAGE) == MAX_WATERMARK
    with pytest.raises(BrokerError, match=r"looking for topic p\.partials .*grant Describe"):
        closed_everywhere(settings_of(settled.secured, acls.READERS), topology.RESULTS_STAGE)


@pytest.mark.thorough
def test_acls_as_printed_let_a_pipeline_read_the_topics_of_a_pattern(settled: Settled, tmp_path: Path) -> None:
    secured = settled.secured
    topic_plan.apply(of_pattern(secured, "q-topics"))
    for stage in ("splitter", "router"):
        pattern = {"source": {"topics": {"match": "ra[a-z]+"}}}
        ended = Run(tmp_path, stage, document(secured, f"q-{stage}", "q") | pattern).wait()
        assert ended.code == 0, ended.output


@pytest.mark.thorough
def test_acls_of_a_prefix_let_a_whole_pipeline_run(
    settled: Settled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user for all stages, with ACLs for names with a prefix only."""
    share_host(monkeypatch)
    content = of_prefix(settled.secured)
    settings = PipelineSettings.model_validate(content)
    topic_plan.apply(settings)
    run = ["up", "--file", str(write_file(tmp_path, "team", content)), "--drain", "--log-dir", str(tmp_path)]
    ended = CliRunner().invoke(main, run)
    assert ended.exit_code == 0, ended.output
    found = read(settled.secured, f"{PREFIX}p.aggregates", user="team", group=f"{PREFIX}p-readers")
    counts = {entry["key"]: entry["count"] for entry in found}
    assert counts == {f"k{number}": RECORDS // KEYS for number in range(KEYS)}


def read(secured: Secured, topic: str, user: str = acls.READERS, group: str = "p-readers") -> list[dict[str, Any]]:
    options = settings_of(secured, user).kafka.client_options()
    reading = {"group.id": f"{group}-{topic}", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({**options, **reading})
    entries: list[dict[str, Any]] = []
    with contextlib.closing(consumer):
        consumer.subscribe([topic])
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"the end of {topic} was not reached"
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return entries
            entries.append(json.loads(message.value()))


@pytest.mark.thorough
@pytest.mark.parametrize("case", OF_STAGES, ids=str)
def test_acls_one_missing_at_the_start_ends_the_stage_with_its_name(case: Case, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[str(case)]
    assert outcome.code == BrokerError.exit_code, outcome.output
    last = outcome.output.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert names_acl(case, last), last


@pytest.mark.thorough
def test_acls_at_least_once_needs_none_on_transactional_ids(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["at-least-once"].code == 0, outcomes["at-least-once"].output


@pytest.mark.parametrize("case", OF_TOPICS, ids=str)
def test_acls_one_missing_fails_topics_apply_with_its_name(case: Case, settled: Settled) -> None:
    """All topics but one exist, so the commands have topics to describe, to verify and to create."""
    admin = AdminClient(settled.secured.admin_options())
    for future in admin.delete_topics(["p.late"]).values():
        with contextlib.suppress(KafkaException):
            future.result()
    until(lambda: "p.late" not in admin.list_topics(timeout=DEADLINE_S).topics)
    with pytest.raises(BrokerError) as raised:
        topic_plan.apply(settings_of(settled.secured, str(case)))
    assert names_acl(case, str(raised.value)), raised.value


def read_only(secured: Secured, user: str, limit_s: float = WAIT_S) -> None:
    """Run what `helm test` runs by default."""
    parts = document(secured, user)
    settings = PipelineSettings.model_validate({**parts, "kafka": {**parts["kafka"], "connect_timeout_s": limit_s}})
    report = status(settings, time.time_ns() // 1_000_000, recent_s=300, max_lag_s=None)
    assert [stage.name for stage in report.stages] == list(STAGES)
    assert topic_plan.check(settings).created == ()


@pytest.mark.thorough
def test_acls_as_printed_let_a_user_see_the_status_and_check_the_topics(settled: Settled) -> None:
    topic_plan.apply(settings_of(settled.secured, acls.TOPICS))
    read_only(settled.secured, acls.STATUS)


@pytest.mark.thorough
@pytest.mark.parametrize("case", OF_STATUS, ids=str)
def test_acls_one_missing_fails_status_or_the_check_with_its_name(case: Case, settled: Settled) -> None:
    topic_plan.apply(settings_of(settled.secured, acls.TOPICS))
    # A client that may not describe a group waits for an answer until its time limit.
    limit_s = 15 if case.right.resource == "group" else WAIT_S
    with pytest.raises((BrokerError, UnreachableError)) as raised:
        read_only(settled.secured, str(case), limit_s)
    assert names_acl(case, str(raised.value)), raised.value


def replay(secured: Secured, user: str) -> ReplayReport:
    settings = settings_of(secured, user)
    return dead_letters.replay(settings, dead_letters.read_dead_letters(settings), origin="raw", target="raw")


def test_acls_as_printed_let_a_user_replay_dead_letters(settled: Settled) -> None:
    assert replay(settled.secured, acls.DEAD_LETTERS).replayed == 1


@pytest.mark.thorough
@pytest.mark.parametrize("case", OF_DEAD_LETTERS, ids=str)
def test_acls_one_missing_fails_a_replay_with_its_name(case: Case, settled: Settled) -> None:
    """Topic `replays` has a record, and there is a dead letter that was not replayed."""
    assert replay(settled.secured, acls.DEAD_LETTERS).already_replayed
    at = Position("raw", 0, OF_DEAD_LETTERS.index(case))
    letter = {"topic": at.topic, "partition": str(at.partition), "offset": str(at.offset), "reason": "a test"}
    headers = {f"__skewless.errors.{name}": text.encode() for name, text in letter.items()}
    settings = settings_of(settled.secured, acls.DEAD_LETTERS)
    (original,) = dead_letters.read_positions(settings, at.topic, [at]).values()
    producer = Producer(settled.secured.admin_options())
    producer.produce("p.dead-letters", original.value, original.key, partition=0, headers=headers)
    assert producer.flush(DEADLINE_S) == 0
    with pytest.raises(BrokerError) as raised:
        replay(settled.secured, str(case))
    assert names_acl(case, str(raised.value)), raised.value


def test_max_workers_unset_without_the_right_to_see_the_topic_are_those_of_the_last_run(settled: Settled) -> None:
    for stage in ("splitter", "router", "aggregator"):
        parts = document(settled.secured, stage)
        assert parts.pop("worker_input") == {"max_workers": 2}
        settings = PipelineSettings.model_validate(parts)
        assert resolve(topology.stage(stage), settings, drain=False).settings.worker_input.max_workers == 2


def test_reset_by_a_user_without_rights_is_refused(settled: Settled) -> None:
    with pytest.raises(BrokerError, match=r"looking for topic p\.tuples .*grant Describe"):
        leftovers(settings_of(settled.secured, acls.READERS), None, pytest.fail)


def test_reset_by_a_user_who_may_not_see_the_groups_names_the_right(settled: Settled) -> None:
    parts = document(settled.secured, acls.TOPICS)
    # A client that may not describe a group waits for an answer until its time limit.
    settings = PipelineSettings.model_validate({**parts, "kafka": {**parts["kafka"], "connect_timeout_s": 15}})
    with pytest.raises(UnreachableError, match=r"offsets of group p-splitter: .*grant Describe on the group"):
        leftovers(settings, None, pytest.fail)


def test_reset_by_a_user_who_may_not_delete_groups_names_the_right(settled: Settled) -> None:
    settings = settings_of(settled.secured, acls.TOPICS)
    with pytest.raises(BrokerError, match=r"deleting group p-splitter .*grant Delete on the group"):
        remove(settings, Leftovers(topics={"p.tuples": 1}, groups=(), tables=()), None, pytest.fail)


@pytest.mark.parametrize("name", thorough_except(["p-splitter-"], ["p.tuples", "p-splitter-"]))
def test_acls_one_removed_in_the_run_ends_the_stage_with_its_name(name: str, settled: Settled, tmp_path: Path) -> None:
    secured, user = settled.secured, "splitter"
    (right,) = (right for right in acls.acls_for(settings_of(None, ""))[user] if right.name == name)
    file = write_file(tmp_path, user, document(secured, user))
    producer = Producer(secured.admin_options())

    def feed() -> None:
        producer.produce("raw", json.dumps({"key": "a", "time": START_MS + 60_000}).encode(), partition=0)
        producer.flush(DEADLINE_S)
        time.sleep(0.2)

    child = stage_host().start(user, ["run", user, "--file", str(file)], os.environ, log=tmp_path / "log")
    try:
        until(lambda: "assigned" in (tmp_path / "log").read_text())
        secured.withdraw(user, right)
        until(lambda: child.poll() is not None, each=feed, limit_s=DEADLINE_S)
    finally:
        child_process.kill(child)
        secured.allow({user: [right]})
    assert child.returncode == BrokerError.exit_code
    last = (tmp_path / "log").read_text().strip().splitlines()[-1]
    assert names_acl(Case(user, right, "Write"), last), last


def test_stage_whose_password_is_changed_in_the_run_ends_with_the_error_of_a_start(
    settled: Settled, tmp_path: Path
) -> None:
    """The broker requires another login of its connections, as it does when it restarts."""
    secured, user = settled.secured.mutual, "rotated"
    assert secured is not None
    secured.add_users({user: PASSWORD})
    secured.allow({user: acls.acls_for(settings_of(None, ""))["splitter"]})
    file, log = write_file(tmp_path, user, document(secured, user)), tmp_path / "log"
    with hosted(file, "run", "splitter", log=log) as child:
        until(lambda: "assigned" in log.read_text())
        secured.add_users({user: f"{PASSWORD}-new"})
        until(lambda: child.poll() is not None)
    assert child.returncode == BrokerError.exit_code
    assert re.search(r"refuses this client: .*correct kafka", log.read_text().strip().splitlines()[-1])


def test_client_wrong_password_is_reported_as_invalid_credentials(secured: Secured) -> None:
    failures = document(secured, acls.TOPICS)
    failures["kafka"] |= {"connect_timeout_s": 300}
    failures["kafka"]["sasl"]["password"] = "wrong"  # noqa: S105 - which it is
    began = time.monotonic()
    with pytest.raises(BrokerError, match=r"refuses this client: .*invalid credentials.*correct kafka") as raised:
        topic_plan.check(PipelineSettings.model_validate(failures))
    assert raised.value.exit_code == 3
    assert time.monotonic() - began < PipelineSettings.model_validate(failures).kafka.connect_timeout_s / 2


def test_client_untrusted_certificate_authority_is_reported_with_its_cause(secured: Secured) -> None:
    stranger = document(secured, acls.TOPICS)
    del stranger["kafka"]["tls"]
    error = str(refusal(stranger["kafka"]))
    assert error.startswith("the certificate of Kafka at ")
    assert "cannot be verified: kafka.tls.ca" in error


def test_client_host_that_the_certificate_does_not_name_is_refused_unless_names_are_not_verified(
    secured: Secured,
) -> None:
    """The certificate names 127.0.0.1 only."""
    kafka = document(secured, acls.TOPICS)["kafka"]
    kafka["bootstrap_servers"] = kafka["bootstrap_servers"].replace("127.0.0.1", "localhost")
    assert "or set kafka.tls.verify_hostname to false" in str(refusal(kafka))
    kafka["tls"]["verify_hostname"] = False
    settings = KafkaSettings.model_validate(kafka)
    assert AdminClient(settings.client_options()).list_topics(timeout=WAIT_S).brokers


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("aggregator", "not allowed while looking for topic raw at .*; grant Describe"),
        ("team", "not allowed while sending to topic raw: .*; grant Write on the topic"),
    ],
)
def test_produce_by_a_user_without_a_right_on_the_topic_names_it(secured: Secured, user: str, message: str) -> None:
    kafka = settings_of(secured, user).kafka
    with pytest.raises(BrokerError, match=message):
        send(kafka)


def send(kafka: KafkaSettings) -> None:
    """Send a record to topic `raw`."""
    producer = BulkProducer(kafka, "raw", prepare_topic(kafka, "raw", None))
    producer.send([b"x"], [START_MS])
    producer.flush()


@pytest.mark.thorough
def test_broker_with_mutual_tls_accepts_client_certificates_and_refuses_others(secured: Secured) -> None:
    mutual = secured.mutual
    assert mutual is not None
    known = document(mutual, ADMIN, "mutual")
    known["kafka"]["sasl"] = {"mechanism": "PLAIN", "username": ADMIN, "password": ADMIN_PASSWORD}
    settings = PipelineSettings.model_validate(known)
    topic_plan.apply(settings)
    assert topic_plan.check(settings).created == ()

    known["kafka"]["tls"] = {"ca": str(mutual.ca)}
    # The broker closes the connection after the TLS handshake. librdkafka does not always receive the reason.
    assert "security" in str(refusal(known["kafka"], may_be_silent=True))
