"""StageRuntime: what the engine needs to run a stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from skewless.engine.executor import Restore, StepExecutor
from skewless.engine.output import Output
from skewless.engine.start_checks import Input, PriorOutput
from skewless.kafka.consumer.topic_reader import ReadProgress
from skewless.kafka.settings import KafkaSettings, TransportSettings

FindInputs = Callable[[Mapping[str, int]], Sequence[Input]]
"""Returns the inputs of a stage among the topics of the cluster, which are given with their numbers of partitions."""


@dataclass(frozen=True, kw_only=True)
class StageRuntime:
    """The components and settings with which the engine runs a stage."""

    kafka: KafkaSettings
    transport: TransportSettings
    executor: StepExecutor
    output: Output
    inputs: tuple[Input, ...]
    """The topics that are consumed, at least one. They have the same group."""
    find_inputs: FindInputs | None = None
    """Returns the inputs among the topics of the cluster, for a stage whose topics and partitions may become more."""
    group_instance_id: str
    """The same after a restart, so that a restart causes no rebalance (KIP-345)."""
    restore: Restore = lambda _checkpoints: {}
    """Restores the state of assigned partitions from their changelogs. Runs in a thread."""
    restore_progress: ReadProgress = field(default_factory=ReadProgress)
    """Follows the reads of changelogs by `restore`, for the metrics."""
    prior_output: PriorOutput | None = None
    """Looks for results of the group in partitions that have no checkpoint; None disables the check."""
    changelog: str | None = None
    """Topic from which the state of results is restored. The stage does not continue with another one of its name."""
    end_of_partition: bool = False
    """Whether the executor is notified when a partition has been read to its end."""
    co_partitioned: bool = False
    """Whether this process must get the same partitions of all inputs."""
    pause_after_s: float = 1.0
    """Time for which a full partition may block the others before it is paused."""

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.inputs[0].group

    @property
    def topics(self) -> tuple[str, ...]:
        """Full names of the topics that are consumed."""
        return tuple(source.topic for source in self.inputs)
