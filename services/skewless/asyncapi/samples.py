"""Records as examples: what the real steps make of a few source records, in memory and the same each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from skewless import topology
from skewless.asyncapi.written import WrittenBatch
from skewless.records import Output
from skewless.settings import PipelineSettings
from skewless.step import Step

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
NOW_MS = START_MS + 120_000
FACTS = (
    b'{"key": "en", "value": 42, "time": %d}' % (START_MS + 1_000),
    b'{"key": "de", "value": 7, "time": %d}' % (START_MS + 2_000),
    b'{"key": "en", "value": 3, "time": %d}' % (START_MS + 65_000),
    b'{"key": "fr", "value": 5, "time": %d}' % (START_MS + 3_000),
    b'{"key": "en", "value": 1',
)
"""Two windows; the last but one comes late, the last cannot be read."""

Samples = Mapping[str, Sequence[Output]]
"""Records by topic."""


def samples(settings: PipelineSettings) -> Samples:
    """Run a small pipeline with the name and the aggregates of `settings`, once per encoding of worker-input."""
    columns, plain = (_pipeline(_small(settings, encoding)) for encoding in ("batch", "record"))
    return columns | {"worker-input": [*columns["worker-input"], *plain["worker-input"]]}


def _small(settings: PipelineSettings, encoding: str) -> PipelineSettings:
    fields = {name: {"field": name} for name in ("key", "value", "time")}
    return PipelineSettings.model_validate(
        {
            "name": settings.name,
            "source": {"topic": settings.source.topic},
            "splitter": {"format": "json", **fields},
            "router": {"workers": 2},
            "worker_input": {"max_workers": 2, "encoding": encoding},
            "topics": {"aggregator_partitions": 1},
            "aggregator": {"aggregates": settings.aggregator.aggregates},
        }
    )


def _pipeline(settings: PipelineSettings) -> dict[str, list[Output]]:
    first = [Output("source", value, key=b"%d" % at, timestamp=START_MS) for at, value in enumerate(FACTS)]
    topics = {"source": first} | {row.name: [] for row in topology.TOPICS}
    steps = _steps(settings)
    for stage in topology.STAGES:
        for record in _run(steps[stage.name], topics[stage.source]):
            topics[record.topic].append(record)
    return topics


def _steps(settings: PipelineSettings) -> dict[str, Step]:
    from skewless.aggregator import agent as aggregator
    from skewless.observer import agent as observer
    from skewless.router import agent as router
    from skewless.splitter import agent as splitter
    from skewless.worker import agent as worker

    return {
        "splitter": splitter.step(settings, drain=True),
        "router": router.step(settings),
        "worker": worker.step(settings, 1),
        "aggregator": aggregator.step(settings),
        "observer": observer.step(settings),
    }


def _run(step: Step, inputs: Sequence[Output]) -> list[Output]:
    by_partition: defaultdict[int, list[Output]] = defaultdict(list)
    for record in inputs:
        by_partition[record.partition or 0].append(record)
    for partition in by_partition:
        step.assign(partition, None, ())
    written: list[Output] = []
    for partition, mine in by_partition.items():
        written += step.process(WrittenBatch(partition, mine), NOW_MS)
        step.end_of_partition(partition, NOW_MS)
    return [*written, *step.flush(NOW_MS)]
