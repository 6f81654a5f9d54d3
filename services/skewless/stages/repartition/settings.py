"""Settings of the stages left and right: those of the join."""

from __future__ import annotations

from typing import Protocol

from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.parsing.join_side_settings import JoinSideSettings


class RepartitionSettings(Protocol):
    """The part of section `join` that these stages use."""

    @property
    def max_watermark_drift_s(self) -> float:
        """Time by which a partition may be ahead of the slowest one of its process."""
        ...

    @property
    def idle_timeout_s(self) -> float | None:
        """Time without records after which a partition is idle. None: never."""
        ...

    def side(self, side: Side) -> JoinSideSettings:
        """Return the settings of a side."""
        ...

    def rules(self) -> JoinRules:
        """Return the rules of the join, in ms."""
        ...
