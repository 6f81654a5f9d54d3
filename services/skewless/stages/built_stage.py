"""Builds stages: `build`, and the result of the stages' builders, `BuiltStage`.

Does not import Faust, because the tasks of Spark and runs in memory need the step of a stage only.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from skewless.config.stage_start import StageStart
from skewless.engine.executor import Restore, State, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.engine.output import Output
from skewless.engine.start_checks import PriorOutput
from skewless.engine.step import InputStep
from skewless.kafka.consumer.topic_reader import ReadProgress

CONCURRENT_RESTORES = 8
"""Number of partitions that are restored at the same time."""

Process = Callable[[MessageBatch], Awaitable[None]]
"""Processes a batch. The next batch is taken from the stream when it has returned."""


def process_at_once(executor: StepExecutor) -> Process:
    """Return the way in which most stages process a batch."""
    return executor.process


@dataclass(frozen=True)
class Dependency:
    """A server besides Kafka that a stage needs before it starts."""

    name: str
    wait: Callable[[], None]
    """Waits until it answers. Raises an error after a time limit, or if it refuses this client."""


@dataclass(frozen=True)
class BuiltStage:
    """A stage that is built but not started."""

    step: InputStep[Any]
    processor: Callable[[StepExecutor], Process] = process_at_once
    """Makes the function that processes the batches of the agent."""
    dependency: Dependency | None = None
    """What must answer before the stage starts; None for Kafka alone."""
    restore: Restore = lambda _checkpoints: {}
    first_checkpoint: Callable[[int], str] | None = None
    """Returns the checkpoint of a partition that starts at an offset. None: the stage reads from the beginning."""
    end_of_partition: bool = False
    """Whether the consumer reports to the step that it has reached the end of a partition."""
    co_partitioned: bool = False
    """Whether a process must get the same partitions of all its topics."""
    output: Callable[[str], Output] | None = None
    """Creates the output from the name of the process; None for topics of Kafka."""
    prior_output: PriorOutput | None = None
    """Looks for results of an earlier start in this output; None to look in the first output topic, if there is one."""
    renew_offsets_s: float | None = None
    """Time after which this output gets unchanged offsets again, because it does not keep them forever. None: never."""
    transport: Mapping[str, object] = field(default_factory=dict)
    """Settings of section `transport` that have other values in this stage."""
    restore_progress: ReadProgress = field(default_factory=ReadProgress)
    """Follows the reads of changelogs by `restore`, for the metrics."""
    tables: Mapping[str, Callable[[MessageBatch], object]] = field(default_factory=dict)
    """Applies records to each table that the step reads besides its input, by topic. For runs in memory."""
    pause_after_s: float = 1.0
    """Time for which a full partition may block the polls of all partitions before it is paused."""


def build(start: StageStart) -> BuiltStage:
    """Build the stage."""
    built: BuiltStage = pkgutil.resolve_name(start.stage.builder)(start)
    return built


def restore_each(restore: Callable[[Any, str | None], State]) -> Restore:
    """Return a function that restores several partitions at a time. `restore` takes a partition and its checkpoint."""

    # Threads are sufficient, because most of the time is spent waiting for the broker.
    def restore_all(checkpoints: Mapping[Any, str | None]) -> dict[Any, State]:
        with ThreadPoolExecutor(CONCURRENT_RESTORES) as pool:
            states = pool.map(restore, checkpoints.keys(), checkpoints.values())
            return dict(zip(checkpoints, states, strict=True))

    return restore_all
