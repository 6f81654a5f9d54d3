"""What a user may set about the router."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skewless.algorithms.grouping.options import GroupingOptions
from skewless.model import Model


class RouterSettings(GroupingOptions):
    """How tuples are spread over the worker partitions."""

    grouping: str = Field("even", description="Which grouping chooses the worker of a tuple.")
    workers: int = Field(
        8,
        ge=1,
        description="W: how many worker partitions get tuples; at most worker_input.max_workers. "
        "The one setting that takes effect in the running pipeline when the file changes.",
    )
    snapshot_interval_s: float = Field(
        15.0,
        ge=0,
        le=86_400,
        description="How often a router saves its loads, which it goes on with after a restart. A hint: results do not "
        "depend on it.",
    )

    @property
    def snapshot_ms(self) -> int:
        """How often loads are saved, in milliseconds."""
        return round(self.snapshot_interval_s * 1000)


class WorkerInputSettings(Model):
    """The topic between router and worker."""

    max_workers: int = Field(
        64, ge=1, le=1024, description="Partitions of worker-input, fixed when the topic is made: the largest W."
    )
    encoding: Literal["batch", "record"] = Field(
        "batch",
        description="batch: columns of many tuples in a record; record: a JSON record per tuple, for own consumers.",
    )
