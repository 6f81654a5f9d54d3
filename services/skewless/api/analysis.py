"""Inspects topics, simulates groupings and plans, as the commands of these names do. A notebook shows the outcomes."""

from __future__ import annotations

import math
import operator
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from skewless.algorithms.grouping import options_of
from skewless.api import html
from skewless.api.pipeline import Pipeline
from skewless.api.results import require_pandas
from skewless.client import texts_of
from skewless.errors import ConfigurationError
from skewless.kafka.consumer.offsets import offset_count
from skewless.lab.inspection.conditions import measures_of
from skewless.lab.inspection.read_topic import inspect_topic, sample_range
from skewless.lab.simulation import planning
from skewless.lab.simulation.candidates import ALL, candidates_of
from skewless.lab.simulation.recommend import Demand
from skewless.lab.simulation.simulation import Simulation, SimulationConfig
from skewless.times import FIRST_INSTANT, FORM, LAST_INSTANT, parse_duration

if TYPE_CHECKING:
    import pandas as pd

INSPECTED, PLANNED = 1_000_000, 2_000_000
"""Records that are read by default."""
SHORTEST_WINDOW_S, LONGEST_WINDOW_S = 0.001, 1_000_000_000
SHOWN_KEYS = 10
COLUMNS = ("grouping", "workers", "max_over_avg", "worst_window_max_over_avg", "replication_factor", "aggregation_cost")
"""Measures of candidates that a notebook shows."""


class TopicReport:
    """Measures of a topic: its format, hottest keys, sizes and times, and the load balance of each grouping."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return str(self._document["topic"])

    @property
    def measures(self) -> Mapping[str, float | None]:
        """Numbers by name: `max_share` of the hottest key, `max_over_avg` of the partitions, and others."""
        return measures_of(dict(self._document))

    @property
    def keys(self) -> Sequence[Mapping[str, Any]]:
        """Candidates for a key, the best first, each with its hottest keys as `top`."""
        keys: Sequence[Mapping[str, Any]] = self._document["keys"]
        return keys

    def to_dict(self) -> dict[str, Any]:
        """Return all measures, as `skewless inspect --json` prints them."""
        return dict(self._document)

    def __repr__(self) -> str:
        return f"TopicReport({self.topic!r}, {self._document['records']:,} records)"

    def _repr_html_(self) -> str:
        found = self._document
        parts = [html.paragraph(f"{self.topic}: {found['records']:,} records, {found['format']['description']}")]
        if self.keys and self.keys[0]["top"]:
            top = self.keys[0]["top"][:SHOWN_KEYS]
            rows = [(entry["key"], f"{entry['count']:,}", f"{entry['share']:.2%}") for entry in top]
            shares = [entry["share"] for entry in top]
            parts.append(html.table((str(self.keys[0]["name"]), "records", "share"), rows, {2: shares}))
        if loads := found["loads"]:
            rows = [(load["grouping"], str(load["workers"]), f"{load['max_over_avg']:.2f}") for load in loads]
            parts.append(
                html.table(("grouping", "workers", "max/avg"), rows, {2: [load["max_over_avg"] for load in loads]})
            )
        return "".join(parts)


class Candidates:
    """Groupings with numbers of workers, each with its measures (see docs/how-to/compare-groupings.md)."""

    def __init__(self, candidates: Sequence[Mapping[str, Any]]) -> None:
        self.candidates = candidates

    def to_pandas(self) -> pd.DataFrame:
        """Return all measures as a pandas DataFrame. Raises ConfigurationError if pandas is not installed."""
        require_pandas()
        import pandas as pd

        return pd.DataFrame(list(self.candidates))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.candidates)} candidates)"

    def _repr_html_(self) -> str:
        rows = [[_text(candidate[name]) for name in COLUMNS] for candidate in self.candidates]
        loads = [candidate["max_over_avg"] for candidate in self.candidates]
        return html.table(COLUMNS, rows, {COLUMNS.index("max_over_avg"): loads})


class Plan(Candidates):
    """A recommendation for a topic, and the candidates that were compared."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(document["candidates"])
        self._document = document

    @property
    def grouping(self) -> str:
        """The recommended grouping."""
        return str(self._document["recommendation"]["grouping"])

    @property
    def workers(self) -> int:
        """The recommended number of workers."""
        return int(self._document["recommendation"]["workers"])

    @property
    def is_sufficient(self) -> bool:
        """Whether the recommendation meets the rate. Otherwise it is the best of the candidates."""
        return bool(self._document["recommendation"]["sufficient"])

    @property
    def reasons(self) -> Sequence[str]:
        """Reasons of the recommendation."""
        reasons: Sequence[str] = self._document["recommendation"]["reasons"]
        return reasons

    def to_dict(self) -> dict[str, Any]:
        """Return the whole plan, as `skewless plan --json` prints it."""
        return dict(self._document)

    def _repr_html_(self) -> str:
        shortfall = "" if self.is_sufficient else ", although that is too few for the rate"
        lines = [f"Recommended: {self.grouping} on {self.workers} workers{shortfall}", *self.reasons]
        return "".join(map(html.paragraph, lines)) + super()._repr_html_()


