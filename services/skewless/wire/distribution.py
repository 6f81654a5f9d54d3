"""Measures of the load of the workers per tick: JSON in `distribution`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skewless.wire.headers import public_headers
from skewless.wire.tuples import Int64

DISTRIBUTION = "skewless.distribution.v1"
DISTRIBUTION_HEADERS = public_headers(DISTRIBUTION)

Tuples = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0)]

_TUPLES_BY_WORKER = "Tuples of each worker, from worker 0 to `workers` - 1."
_ROWS = (
    "Rows that the workers processed, by which the load is measured: tuples, or rows in which the splitter has "
    "aggregated several tuples (`splitter.local`). Absent in records of earlier versions: each row was a tuple."
)
_ROWS_BY_WORKER = "Rows of each worker, from worker 0 to `workers` - 1."
_STD_DEV = "Population standard deviation of the workers' shares of the rows, in percent."
_IMBALANCE = "(Rows of the most loaded worker - average rows per worker) / rows."
_MAX_OVER_AVG = "Rows of the most loaded worker divided by the average; 1 if the load is even."
_REDUCED = (
    "Whether the tick had more keys than `observer.max_state_bytes` has room for: `keys`, `replication_factor` and "
    "`top_keys` then count some of the keys only, those with the most tuples. The loads are exact."
)
_WORST = "Highest `max_over_avg` of the ticks with at least 100 rows per worker; null before the first such tick."


class TopKey(msgspec.Struct):
    """One of the keys with the most tuples in a tick."""

    key: Annotated[str, Meta(description="The key.")]
    tuples: Annotated[Tuples, Meta(description="Its tuples in the tick.")]
    workers: Annotated[int, Meta(description="Number of workers that processed it.", ge=1)]


class RunDistribution(msgspec.Struct):
    """The same measures since the first tuple of the pipeline."""

    tuples: Annotated[Tuples, Meta(description="Number of tuples of the run.")]
    duration_ms: Annotated[int, Meta(description="Wall-clock time since the first tuple.", ge=0)]
    tuples_per_s: Annotated[float, Meta(description="Tuples per second since the first tuple.", ge=0)]
    tuples_by_worker: Annotated[list[Tuples], Meta(description=_TUPLES_BY_WORKER)]
    load_stddev_percent: Annotated[Share, Meta(description=_STD_DEV)]
    imbalance: Annotated[Share, Meta(description=_IMBALANCE)]
    max_over_avg: Annotated[Share, Meta(description=_MAX_OVER_AVG)]
    replication_factor: Annotated[
        Share,
        Meta(
            description="Mean number of distinct workers per key. "
            "An estimate: exact for few keys, otherwise within 2 %."
        ),
    ]
    worst_tick_max_over_avg: Annotated[Share | None, Meta(description=_WORST)] = None
    rows: Annotated[Tuples, Meta(description=_ROWS)] = 0
    rows_by_worker: Annotated[list[Tuples], Meta(description=_ROWS_BY_WORKER)] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        """Set the rows of a record of an earlier version: each row was a tuple."""
        if not self.rows_by_worker:
            self.rows, self.rows_by_worker = self.tuples, self.tuples_by_worker


class TickDistribution(msgspec.Struct):
    """Distribution of the load over the workers in one tick."""

    tick_start: Annotated[
        Int64, Meta(description="Start of the tick (inclusive): event time in ms since the epoch (UTC).")
    ]
    tick_end: Annotated[Int64, Meta(description="End of the tick (exclusive).")]
    grouping: Annotated[str, Meta(description="Grouping that chose the workers.")]
    workers: Annotated[
        int,
        Meta(
            description="Number of workers when the tick was emitted, or more if others have tuples in the tick.",
            ge=1,
        ),
    ]
    tuples: Annotated[Tuples, Meta(description="Tuples with an event time in the tick.")]
    tuples_by_worker: Annotated[list[Tuples], Meta(description=_TUPLES_BY_WORKER)]
    keys: Annotated[int, Meta(description="Number of distinct keys.", ge=0)]
    load_stddev_percent: Annotated[Share, Meta(description=_STD_DEV)]
    imbalance: Annotated[Share, Meta(description=_IMBALANCE)]
    max_over_avg: Annotated[Share, Meta(description=_MAX_OVER_AVG)]
    replication_factor: Annotated[
        Share, Meta(description="Mean number of distinct workers per key (replication factor).")
    ]
    top_keys: Annotated[list[TopKey], Meta(description="The keys with the most tuples, at most `observer.top_keys`.")]
    run: Annotated[RunDistribution, Meta(description="The same measures since the first tuple of the pipeline.")]
    rows: Annotated[Tuples, Meta(description=_ROWS)] = 0
    rows_by_worker: Annotated[list[Tuples], Meta(description=_ROWS_BY_WORKER)] = msgspec.field(default_factory=list)
    reduced: Annotated[bool, Meta(description=_REDUCED)] = False

    def __post_init__(self) -> None:
        """Set the rows of a record of an earlier version: each row was a tuple."""
        if not self.rows_by_worker:
            self.rows, self.rows_by_worker = self.tuples, self.tuples_by_worker
