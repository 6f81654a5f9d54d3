"""The n smallest values in a group."""

from __future__ import annotations

from typing import ClassVar

from skewless.algorithms.aggregates.largest import Largest


class Smallest(Largest):
    """The `n` smallest values as a list, the smallest first. A value that occurs several times is listed as often."""

    name: ClassVar[str] = "smallest"
    smallest: ClassVar[bool] = True
