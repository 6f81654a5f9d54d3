"""What a user may set about the groupings: each has the parameters of its own under its name."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skewless.model import Model


class GroupingOptions(Model):
    """The parameters of all groupings; the defaults are those of the papers."""

    clock: Literal["processing", "event"] = Field(
        "processing", description="What a grouping's own time follows: the router's clock, or the tuples' event time."
    )
