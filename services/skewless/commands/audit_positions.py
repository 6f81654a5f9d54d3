"""How far a pipeline has come, so that an audit compares only what must be equal."""

from __future__ import annotations

from dataclasses import dataclass

from skewless.algorithms.watermark import END_OF_TIME
from skewless.changelog import read_marks, read_position
from skewless.commands.spark_input import committed
from skewless.settings import PipelineSettings
from skewless.transport.positions import Positions

BEHIND_SPLITTER = ("router", "worker", "aggregator")
INPUTS = {"router": "tuples", "worker": "worker-input", "aggregator": "partials"}


@dataclass(frozen=True, slots=True)
class Found:
    """What an audit reads and compares."""

    spans: dict[str, dict[int, tuple[int, int]]]
    """By topic of the topology and partition: first offset, and the one behind the last."""
    closed_to: dict[int, int]
    """By partition of `aggregates`: windows that end at or before this have all that was read; END_OF_TIME: all."""
    settled: bool
    """Whether everything that was read has arrived, and nothing moved meanwhile."""
    lost: dict[str, dict[int, int]]
    """By topic first offset of the partitions whose beginning is gone: by retention, or because somebody deleted it."""


def find(positions: Positions, settings: PipelineSettings) -> Found:
    """Look at all stages, in the order that makes the answer hold while they run.

    What is closed now has all that it will get of what the splitter is known to have read *afterwards*; and what it
    has read has arrived if no stage behind it has anything left, and it has not gone on when that was looked at.
    """
    closed_to = _closed(positions, settings)
    read = committed(positions, settings, "splitter")
    settled = not any(_has_work(positions, settings, stage) for stage in BEHIND_SPLITTER)
    written = {topic: _all(positions, settings.topic(topic)) for topic in ("aggregates", "dead-letters")}
    settled = settled and committed(positions, settings, "splitter") == read
    if settled and settings.aggregator.emit == "updates":
        closed_to = dict.fromkeys(written["aggregates"], END_OF_TIME)
    begin = positions.begin(settings.source.topic)
    source = {at: (first, max(first, read.get(at, first))) for at, first in begin.items()}
    spans = {"source": source, **written}
    lost = {topic: {at: first for at, (first, _) in each.items() if first} for topic, each in spans.items()}
    return Found(spans, closed_to, settled, lost)


def _closed(positions: Positions, settings: PipelineSettings) -> dict[int, int]:
    """Read from the aggregator's position what it has closed; after a bounded run that is everything."""
    closed = {}
    found = positions.committed(f"{settings.name}-aggregator", settings.topic("partials"))
    for partition, at in found.items():
        saved = read_position(at.metadata)
        if read_marks(saved, settings.worker_input.max_workers).watermark() == END_OF_TIME:
            closed[partition] = END_OF_TIME
        elif saved.closed_to is not None:
            closed[partition] = saved.closed_to
    return closed


def _has_work(positions: Positions, settings: PipelineSettings, stage: str) -> bool:
    topic = settings.topic(INPUTS[stage])
    return positions.holds_more(topic, positions.begin(topic) | committed(positions, settings, stage))


def _all(positions: Positions, topic: str) -> dict[int, tuple[int, int]]:
    begin, end = positions.begin(topic), positions.end(topic)
    return {partition: (first, end[partition]) for partition, first in begin.items()}
