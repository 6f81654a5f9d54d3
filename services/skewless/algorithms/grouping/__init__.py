"""Registry of the groupings. To add one, define its class in a new file and list it here: the law tests cover it."""

from __future__ import annotations

from skewless.algorithms.grouping.base import Grouping, KeyBatch
from skewless.algorithms.grouping.choices import DChoicesGrouping, WChoicesGrouping
from skewless.algorithms.grouping.consistent import ConsistentGrouping
from skewless.algorithms.grouping.dynamic import DynamicKeyGrouping
from skewless.algorithms.grouping.even import EvenGrouping
from skewless.algorithms.grouping.key import KeyGrouping
from skewless.algorithms.grouping.options import GroupingOptions, options_of
from skewless.algorithms.grouping.partial import PartialKeyGrouping
from skewless.algorithms.grouping.shuffle import ShuffleGrouping
from skewless.errors import ConfigurationError

__all__ = ["GROUPINGS", "GROUPING_NAMES", "LOCAL", "Grouping", "GroupingOptions", "KeyBatch", "create", "options_of"]

GROUPINGS: dict[str, type[Grouping]] = {
    grouping.name: grouping
    for grouping in (
        ShuffleGrouping,
        KeyGrouping,
        PartialKeyGrouping,
        DynamicKeyGrouping,
        DChoicesGrouping,
        WChoicesGrouping,
        ConsistentGrouping,
        EvenGrouping,
    )
}

LOCAL = "local"
"""Name that is short for the grouping `key` of rows in which the splitter has aggregated tuples."""
GROUPING_NAMES = (*GROUPINGS, LOCAL)
"""Values of `router.grouping`."""

DEFAULTS = GroupingOptions.model_validate({})


def create(name: str, workers: int, options: GroupingOptions = DEFAULTS) -> Grouping:
    """Return a new grouping over workers 0 to `workers` - 1. Raises ConfigurationError if one is invalid."""
    if not isinstance(name, str) or name not in GROUPINGS:
        raise ConfigurationError(f"grouping {name!r} is unknown: choose one of {', '.join(GROUPINGS)}")
    return GROUPINGS[name](workers, options)
