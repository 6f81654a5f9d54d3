"""Hands a pipeline over between the stages and a query of Spark: both continue from the same checkpoints.

The state schema in the metadata of each committed offset names which of them runs the pipeline. A handover changes only
this name. Before, it checks that the other one is stopped and has left nothing between the source and the windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
from msgspec import UNSET

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart, resolve
from skewless.config.state_layout import state_schema_of
from skewless.engine.start_checks import checkpoints_of, has_rows
from skewless.errors import CheckFailedError, ConfigurationError, FencedError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import has_records_after
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.operations.reset import wait_until_stopped
from skewless.spark.stream_start import transactional_id
from skewless.stages.splitter.checkpoint import decode_checkpoint, encode_checkpoint
from skewless.wire.changelog import decode_checkpoint as decode_window_checkpoint
from skewless.wire.offset_metadata import decode_offset_metadata, encode_offset_metadata, engine_of
from skewless.wire.state_schema import Engine, StateSchema
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

WINDOWED = (topology.RESULTS_STAGE, topology.writer("distribution").name)
"""Stages whose checkpoints are those of windows."""


@dataclass(frozen=True, slots=True)
class _Committed:
    """What a stage whose checkpoints name the engine has committed, by topic and partition."""

    start: StageStart
    offsets: Mapping[TopicPartition, CommittedOffset]


def hand_over(settings: PipelineSettings, to: Engine, report: Callable[[str], None]) -> bool:
    """Let the stages or a query continue a pipeline that the other one has run. Returns False if it has already.

    Raises FencedError if stages or a query run, and ConfigurationError if tuples are between the source and the
    windows, or if the settings of the state have changed. If it is interrupted, neither of the two can start, and a
    repetition completes it. `report` is called with a line if it waits for the sessions of stopped processes.
    """
    offsets = OffsetReader(settings.kafka)
    splitter = resolve(topology.stage(topology.SOURCE_STAGE), settings, drain=False)
    settings = splitter.settings
    windowed = [resolve(topology.stage(name), settings, drain=False) for name in WINDOWED]
    # The splitter says "services" only while the others do. Otherwise tuples would wait before a stage that cannot run.
    order = [splitter, *windowed] if to == "spark" else [*windowed, splitter]
    if not _is_needed([_committed(offsets, start) for start in order], settings, to):
        return False
    try:
        wait_until_stopped(settings, report, topology.QUERIED_STAGES)
    except CheckFailedError as error:
        raise FencedError(str(error)) from None
    if to == "services":
        _end_transactions(settings)
    found = [_committed(offsets, start) for start in order]
    if problems := list(_problems(settings, offsets, found)):
        raise ConfigurationError(*problems)
    for committed in found:
        _change(offsets, committed, to)
    return True


def _committed(offsets: OffsetReader, start: StageStart) -> _Committed:
    return _Committed(
        start,
        {
            TopicPartition(source.topic, partition): committed
            for source in start.inputs()
            for partition, committed in offsets.committed(source.group, source.topic).items()
        },
    )


def _is_needed(found: list[_Committed], settings: PipelineSettings, to: Engine) -> bool:
    engines = {engine_of(committed.metadata) for of_stage in found for committed in of_stage.offsets.values()} - {None}
    if not engines:
        raise ConfigurationError(
            f"pipeline {settings.name} has not run yet: start `skewless stream` or `skewless up` without a handover"
        )
    return engines != {to}


def _end_transactions(settings: PipelineSettings) -> None:
    """Abort what tasks of a killed query have not committed. The broker rejects what they write from now on."""
    results = settings.group(topology.RESULTS_STAGE)
    groups = map(settings.group, (topology.SOURCE_STAGE, *WINDOWED))
    partitions = range(settings.topics.aggregator_partitions)
    for name in [*map(transactional_id, groups), *(transactional_id(results, each) for each in partitions)]:
        producer = TransactionalProducer(settings.kafka, settings.transport, settings.topic, name)
        try:
            producer.open(settings.kafka.connect_timeout_s)
        finally:
            producer.close()


def _problems(settings: PipelineSettings, offsets: OffsetReader, found: list[_Committed]) -> Iterator[str]:
    """Yield a line for each reason why the checkpoints of the source and of the windows do not fit together."""
    by_stage = {
        committed.start.stage.name: [offset.checkpoint for offset in committed.offsets.values()] for committed in found
    }
    sources = [decode_checkpoint(checkpoint) for checkpoint in by_stage[topology.SOURCE_STAGE]]
    merged = {decode_window_checkpoint(checkpoint).batch or "" for name in WINDOWED for checkpoint in by_stage[name]}
    if incomplete := merged - {checkpoint.batch or "" for checkpoint in sources} - {""}:
        yield (
            f"micro-batch {', '.join(sorted(incomplete))} is not complete: run `skewless stream --available-now` with "
            "the checkpoint with which it began first"
        )
    if any(checkpoint.held is not None for checkpoint in sources):
        yield (
            "splitters hold tuples in local windows: set splitter.local.mode: none and run `skewless up` until they "
            "have sent them first"
        )
    for stage in topology.needed_stages(settings):
        if stage.name == topology.SOURCE_STAGE or not stage.outputs:
            continue
        topic = settings.topic(stage.input)
        committed = {p: each.offset for p, each in offsets.committed(settings.group(stage.name), topic).items()}
        # Watermarks alone are no lag: a router or worker that was started by mistake reports them, and may do so again.
        if has_records_after(offsets, topic, offsets.begin(topic) | committed, has_rows):
            yield (
                f"{stage.name} has not processed all records of topic {topic}: run `skewless up` without the splitter "
                "(replicas.splitter: 0) until `skewless status` shows no lag of this stage first"
            )


def _change(offsets: OffsetReader, committed: _Committed, to: Engine) -> None:
    """Commit the offsets of a stage again, with the name of what runs the pipeline."""
    start = committed.start
    by_engine: dict[Engine, dict[TopicPartition, CommittedOffset]] = {"services": {}, "spark": {}}
    for partition, offset in committed.offsets.items():
        if (engine := engine_of(offset.metadata)) is not None:
            by_engine[engine][partition] = offset
    for engine, of_engine in by_engine.items():
        for source in start.inputs():  # refuses settings that differ in anything else
            of_topic = {number: each for (topic, number), each in of_engine.items() if topic == source.topic}
            checkpoints_of(replace(source, state_schema=_schema(start.settings, engine)), of_topic)
    changed = {
        partition: (offset.offset, _metadata(start, offset, to))
        for partition, offset in committed.offsets.items()
        if engine_of(offset.metadata) not in {None, to}
    }
    if changed and not offsets.commit_first(start.group, changed):
        raise FencedError(f"group {start.group} has members: stop all processes of pipeline {start.settings.name}")


def _schema(settings: PipelineSettings, engine: Engine) -> StateSchema:
    return msgspec.structs.replace(state_schema_of(settings), engine=engine)


def _metadata(start: StageStart, committed: CommittedOffset, to: Engine) -> str:
    """Return the metadata of an offset without the micro-batch, which only the query that has run it knows."""
    metadata = decode_offset_metadata(committed.metadata)
    if start.stage.name == topology.SOURCE_STAGE:
        checkpoint = encode_checkpoint(decode_checkpoint(metadata.checkpoint)._replace(batch=None))
    else:
        windows = msgspec.structs.replace(decode_window_checkpoint(metadata.checkpoint), batch=UNSET)
        checkpoint = msgspec.json.encode(windows).decode()
    return encode_offset_metadata(checkpoint, _schema(start.settings, to), metadata.topic_id, metadata.changelog_id)
