"""Input and result of the stages' builders: `PipelineContext` and `BuiltStage`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from skewless.algorithms.aggregates import ResultCondition, ResultField, wire_columns_of
from skewless.algorithms.value_type import ValueType
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.engine.executor import Restore, State, StepExecutor
from skewless.engine.output import Output
from skewless.engine.step import InputStep
from skewless.kafka.consumer.topic_reader import ReadProgress
from skewless.kafka.settings import KafkaSettings
from skewless.parsing.validation import EventTimeRules
from skewless.stages.agent import Process, process_at_once
from skewless.wire.rows import RowFormat

CONCURRENT_RESTORES = 8
"""Number of partitions that are restored at the same time."""


@dataclass(frozen=True, kw_only=True)
class PipelineContext:
    """Settings of the pipeline that a stage needs in addition to its own section."""

    name: str
    """Name of the pipeline."""
    full_name: str
    """What the names of its topics and groups begin with: it identifies the pipeline."""
    topic: Callable[[str], str]
    """Returns the full name of a topic of the topology."""
    group: Callable[[str], str]
    """Returns the consumer group of a stage."""
    kafka: KafkaSettings
    count_partitions: Callable[[str], int]
    """Requests the number of partitions of a topic of the topology from the broker."""
    source_topic: str | None
    """The only source topic (`source.topic`); None if there may be several."""
    skip_to: Callable[[str], Mapping[int, int]]
    """Returns the first offsets to read by partition of a source topic, as configured by the user."""
    event_time: EventTimeRules
    idle_timeout_ms: int | None
    """Time without records after which a source partition is idle. None: never."""
    max_drift_ms: int | None
    """Time by which a source partition may be ahead of the slowest one of its process. None: any."""
    values: tuple[ValueType, ...]
    """Values of the tuples."""
    results: tuple[ResultField, ...]
    """Results per key and window."""
    conditions: tuple[ResultCondition, ...]
    """Conditions that the results of a key must match to be emitted."""
    key_parts: tuple[str, ...]
    """Names of the parts of a composite key; empty for another key."""
    windows: WindowAssigner
    pane_ms: int
    """Length of a pane."""
    grid_ms: int
    """Windows and ticks begin at multiples of it. Each pane divides it."""
    grouping: str
    workers: int
    max_workers: int
    encoding: Literal["batch", "record"]
    """Encoding of worker-input."""
    aggregator_partitions: int
    drain: bool
    """Whether the stage ends at the end of its input."""

    @property
    def row_format(self) -> RowFormat:
        """Format of rows in which the splitter has aggregated tuples."""
        return self.row_format_of(self.pane_ms)

    def row_format_of(self, pane_ms: int) -> RowFormat:
        """Return this format with panes of another length, which divides `pane_ms`."""
        return RowFormat(wire_columns_of(self.results), pane_ms=pane_ms, grid_ms=self.grid_ms)


@dataclass(frozen=True)
class BuiltStage:
    """A stage that is built but not started."""

    step: InputStep[Any]
    processor: Callable[[StepExecutor], Process] = process_at_once
    """Makes the function that processes the batches of the agent."""
    restore: Restore = lambda _checkpoints: {}
    first_checkpoint: Callable[[int], str] | None = None
    """Returns the checkpoint of a partition that starts at an offset. None: the stage reads from the beginning."""
    end_of_partition: bool = False
    """Whether the consumer reports to the step that it has reached the end of a partition."""
    output: Callable[[str], Output] | None = None
    """Creates the output from the name of the process; None for topics of Kafka."""
    transport: Mapping[str, object] = field(default_factory=dict)
    """Settings of section `transport` that have other values in this stage."""
    restore_progress: ReadProgress = field(default_factory=ReadProgress)
    """Follows the reads of changelogs by `restore`, for the metrics."""
    pause_after_s: float = 1.0
    """Time for which a full partition may block the polls of all partitions before it is paused."""


def restore_each(restore: Callable[[Any, str | None], State]) -> Restore:
    """Return a function that restores several partitions at a time. `restore` takes a partition and its checkpoint."""

    # Threads are sufficient, because most of the time is spent waiting for the broker.
    def restore_all(checkpoints: Mapping[Any, str | None]) -> dict[Any, State]:
        with ThreadPoolExecutor(CONCURRENT_RESTORES) as pool:
            states = pool.map(restore, checkpoints.keys(), checkpoints.values())
            return dict(zip(checkpoints, states, strict=True))

    return restore_all
