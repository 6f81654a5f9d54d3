"""What a user may set about the aggregator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from skewless.algorithms import aggregates
from skewless.errors import unknown
from skewless.model import Model, Span

STATE_BYTES = 384 * 2**20
"""Leaves half of the chart's memory limit (1 GiB) to everything else."""


class AggregatorSettings(Model):
    """How panes become windows, and when results are written."""

    window_s: Span = Field(60.0, le=31_536_000, description="Length of a window in seconds: panes x a whole number.")
    aggregates: tuple[str, ...] = Field(
        ("count", "sum"), min_length=1, description="What is computed per key and window."
    )
    emit: Literal["updates", "final"] = Field(
        "updates", description="updates: each change at each commit; final: one record when the window closes."
    )
    keep_closed_s: float = Field(
        3_600.0,
        ge=0,
        le=315_360_000_000,
        description="How long after its end a closed window can still be re-opened, in event time.",
    )
    max_state_bytes: int = Field(
        STATE_BYTES,
        ge=2**20,
        le=2**50,
        description="Bytes of keys and numbers in open windows that a process may hold: with more it ends with exit "
        "code 3. A key of 15 bytes takes about 95 in each window. The process takes up to twice the limit, and 200 MB.",
    )

    @property
    def window_ms(self) -> int:
        """Length of a window in milliseconds."""
        return round(self.window_s * 1000)

    @property
    def keep_closed_ms(self) -> int:
        """How long closed windows are kept, in milliseconds."""
        return round(self.keep_closed_s * 1000)

    @field_validator("aggregates")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        others = [name for name in names if name not in aggregates.AGGREGATES]
        if others:
            raise ValueError(unknown("aggregate", ", ".join(others), aggregates.AGGREGATES))
        if len(set(names)) != len(names):
            raise ValueError("an aggregate is named twice")
        return names
