"""Start of a group: with checkpoints, without them, with offsets set by hand, or after records were deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, get_args

import msgspec
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from helpers.headers import internal_headers
from helpers.kafka import STAGES
from helpers.waiting import WAIT_S
from helpers.waiting import until as wait_until
from integration.engine.harness import DEADLINE_S, Copy, Harness, failure_of, running, started, until
from skewless import topology
from skewless.algorithms.watermark import WatermarkState
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.engine import consumer_loop
from skewless.engine.start_checks import PriorOutput, PriorOutputInTopic, TopicKind
from skewless.errors import BrokerError, ConfigurationError
from skewless.kafka.consumer.options import consumer_options
from skewless.kafka.consumer.topic_ids import read_topic_ids
from skewless.kafka.consumer.unreadable_records import is_unreadable
from skewless.kafka.settings import TransportSettings
from skewless.service import build_runtime
from skewless.stages.built_stage import BuiltStage
from skewless.wire.headers import WATERMARK, report_of_sources, schema_header
from skewless.wire.offset_metadata import decode_offset_metadata, encode_offset_metadata
from skewless.wire.partials import PARTIALS
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.state_schema import StateSchema
from skewless.wire.topic_partition import TopicPartition as InputPartition

RECORDS = 40
SHAPE = StateSchema(
    window=60_000,
    tick_ms=60_000,
    columns="count",
    decimals=0,
    max_workers=4,
    aggregator_partitions=4,
    emit="updates",
    lateness_ms=0,
)


class Schematic(Copy):
    """Copies records with the headers of a stage."""

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        for output in super().process(batch, now):
            yield msgspec.structs.replace(output, headers=internal_headers(PARTIALS, {batch.partition: 0}))


@pytest.fixture
def harness(broker: str) -> Harness:
    return Harness(broker)


@pytest.fixture
def copied(harness: Harness) -> Harness:
    """Write the results and checkpoints that a stage leaves after it has copied its input."""
    harness.fill(RECORDS)
    put_results(harness, RECORDS)
    put_checkpoints(harness, range(harness.partitions))
    return harness


def put_checkpoints(harness: Harness, partitions: Iterable[int]) -> None:
    for partition in partitions:
        put(harness, RECORDS // 4, encode_offset_metadata(str(RECORDS // 4), SHAPE), partition)


def put_results(harness: Harness, records: int) -> None:
    producer = Producer({"bootstrap.servers": harness.bootstrap, "enable.idempotence": True})
    for number in range(records):
        value, headers = str(number).encode(), list(internal_headers(PARTIALS, {number % 4: 0}))
        producer.produce(harness.topic("out"), value, partition=number % 4, headers=headers)
    assert producer.flush(WAIT_S) == 0


def stage(harness: Harness, **changes: Any) -> Any:
    return running(wiring(harness, **changes))


def wiring(harness: Harness, **changes: Any) -> Any:
    exactly_once = harness.transport.guarantee == "exactly_once"
    traces = PriorOutputInTopic(
        harness.kafka, harness.topic("out"), aligned=True, public=False, exactly_once=exactly_once
    )
    return harness.wiring(Schematic(), **{"state_schema": SHAPE, "kind": "internal", "prior_output": traces, **changes})


async def refusal(harness: Harness, **changes: Any) -> str:
    """Start the stage, and return the error with which it ends. It must not write any results."""
    before = harness.count()
    async with started(wiring(harness, **changes)) as app:
        failure = await failure_of(app)
    assert isinstance(failure, BrokerError | ConfigurationError), failure
    assert harness.count() == before
    return str(failure)


def admin(harness: Harness) -> AdminClient:
    """Return a client; it must outlive its futures."""
    return AdminClient({"bootstrap.servers": harness.bootstrap})


def forget(harness: Harness) -> None:
    """Delete the group's offsets, as the broker does when they have expired."""
    client, group = admin(harness), f"{harness.prefix}-copy"
    client.delete_consumer_groups([group])[group].result(WAIT_S)


