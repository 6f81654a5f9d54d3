"""Settings of the router and of its output topic."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skewless.algorithms.grouping.options import GroupingOptions
from skewless.settings_base import SettingsModel


class RouterSettings(GroupingOptions):
    """Settings of the distribution of tuples over the worker partitions."""

    grouping: str = Field(
        "even",
        description="Name of the grouping, which chooses the worker of each tuple. `local` is short for the grouping "
        "`key` with `splitter.local.mode: buffer`.",
    )
    workers: int = Field(
        8,
        ge=1,
        description="Number of worker partitions that receive tuples (W), at most worker_input.max_workers. "
        "The only setting that takes effect in a running pipeline when the file changes.",
    )
    snapshot_interval_s: float = Field(
        15.0,
        ge=0,
        le=86_400,
        description="Interval at which a router saves its loads, which it restores after a restart, if they fit into a "
        "record of 4 MiB. Results do not depend on the loads.",
    )

    @property
    def snapshot_ms(self) -> int:
        """Interval at which loads are saved, in milliseconds."""
        return round(self.snapshot_interval_s * 1000)


DEFAULT_MAX_WORKERS = 16
"""Partitions of a new topic worker-input, if the setting is unset."""


class WorkerInputSettings(SettingsModel):
    """Settings of the topic between router and worker."""

    max_workers: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Partitions of worker-input, fixed when the topic is created: the maximum of router.workers. "
        f"Unset: as many as the topic has, {DEFAULT_MAX_WORKERS} if it does not exist yet.",
    )
    encoding: Literal["batch", "record"] = Field(
        "batch",
        description="batch: records with columns of many tuples; record: a JSON record per tuple, for other consumers.",
    )

    @property
    def partitions(self) -> int:
        """Number of partitions of worker-input. If `max_workers` is unset, that of a new topic."""
        return self.max_workers or DEFAULT_MAX_WORKERS
