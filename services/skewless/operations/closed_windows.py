"""Finds up to which time a pipeline has closed windows, from the checkpoints of the aggregator."""

from __future__ import annotations

from skewless import topology
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import topic_spec
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.wire.changelog import decode_checkpoint, read_watermarks


def closed_windows(
    offset_reader: OffsetReader,
    settings: PipelineSettings,
    stage: str = topology.RESULTS_STAGE,
    *,
    end: int | None = MAX_WATERMARK,
) -> dict[int, int]:
    """Return up to which time a stage has closed windows; `end` after a bounded run. None: without regard to its end.

    Once the source has new records after a bounded run, its end says nothing.
    """
    closed_until = {}
    committed_offsets = offset_reader.committed(settings.group(stage), settings.topic(topology.stage(stage).input))
    for partition, offset in committed_offsets.items():
        checkpoint = decode_checkpoint(offset.checkpoint)
        if end is not None and read_watermarks(checkpoint).watermark() == MAX_WATERMARK:
            closed_until[partition] = end
        elif checkpoint.closed_until is not None:
            closed_until[partition] = checkpoint.closed_until
    return closed_until


def closed_everywhere(settings: PipelineSettings, stage: str) -> int | None:
    """Return up to which time all partitions of a stage have closed their windows; None if that is unknown.

    With `emit: final`, results have closed in some partition. Without any checkpoint, no more follow: those of a
    pipeline that was stopped have expired. Raises BrokerError if the user may not describe the input of the stage.
    """
    closed = closed_windows(OffsetReader(settings.kafka), settings, stage)
    input_spec = topic_spec(topology.topic(topology.stage(stage).input), settings, 1)
    if not closed:
        Admin(settings.kafka).check_visible([input_spec.name])
        if settings.aggregator.emit == "final":
            return MAX_WATERMARK
    return min(closed.values()) if len(closed) == input_spec.partitions else None