def put(harness: Harness, offset: int, metadata: str = "", partition: int = 0) -> None:
    """Set an offset by hand."""
    place = TopicPartition(harness.topic("in"), partition, offset, metadata)
    client, request = admin(harness), ConsumerGroupTopicPartitions(f"{harness.prefix}-copy", [place])

    def is_set() -> bool:
        (future,) = client.alter_consumer_group_offsets([request]).values()
        return all(at.error is None for at in future.result(WAIT_S).topic_partitions)

    wait_until(is_set)  # a broker that has just started first loads its group coordinator


def abort(harness: Harness, topic: str) -> None:
    """Write a result in a transaction that is aborted, as a process does that is killed in its first transaction."""
    producer = Producer({"bootstrap.servers": harness.bootstrap, "transactional.id": f"{harness.prefix}-killed"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(harness.topic(topic), b"aborted", partition=0, headers=list(internal_headers(PARTIALS, {})))
    assert producer.flush(WAIT_S) == 0
    producer.abort_transaction(WAIT_S)


# Lost offsets


async def test_start_checks_output_without_offsets_is_refused(copied: Harness) -> None:
    forget(copied)
    message = await refusal(copied)
    assert f"has no offset in any partition of topic {copied.topic('in')}, but has written to topic" in message
    assert "another name" in message


@pytest.mark.thorough
async def test_start_checks_output_emptied_by_retention_without_offsets_is_refused(copied: Harness) -> None:
    forget(copied)
    for partition in range(copied.partitions):
        copied.delete_records("out", RECORDS // 4, partition)
    assert copied.count() == 0
    assert "has no offset in any partition" in await refusal(copied)


@pytest.mark.thorough
async def test_start_checks_state_without_offsets_is_refused(harness: Harness) -> None:
    harness.fill(RECORDS)
    message = await refusal(harness, restore=lambda positions: {min(positions): [(b"0/0", b"chunk")]})
    assert "but has written to its changelog" in message


async def test_start_checks_one_partition_without_an_offset_is_refused(copied: Harness) -> None:
    topic, group = copied.topic("in"), f"{copied.prefix}-copy"
    forget(copied)
    put_checkpoints(copied, (0, 1, 3))
    assert f"group {group} has no offset in partition 2 of topic {topic}, but has written" in await refusal(copied)


async def test_start_checks_first_start_killed_in_its_first_transaction_starts_again(harness: Harness) -> None:
    harness.fill(RECORDS)
    abort(harness, "out")
    async with stage(harness):
        await until(lambda: harness.count() == RECORDS)


@pytest.mark.parametrize("expired", [False, True], ids=["present", "expired"])
async def test_start_checks_at_least_once_refuses_expired_results_only(broker: str, expired: bool) -> None:  # noqa: FBT001 - a case
    """A process that was killed before its first commit leaves results without offsets."""
    harness = Harness(broker, transport=TransportSettings(guarantee="at_least_once", commit_interval_s=0.1))
    harness.fill(RECORDS)
    put_results(harness, 1)
    if expired:
        harness.delete_records("out", 1)
        assert "has no offset in any partition" in await refusal(harness)
        return
    async with stage(harness):
        await until(lambda: harness.count() == RECORDS + 1)


async def test_executor_after_the_first_commit_has_a_checkpoint_in_every_partition(harness: Harness) -> None:
    producer = Producer({"bootstrap.servers": harness.bootstrap, "enable.idempotence": True})
    producer.produce(harness.topic("in"), b"only", partition=0)
    assert producer.flush(WAIT_S) == 0
    async with stage(harness):
        await until(lambda: all(metadata for _, metadata in harness.committed().values()))
        await until(lambda: harness.count() == 1)
    assert {partition: offset for partition, (offset, _) in harness.committed().items()} == {0: 1, 1: 0, 2: 0, 3: 0}


@pytest.mark.thorough
async def test_executor_second_process_is_assigned_partitions_without_records(harness: Harness) -> None:
    harness.fill(1)
    async with running(wiring(harness)) as one:
        await until(lambda: harness.count() == 1)
        async with running(replace(wiring(harness), group_instance_id=f"{harness.prefix}-copy-1")) as other:
            both = (one.executor.assignment, other.executor.assignment)
            await until(lambda: [len(assignment.partitions) for assignment in both] == [2, 2])
    assert harness.count() == 1


# Offsets set by hand, other settings, other versions


@pytest.mark.parametrize(("kind", "offset"), [*((kind, 3) for kind in get_args(TopicKind)), ("user", 0)])
async def test_start_checks_offset_set_by_hand_is_refused(copied: Harness, kind: TopicKind, offset: int) -> None:
    put(copied, offset)
    message = await refusal(copied, kind=kind)
    expected = f"offsets of topic {copied.topic('in')} that Skewless did not commit, in partition 0 offset {offset}:"
    assert expected in message


async def test_start_checks_settings_changed_since_the_checkpoint_are_named(copied: Harness) -> None:
    message = await refusal(copied, state_schema=msgspec.structs.replace(SHAPE, aggregator_partitions=8))
    assert "topics.aggregator_partitions: is 8, was 4" in message


async def test_start_checks_checkpoint_of_another_version_is_refused(copied: Harness) -> None:
    put(copied, 3, '10\n[60000,60000,"count",0]')
    assert "was last committed by another version of Skewless" in await refusal(copied)


async def test_executor_restarted_continues_from_its_committed_checkpoints(copied: Harness) -> None:
    copied.fill(RECORDS, start=RECORDS)
    step = Schematic()
    async with running(replace(wiring(copied), executor=copied.wiring(step).executor)):
        await until(lambda: copied.count() == 2 * RECORDS)
    assert step.assigned == [(partition, str(RECORDS // 4)) for partition in range(4)]
    assert copied.read() == copied.expected(2 * RECORDS)


# Deleted records


@pytest.mark.parametrize("kind", get_args(TopicKind))
async def test_start_checks_records_deleted_after_the_checkpoint_are_refused(copied: Harness, kind: TopicKind) -> None:
    copied.fill(RECORDS, start=RECORDS)
    committed, _ = copied.committed()[0]
    copied.delete_records("in", committed + 1)
    message = await refusal(copied, kind=kind)
    expected = f"partition 0 (committed offset {committed}, log start offset {committed + 1})"
    assert f"records of topic {copied.topic('in')} were deleted before group" in message
    assert expected in message
    assert ("internal_retention_s" in message) == (kind == "internal")
    assert ("source.skip_to" in message) == (kind == "user")


async def test_executor_skip_to_after_deleted_records_continues_with_the_checkpoint(copied: Harness) -> None:
    copied.fill(RECORDS, start=RECORDS)
    copied.delete_records("in", RECORDS // 4 + 3, partition=3)
    async with stage(copied, kind="user", skip_to={3: RECORDS // 4 + 3}):
        await until(lambda: copied.count() == 2 * RECORDS - 3)
    _, metadata = copied.committed()[3]
    assert decode_offset_metadata(metadata)[:2] == (str(RECORDS // 2 - 3), SHAPE)


async def test_executor_skip_to_after_the_end_of_a_running_group_is_refused_by_its_name(copied: Harness) -> None:
    end = RECORDS // 2 + 1
    message = await refusal(copied, kind="user", skip_to={3: end})
    assert message == f"source.skip_to.3: {end} is after {copied.committed()[3][0]}, the partition's end"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["public", "user"])
async def test_start_checks_records_deleted_before_the_first_commit_are_refused_if_internal(
    harness: Harness, kind: TopicKind
) -> None:
    harness.fill(RECORDS)
    harness.delete_records("in", 4)
    assert "in partition 0 (no committed offset, log start offset 4)" in await refusal(harness)
    async with stage(harness, kind=kind):
        await until(lambda: harness.count() == RECORDS - 4)


def create_again(harness: Harness, name: str) -> None:
    client, topic = admin(harness), harness.topic(name)
    client.delete_topics([topic], operation_timeout=WAIT_S)[topic].result(WAIT_S)

    def is_created() -> bool:
        (future,) = client.create_topics([NewTopic(topic, harness.partitions, 1)]).values()
        return future.exception(WAIT_S) is None

    wait_until(is_created)


async def test_start_checks_topic_created_again_during_the_run_ends_the_process(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_loop, "CHECK_TOPICS_S", 0.2)
    harness.fill(RECORDS)
    async with started(wiring(harness)) as app:
        await until(lambda: harness.count() == RECORDS)
        await asyncio.to_thread(create_again, harness, "in")
        await asyncio.to_thread(harness.fill, 3 * RECORDS)
        failure = await failure_of(app)
    assert isinstance(failure, BrokerError), failure
    topic, group = harness.topic("in"), f"{harness.prefix}-copy"
    assert f"topic {topic} was deleted and created again while group {group} was reading it" in str(failure)
    assert "or give the pipeline another name" in str(failure)


async def test_start_checks_topic_created_again_with_fewer_partitions_within_the_session_is_refused(
    broker: str,
) -> None:
    """The coordinator gives the restarted member its former assignment, which has partitions that do not exist."""
    harness = Harness(broker, transport=TransportSettings(commit_interval_s=0.1, session_timeout_s=60))
    harness.fill(RECORDS)
    async with stage(harness):
        await until(lambda: harness.count() == RECORDS)
    harness.partitions = 2
    await asyncio.to_thread(create_again, harness, "in")
    assert "the topic was deleted and created again" in await refusal(harness)


@pytest.mark.parametrize("kind", get_args(TopicKind))
async def test_start_checks_topic_created_again_since_the_checkpoint_is_refused(
    copied: Harness, kind: TopicKind
) -> None:
    (topic_id,) = read_topic_ids({"bootstrap.servers": copied.bootstrap}, [copied.topic("in")]).values()
    put(copied, 4, encode_offset_metadata("4", SHAPE, topic_id ^ 1), partition=2)
    line = await refusal(copied, kind=kind)
    assert f"topic {copied.topic('in')} was deleted and created again after group" in line
    assert "had read partition 2 up to offset 4" in line


async def test_executor_checkpoint_without_topic_id_continues_and_gets_the_id_with_the_next_commit(
    copied: Harness,
) -> None:
    async with stage(copied):
        copied.fill(RECORDS, start=RECORDS)
        await until(lambda: copied.count() == 2 * RECORDS)
    ids = read_topic_ids({"bootstrap.servers": copied.bootstrap}, [copied.topic("in"), "missing"])
    assert list(ids) == [copied.topic("in")]
    stored = {decode_offset_metadata(metadata).topic_id for _, metadata in copied.committed().values()}
    assert stored == set(ids.values())


async def test_executor_changelog_created_again_since_the_checkpoint_is_refused(copied: Harness) -> None:
    changelog = copied.topic("out")
    async with stage(copied, changelog=changelog):
        copied.fill(RECORDS, start=RECORDS)
        await until(lambda: copied.count() == 2 * RECORDS)
    ids = read_topic_ids({"bootstrap.servers": copied.bootstrap}, [copied.topic("in"), changelog])
    checkpoints = [decode_offset_metadata(metadata) for _, metadata in copied.committed().values()]
    stored = {(checkpoint.topic_id, checkpoint.changelog_id) for checkpoint in checkpoints}
    assert stored == {(ids[copied.topic("in")], ids[changelog])}
    put(copied, 4, encode_offset_metadata("4", SHAPE, ids[copied.topic("in")], ids[changelog] ^ 1), partition=2)
    line = await refusal(copied, changelog=changelog)
    assert f"topic {changelog} was deleted and created again after group {copied.prefix}-copy had written" in line
    assert "or give the pipeline another name" in line


def test_consumer_records_deleted_during_the_run_reports_an_error(harness: Harness) -> None:
    """An offset below the log start must never be reset, even if this happens after the check at the assignment."""
    harness.fill(RECORDS)
    harness.delete_records("in", 4)
    options = consumer_options(harness.kafka, harness.transport, harness.prefix, "member", end_of_partition=False)
    consumer = Consumer(options)
    consumer.assign([TopicPartition(harness.topic("in"), 0, 2)])
    message = consumer.poll(DEADLINE_S)
    consumer.close()
    assert message is not None
    assert message.error() is not None, f"offset {message.offset()} was read as if nothing was missing"
    assert is_unreadable(message.error())


# Earlier results of the stages


@pytest.fixture(scope="module")
def pipeline(broker: str) -> PipelineSettings:
    """Return a pipeline whose topics exist, and have no records."""
    harness = Harness(broker, partitions=2)
    settings = PipelineSettings.model_validate(
        {
            "name": harness.prefix,
            "source": {"topic": harness.topic("in")},
            "kafka": dict(harness.kafka),
            "worker_input": {"max_workers": 2},
            "router": {"workers": 2},
            "topics": {"aggregator_partitions": 2},
        }
    )
    topic_plan.apply(settings)
    return settings


def traces_of(name: str, settings: PipelineSettings) -> PriorOutput:
    """Return the evidence that a stage looks for at its start."""
    wired = build_runtime(StageStart(topology.stage(name), settings, {}), BuiltStage(Copy()), 0)
    assert [source.kind for source in wired.inputs] == ["user" if name == "splitter" else "internal"]
    assert wired.prior_output is not None
    return wired.prior_output


@pytest.mark.parametrize("name", STAGES)
def test_evidence_of_each_stage_finds_its_results(pipeline: PipelineSettings, name: str) -> None:
    row = topology.stage(name)
    traces = traces_of(name, pipeline)
    sink = topology.topic(row.outputs[0])
    partition = 0 if sink.partitions == "one" else 1
    producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap_servers, "enable.idempotence": True})
    foreign = [] if sink.public else [[], internal_headers(WATERMARK, {0: 5})]
    for headers in foreign:
        producer.produce(pipeline.topic(sink.name), b"", partition=partition, headers=list(headers))
        assert producer.flush(WAIT_S) == 0
    assert traces.of_group() is None
    result = [] if sink.public else internal_headers(PARTIALS, {})
    producer.produce(pipeline.topic(sink.name), b"x", b"key", partition=partition, headers=list(result))
    assert producer.flush(WAIT_S) == 0
    assert traces.of_group() == f"topic {pipeline.topic(sink.name)}"


@pytest.mark.parametrize(("name", "aligned"), [("splitter", True), ("aggregator", True), ("router", False)])
def test_evidence_of_one_partition_ignores_results_of_others(
    pipeline: PipelineSettings,
    name: str,
    aligned: bool,  # noqa: FBT001 - a case
) -> None:
    fresh = pipeline.model_copy(update={"name": f"{pipeline.name}-{name}"})
    topic_plan.apply(fresh)
    row = topology.stage(name)
    traces = traces_of(name, fresh)
    producer = Producer({"bootstrap.servers": fresh.kafka.bootstrap_servers, "enable.idempotence": True})
    headers = list(internal_headers(PARTIALS, {1: 5}))
    producer.produce(fresh.topic(row.outputs[0]), b"", b"key", partition=1 if aligned else 0, headers=headers)
    assert producer.flush(WAIT_S) == 0
    found = f"topic {fresh.topic(row.outputs[0])}"
    assert [traces.of_partition(InputPartition("any", partition)) for partition in (0, 1)] == [None, found]


def test_evidence_of_a_source_partition_ignores_results_of_others_in_the_same_partition_of_tuples(
    pipeline: PipelineSettings,
) -> None:
    fresh = pipeline.model_copy(update={"name": f"{pipeline.name}-grown"})
    topic_plan.apply(fresh)
    traces = traces_of("splitter", fresh)
    source, tuples = fresh.topic("source"), fresh.topic("tuples")
    producer = Producer({"bootstrap.servers": fresh.kafka.bootstrap_servers, "enable.idempotence": True})
    for reported, found in ((3, None), (1, f"topic {tuples}")):
        states = dict.fromkeys((InputPartition(source, number) for number in (1, 3)), WatermarkState())
        states[InputPartition(source, reported)] = WatermarkState(5)
        headers = [schema_header(PARTIALS), *report_of_sources(states)]
        producer.produce(tuples, b"", b"key", partition=1, headers=headers)
        assert producer.flush(WAIT_S) == 0
        assert traces.of_partition(InputPartition(source, 1)) == found
        assert traces.of_partition(InputPartition(source, 3)) is None, "it was added later"
