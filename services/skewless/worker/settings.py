"""What a user may set about the workers."""

from __future__ import annotations

from pydantic import Field

from skewless.model import Model, Span


class CostSettings(Model):
    """A simulated cost per tuple, so that many loaded workers can be studied on a small machine.

    After every `cycle` tuples of a worker partition that partition sleeps `process_duration_ms`; partitions sleep
    at the same time. `cycle: 0` means no cost.
    """

    cycle: int = Field(0, ge=0, description="Tuples between two sleeps of a worker partition; 0 for no cost.")
    process_duration_ms: float = Field(1.0, ge=0, le=60_000, description="Length of one sleep in milliseconds.")


class WorkerSettings(Model):
    """How workers aggregate."""

    pane_s: Span = Field(15.0, le=86_400, description="Length of a tumbling pane in seconds of event time.")
    cost: CostSettings = CostSettings()

    @property
    def pane_ms(self) -> int:
        """Length of a pane in milliseconds."""
        return round(self.pane_s * 1000)