def inspect(  # noqa: PLR0913 - passed by name
    topic: str,
    *,
    brokers: str | None = None,
    records: int = INSPECTED,
    since: str | None = None,
    key: str | int | None = None,
    kafka: Mapping[str, Any] | None = None,
    registry: Mapping[str, Any] | None = None,
) -> TopicReport:
    """Measure the newest `records` of a topic, or those of the last `since`, such as "1h". Writes nothing to Kafka.

    `key` is the field or the number of the column to use as key, or "record key". `kafka` and `registry` are sections
    of a pipeline file.

    Raises CheckFailedError if there are no records, and ConfigurationError for an invalid argument.
    """
    _require_topic("topic", topic)
    _require("records", records, whole=True, minimum=1)
    since_s = parse_duration(since) if isinstance(since, str) else None
    if since is not None and since_s is None:
        raise ConfigurationError(f"since: {since!r} is not {FORM}")
    if not isinstance(key, str | int | None):
        raise ConfigurationError(f"key: {key!r} is not a field, the number of a column, or 'record key'")
    named = {"kafka": kafka, "registry": registry}
    sections: dict[str, Any] = {name: section for name, section in named.items() if section is not None}
    settings = Pipeline(topic, brokers=brokers, **sections).settings
    sample = sample_range(settings.kafka, topic, records, since_s, time.time_ns() // 1_000_000)
    key_name = None if key is None else str(key)
    try:
        return TopicReport(inspect_topic(settings.kafka, topic, sample, key_name, registry=settings.registry))
    except ConfigurationError as error:  # it may name an option of the command
        raise ConfigurationError(*(problem.removeprefix("--") for problem in error.problems)) from None


def simulate(  # noqa: PLR0913 - passed by name
    keys: Sequence[str],
    *,
    workers: int | Sequence[int],
    grouping: str | Sequence[str] = ALL,
    times: Sequence[int] | None = None,
    routers: int = 1,
    window_s: float = 60.0,
    options: Mapping[str, Any] | None = None,
) -> Candidates:
    """Run only the groupings on the keys of a stream, and measure the load of each number of workers.

    `times` are those of the keys in ms, by default one ms after the other. `options` has the names of section `router`.

    Raises ConfigurationError for an unknown grouping, an invalid option or number, or keys that are not texts.
    """
    names, numbers = candidates_of(_listed(grouping), _listed(workers))
    parsed = options_of(options or {}, clock="event")
    _require("routers", routers, whole=True, minimum=1)
    _require("window_s", window_s, minimum=SHORTEST_WINDOW_S, maximum=LONGEST_WINDOW_S)
    of_keys = texts_of(keys)
    try:
        whole = range(len(of_keys)) if times is None else [operator.index(time) for time in times]
        event_times = np.array(whole, dtype=np.int64)
    except (TypeError, OverflowError) as error:
        raise ConfigurationError(f"times: must be integers of 64 bits: {error}") from None
    if not len(of_keys) or len(of_keys) != len(event_times) or of_keys.null_count:
        raise ConfigurationError(
            f"keys: needs keys, none of them None, and as many times: {len(of_keys)} and {len(event_times)}"
        )
    if event_times.min() < FIRST_INSTANT or event_times.max() > LAST_INSTANT:
        raise ConfigurationError("times: must be within the years 1 to 9999")
    simulation = Simulation(product(names, numbers), SimulationConfig(parsed, routers, round(window_s * 1000)))
    for first in range(0, len(event_times), simulation.rows):
        part = slice(first, first + simulation.rows)
        simulation.add(of_keys[part], event_times[part], now=time.time_ns() // 1_000_000)
    return Candidates(simulation.facts())


def plan(  # noqa: PLR0913 - passed by name
    pipeline: Pipeline | str,
    *,
    workers: int | Sequence[int] = (5, 10, 20, 50),
    grouping: str | Sequence[str] = ALL,
    sample: int = PLANNED,
    routers: int | None = None,
    cost_per_tuple_ms: float = 1.0,
    rate: float | None = None,
    headroom: float = 1.5,
) -> Plan:
    """Run groupings with numbers of workers on the newest records of a topic, and recommend one combination.

    With a pipeline, its records are parsed as it parses them. With the name of a topic, their Kafka keys and timestamps
    are used. `rate` is the required number of tuples per second, by default that of the topic.

    Raises CheckFailedError if there are no tuples, and ConfigurationError for an invalid argument.
    """
    _require("sample", sample, whole=True, minimum=1)
    _require("cost_per_tuple_ms", cost_per_tuple_ms, above=0)
    _require("headroom", headroom, minimum=1)
    if rate is not None:
        _require("rate", rate, above=0)
    if routers is not None:
        _require("routers", routers, whole=True, minimum=1)
    is_parsed = isinstance(pipeline, Pipeline)
    if not is_parsed:
        _require_topic("pipeline", pipeline)
    settings = (pipeline if isinstance(pipeline, Pipeline) else Pipeline(pipeline)).settings
    if settings.aggregated.topic is None:
        raise ConfigurationError("pipeline: it reads several topics: give a pipeline of one of them")
    simulation = planning.simulation_of(settings, *candidates_of(_listed(grouping), _listed(workers)), routers)
    ranges = planning.sample_ranges(settings, sample)
    if offset_count(ranges) > planning.LOCAL_RECORDS:
        raise ConfigurationError(
            f"sample: more than {planning.LOCAL_RECORDS:,} records are too many for one process: use `skewless plan`"
        )
    read_plan = planning.read_plan_of(settings, ranges, parsed=is_parsed, now_ms=time.time_ns() // 1_000_000)
    blocks = planning.read_blocks(settings.kafka, settings.topic("source"), read_plan, lambda _now, _done: None)
    demand = Demand(cost_per_tuple_ms, rate, headroom, commits_per_s=1 / settings.transport.commit_interval_s)
    found = planning.plan(blocks, simulation, demand)
    return Plan(planning.document(settings.topic("source"), read_plan, found))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _require_topic(name: str, topic: Any) -> None:
    """Raise ConfigurationError if an argument is not text."""
    if not isinstance(topic, str):
        raise ConfigurationError(f"{name}: {topic!r} is not the name of a topic")


def _require(  # noqa: PLR0913 - bounds are passed by name
    name: str,
    value: Any,
    *,
    whole: bool = False,
    minimum: float = -math.inf,
    above: float = -math.inf,
    maximum: float = sys.float_info.max,
) -> None:
    """Raise ConfigurationError if an argument is not a number within these bounds."""
    kind = Integral if whole else Real
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if is_number and value > above and minimum <= value <= maximum:
        return
    bounds = f"above {above:g}" if above > -math.inf else f"at least {minimum:g}"
    most = "" if maximum == sys.float_info.max else f", at most {maximum:,}"
    raise ConfigurationError(f"{name}: {value!r} must be {'a whole number' if whole else 'a number'}, {bounds}{most}")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.3f}" if isinstance(value, float) else str(value)
