"""Conditions of `skewless inspect --fail-if`: a measure, a comparison and a number."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from skewless.errors import ConfigurationError, unknown

MEASURES: Mapping[str, str] = {
    "max_share": "share of the hottest key",
    "max_over_avg": "records of the most loaded partition / average",
    "key_max_over_avg": "tuples of the most loaded of 8 workers / average, with the grouping `key`",
    "zipf_exponent": "exponent of Zipf's law",
    "cardinality": "number of distinct keys",
    "invalid_share": "share of records without a valid key or time",
    "null_value_share": "share of records without a value",
    "null_key_share": "share of records without a key",
    "max_disorder_s": "seconds by which a record is older than the newest one before it in its partition",
    "p99_bytes": "99th percentile of the size of a value",
    "max_bytes": "size of the largest value",
    "records_per_s": "records per second, by the Kafka timestamps",
}
"""Name -> meaning."""
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_CONDITION = re.compile(r"\s*([A-Za-z_]\w*)\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*")


def condition(text: str) -> Callable[[Mapping[str, float | None]], str | None]:
    """Return the check of a condition such as `max_share > 0.05`. Raises ConfigurationError if it is not one.

    The check returns the reason if the condition is met, or if its measure is unknown for this topic; else None.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"--fail-if: {text!r} must be a measure, one of > >= < <= == !=, and a number")
    measure, comparison, bound = match.groups()
    if measure not in MEASURES:
        raise ConfigurationError(f"--fail-if: {unknown('measure', measure, MEASURES)}")

    def failure(measures: Mapping[str, float | None]) -> str | None:
        if (value := measures[measure]) is None:
            return f"{text.strip()}: the records do not determine {measure}"
        return f"{text.strip()}: it is {value:.6g}" if _OPERATORS[comparison](value, float(bound)) else None

    return failure


def measures_of(report: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the measures of a report by name; None for those that the records do not determine."""
    key = report["keys"][0] if report["keys"] else None
    time = report["times"][-1] if report["times"] else None
    loads = [load for load in report["loads"] if load["grouping"] == "key"]
    return {
        "max_share": key and key["max_share"],
        "max_over_avg": report["partitions"]["max_over_avg"],
        "key_max_over_avg": loads[0]["max_over_avg"] if loads else None,
        "zipf_exponent": key["zipf"]["exponent"] if key and key["zipf"] else None,
        "cardinality": key and key["cardinality"],
        "invalid_share": key and key["invalid_share"],
        "null_value_share": report["null_value_share"],
        "null_key_share": report["null_key_share"],
        "max_disorder_s": time and time["max_disorder_ms"] / 1000,
        "p99_bytes": report["value_sizes"]["p99_bytes"],
        "max_bytes": report["value_sizes"]["max_bytes"],
        "records_per_s": report["records_per_s"],
    }
