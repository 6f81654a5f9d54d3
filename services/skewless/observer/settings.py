"""What a user may set about the distribution observer."""

from __future__ import annotations

from pydantic import Field

from skewless.model import Model, Span

STATE_BYTES = 384 * 2**20
"""Leaves half of the chart's memory limit (1 GiB) to everything else."""


class ObserverSettings(Model):
    """How the load of the workers is summed up."""

    tick_s: Span = Field(
        60.0, le=86_400, description="Length of a tick in seconds of event time: panes x a whole number."
    )
    max_state_bytes: int = Field(
        STATE_BYTES,
        ge=2**20,
        le=2**50,
        description="Bytes of keys and numbers in open ticks that the process may hold: with more it ends with exit "
        "code 3. Each worker of a key takes about 95 bytes in each tick.",
    )
    hottest: int = Field(10, ge=0, le=1000, description="How many of the hottest keys a tick lists.")

    @property
    def tick_ms(self) -> int:
        """Length of a tick in milliseconds."""
        return round(self.tick_s * 1000)
