"""Settings of the observer."""

from __future__ import annotations

from pydantic import Field

from skewless.settings_base import EventTimeSpan, SettingsModel

STATE_BYTES = 384 * 2**20
"""Default limit of the state: with it, half of the chart's memory limit (1 GiB) is left for everything else."""


class ObserverSettings(SettingsModel):
    """Settings of the measures of the load."""

    tick_s: EventTimeSpan = Field(60.0, le=86_400, description="Length of a tick in seconds of event time.")
    max_state_bytes: int = Field(
        STATE_BYTES,
        ge=2**20,
        le=2**50,
        description="Maximum bytes of keys and numbers in open ticks. With more, the largest ticks lose the keys with "
        "few tuples: `reduced` is then true in `distribution`, whose loads are exact. Each pair of key and "
        "worker takes about 65 bytes per tick. A limit of less than about 1 KB per open tick and aggregator partition, "
        "more with many workers, ends the process with code 3.",
    )
    top_keys: int = Field(10, ge=0, le=1000, description="Number of keys with the most tuples that each tick lists.")

    @property
    def tick_ms(self) -> int:
        """Length of a tick in milliseconds."""
        return round(self.tick_s * 1000)
