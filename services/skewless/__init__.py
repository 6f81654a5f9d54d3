"""Skewless: stateful stream aggregation on Kafka that stays fast and exact when keys are skewed.

The names in `__all__` are the Python API (docs/how-to/python.md). They are stable: names and meaning change only with
the major version. Each is imported when it is first used, so `import skewless` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from skewless.version import VERSION

if TYPE_CHECKING:
    from skewless import testing
    from skewless.algorithms.aggregates.elements import (
        aggregate,
        count,
        distinct,
        first,
        largest,
        last,
        max,  # noqa: A004 - the name of the aggregate
        mean,
        min,  # noqa: A004 - the name of the aggregate
        quantile,
        smallest,
        stddev,
        sum,  # noqa: A004 - the name of the aggregate
    )
    from skewless.api.analysis import inspect, plan, simulate
    from skewless.api.batch import spark_jars
    from skewless.api.pipeline import Pipeline
    from skewless.client import Balancer
    from skewless.errors import CheckFailedError, ConfigurationError, SkewlessError

__version__ = VERSION

__all__ = [
    "Balancer",
    "CheckFailedError",
    "ConfigurationError",
    "Pipeline",
    "SkewlessError",
    "aggregate",
    "count",
    "distinct",
    "first",
    "inspect",
    "largest",
    "last",
    "max",
    "mean",
    "min",
    "plan",
    "quantile",
    "simulate",
    "smallest",
    "spark_jars",
    "stddev",
    "sum",
    "testing",
]

_MODULES = {
    "Balancer": "client",
    "CheckFailedError": "errors",
    "ConfigurationError": "errors",
    "Pipeline": "api.pipeline",
    "SkewlessError": "errors",
    "inspect": "api.analysis",
    "plan": "api.analysis",
    "simulate": "api.analysis",
    "spark_jars": "api.batch",
}
"""Module of each name that is not an aggregate."""


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "testing":
            return import_module(f"{__name__}.testing")
        module = import_module(f"{__name__}.{_MODULES.get(name, 'algorithms.aggregates.elements')}")
        globals()[name] = getattr(module, name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
