"""Settings of the aggregator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from skewless.aggregate_registry import find_aggregates
from skewless.algorithms.aggregates import DEFAULT, columns_of
from skewless.errors import ConfigurationError
from skewless.settings_base import EventTimeSpan, SettingsModel

STATE_BYTES = 384 * 2**20
"""Default limit of the state: with it, half of the chart's memory limit (1 GiB) is left for everything else."""


class AggregatorSettings(SettingsModel):
    """Settings of windows and of their results."""

    window_s: EventTimeSpan = Field(
        60.0, le=31_536_000, description="Length of a window in seconds of event time, a multiple of worker.pane_s."
    )
    aggregates: tuple[str, ...] = Field(DEFAULT, min_length=1, description="Aggregates to compute per key and window.")
    emit: Literal["updates", "final"] = Field(
        "updates",
        description="updates: emit all changed results at each commit; final: emit one result when the window closes.",
    )
    closed_window_retention_s: float = Field(
        3_600.0,
        ge=0,
        le=315_360_000_000,
        description="Event time after its end until which a closed window can be reopened, in seconds.",
    )
    max_state_bytes: int = Field(
        STATE_BYTES,
        ge=2**20,
        le=2**50,
        description="Maximum bytes of keys and partials in the open windows of a process. With more, the process exits "
        "with code 3. A key of 15 bytes takes about 95 bytes per window. The process uses up to twice the limit plus "
        "200 MB.",
    )

    @property
    def window_ms(self) -> int:
        """Length of a window in milliseconds."""
        return round(self.window_s * 1000)

    @property
    def closed_window_retention_ms(self) -> int:
        """Event time for which closed windows are kept after their end, in milliseconds."""
        return round(self.closed_window_retention_s * 1000)

    @field_validator("aggregates")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        try:
            columns_of(find_aggregates(names))
        except ConfigurationError as error:
            raise ValueError("; ".join(error.problems)) from None
        if len(set(names)) != len(names):
            raise ValueError("an aggregate is listed twice")
        return names
