"""Settings of the workers."""

from __future__ import annotations

from pydantic import Field

from skewless.settings_base import EventTimeSpan, SettingsModel

DEFAULT_PANE_MS = 15_000
"""Length of a pane if it is not set and this length fits the windows."""


class CostSettings(SettingsModel):
    """A simulated cost per tuple, to study many loaded workers on a small machine.

    A worker partition sleeps for `process_duration_ms` after every `cycle` tuples. Partitions sleep concurrently. A row
    in which the splitter has aggregated tuples (`splitter.local`) costs as much as one tuple.
    """

    cycle: int = Field(0, ge=0, description="Tuples between two sleeps of a worker partition; 0: no cost.")
    process_duration_ms: float = Field(1.0, ge=0, le=60_000, description="Length of one sleep in milliseconds.")

    @property
    def is_free(self) -> bool:
        """Whether no cost is simulated."""
        return self.cycle == 0 or self.process_duration_ms == 0

    def seconds(self, tuples: int) -> float:
        """Return the mean cost of this number of tuples in seconds."""
        return 0.0 if self.is_free else tuples / self.cycle * self.process_duration_ms / 1000


class WorkerSettings(SettingsModel):
    """Settings of the aggregation in workers."""

    pane_s: EventTimeSpan | None = Field(
        None,
        ge=0.001,
        le=86_400,
        description="Length of a tumbling pane in seconds of event time. It must divide the size, step and offset of "
        "windows and `observer.tick_s`. Unset: 15, or if that does not fit, the largest length up to 15 that does.",
    )
    cost: CostSettings = CostSettings()
