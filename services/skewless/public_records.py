"""What the public topics carry: one JSON object per record. Kafka topics are the API, so this is the API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from skewless.algorithms.aggregates import AGGREGATES
from skewless.algorithms.aggregates.base import COUNT

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class LateTuple(msgspec.Struct):
    """A tuple older than its source partition's mark: it is in no window."""

    key: Annotated[str, Meta(description="The tuple's key.")]
    value: Annotated[int | float, Meta(description="Its value, in the unit of the source.")]
    time: Annotated[Int64, Meta(description="Its event time, ms since the epoch (UTC).")]
    mark: Annotated[
        Int64,
        Meta(description="The largest event time of the partition before it minus the allowed lateness; above `time`."),
    ]
    partition: Annotated[int, Meta(description="Partition of the source in which its record stands.", ge=0)]
    offset: Annotated[int, Meta(description="Offset of that record.", ge=0)]


class PlainTuple(msgspec.Struct):
    """One tuple, with `worker_input.encoding: record`; the key is the record's key."""

    value: Annotated[Int64, Meta(description="The number times 10 to the power of `splitter.value.decimals`.")]
    time: Annotated[Int64, Meta(description="Event time, ms since the epoch (UTC).")]


class KeyInWindow(msgspec.Struct):
    """The results of one key in one window; of the aggregates it has those that `aggregator.aggregates` names."""

    key: Annotated[str, Meta(description="The key.")]
    window_start: Annotated[
        Int64, Meta(description="Start of the window, ms since the epoch (UTC); it belongs to the window.")
    ]
    window_end: Annotated[Int64, Meta(description="End of the window, ms since the epoch; it belongs to the next one.")]


Revision = Annotated[
    int,
    Meta(
        description="How often this key of this window was written before; the record with the highest is the valid "
        "one.",
        ge=0,
    ),
]


def aggregate_type(names: Iterable[str]) -> type[msgspec.Struct]:
    """Make the type of the records in topic `aggregates`: a field per aggregate, in the order of the settings."""
    fields: list[tuple[str, Any]] = [(name, _result_of(name)) for name in names]
    kind = msgspec.defstruct("Aggregate", [*fields, ("revision", Revision)], bases=(KeyInWindow,), gc=False)
    kind.__doc__ = KeyInWindow.__doc__
    return kind


def _result_of(name: str) -> Any:
    meaning = (type(AGGREGATES[name]).__doc__ or "").strip()
    if name == COUNT.name:
        return Annotated[int, Meta(description=meaning, ge=1)]
    return Annotated[int | float, Meta(description=meaning)]


Tuples = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0)]

_TUPLES_BY_WORKER = "Tuples by worker: the first is worker 0's, there are as many as `workers`."
_STD_DEV = "Population standard deviation over workers of their share in percent."
_IMBALANCE = "(fullest worker - average) / tuples."
_MAX_OVER_AVG = "Tuples of the fullest worker by the average: 1 is even."

_WORST = "`max_over_avg` of the worst tick with at least 100 tuples per worker; null while there is none."


class HottestKey(msgspec.Struct):
    """One of the hottest keys of a tick."""

    key: Annotated[str, Meta(description="The key.")]
    tuples: Annotated[Tuples, Meta(description="Its tuples in the tick.")]
    workers: Annotated[int, Meta(description="How many workers held it.", ge=1)]


class RunDistribution(msgspec.Struct):
    """The load since the pipeline's first tuple; names as in the tick, shares over the whole run."""

    total_count: Annotated[Tuples, Meta(description="Tuples since the first one.")]
    duration: Annotated[int, Meta(description="Wall-clock ms since the first tuple.", ge=0)]
    throughput_ratio: Annotated[float, Meta(description="Tuples per second since the first one.", ge=0)]
    tuples_by_worker: Annotated[list[Tuples], Meta(description=_TUPLES_BY_WORKER)]
    std_dev: Annotated[Share, Meta(description=_STD_DEV)]
    imbalance: Annotated[Share, Meta(description=_IMBALANCE)]
    max_over_avg: Annotated[Share, Meta(description=_MAX_OVER_AVG)]
    dist_cost: Annotated[Share, Meta(description="Estimated by sketches, within 2 %; exact for few keys.")]
    worst_tick_max_over_avg: Annotated[Share | None, Meta(description=_WORST)] = None


class TickDistribution(msgspec.Struct):
    """How even the load of the workers was in one tick."""

    tick_start: Annotated[Int64, Meta(description="Start of the tick, event time in ms since the epoch (UTC).")]
    tick_end: Annotated[Int64, Meta(description="End of the tick; it belongs to the next one.")]
    grouping: Annotated[str, Meta(description="The grouping that chose the workers.")]
    workers: Annotated[
        int, Meta(description="W when the tick was told, or as many as had tuples in it, whichever is more.", ge=1)
    ]
    tuples: Annotated[Tuples, Meta(description="Tuples with an event time in the tick.")]
    tuples_by_worker: Annotated[list[Tuples], Meta(description=_TUPLES_BY_WORKER)]
    keys: Annotated[int, Meta(description="Distinct keys.", ge=0)]
    std_dev: Annotated[Share, Meta(description=_STD_DEV)]
    imbalance: Annotated[Share, Meta(description=_IMBALANCE)]
    max_over_avg: Annotated[Share, Meta(description=_MAX_OVER_AVG)]
    dist_cost: Annotated[Share, Meta(description="Mean number of distinct workers that held a key (replication).")]
    hottest_keys: Annotated[list[HottestKey], Meta(description="The hottest keys, `observer.hottest` of them.")]
    run: Annotated[RunDistribution, Meta(description="The same since the pipeline's first tuple.")]


Digits = Annotated[str, Meta(pattern="^[0-9]+$")]
_SIZE = "Bytes of its {}, where the dead letter has only the first {} of them."


class DeadLetterHeaders(msgspec.Struct, rename=lambda name: f"__skewless.errors.{name}"):
    """Where a dead letter comes from, and what is wrong with it: headers, text in UTF-8 (KIP-1034's fields)."""

    topic: Annotated[str, Meta(description="Topic in which the record stands.")]
    partition: Annotated[Digits, Meta(description="Its partition.")]
    offset: Annotated[Digits, Meta(description="Its offset.")]
    reason: Annotated[str, Meta(description="What is wrong with it.", min_length=1)]
    value_bytes: Annotated[Digits, Meta(description=_SIZE.format("value", "900,000"))] | UnsetType = UNSET
    key_bytes: Annotated[Digits, Meta(description=_SIZE.format("key", "65,536"))] | UnsetType = UNSET
