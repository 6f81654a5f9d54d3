"""Client of Prometheus' HTTP API that sends the queries that Grafana sends for a dashboard."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dashboards.generate.dashboard import panels

TIMEOUT_S = 30.0
_LABEL_VALUES = re.compile(r"label_values\((?P<expr>.*), *(?P<label>\w+)\)")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


class PanelQuery(NamedTuple):
    """Expression of a panel or annotation, and its place in the dashboard."""

    where: str
    expr: str


class Series(NamedTuple):
    """Labels, and values over time: (time in s, value)."""

    labels: Mapping[str, str]
    values: list[tuple[float, float]]


class Api:
    """Prometheus' HTTP API. Raises ValueError with Prometheus' message when an expression is invalid."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def query(self, expr: str, time_s: float | None = None) -> list[Series]:
        """Evaluate an expression now, or at a time in seconds since the epoch."""
        arguments = {} if time_s is None else {"time": time_s}
        results = self.get("query", query=expr, **arguments)["result"]
        return [_series(result, [result["value"]]) for result in results]

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """Evaluate an expression over a time range. All times are in seconds."""
        results = self.get("query_range", query=expr, start=start, end=end, step=step)["result"]
        return [_series(result, result["values"]) for result in results]

    def label_values(self, query: str) -> list[str]:
        """Return the result of a variable's query, `label_values(selector, label)`."""
        parsed = _LABEL_VALUES.fullmatch(query)
        if parsed is None:
            raise ValueError(f"not a query of a variable: {query}; expected label_values(selector, label)")
        return list(self.get(f"label/{parsed['label']}/values", **{"match[]": parsed["expr"]}))

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}

    def get(self, endpoint: str, **arguments: object) -> Any:
        """Return the data of an API endpoint."""
        try:
            with self._opener.open(
                f"{self._url}/api/v1/{endpoint}?{urllib.parse.urlencode(arguments)}", timeout=TIMEOUT_S
            ) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(f"{endpoint} {arguments}: {error.read().decode()}") from None


def substitute_variables(expr: str, values: Mapping[str, str]) -> str:
    """Replace the variables of an expression by their values. Raises KeyError for a variable without a value."""
    return _VARIABLE.sub(lambda match: values[match[1]], expr)


def expressions(dashboard: Mapping[str, Any]) -> Iterator[PanelQuery]:
    """Yield the expressions of a dashboard's panels and annotations."""
    for panel in panels(dict(dashboard)):
        for target in panel.get("targets", ()):
            yield PanelQuery(f"{dashboard['title']}: {panel['title']} {target['refId']}", target["expr"])
    for event in dashboard["annotations"].get("list", ()):
        yield PanelQuery(f"{dashboard['title']}: event {event['name']}", event["expr"])


def _series(result: Mapping[str, Any], values: list[tuple[float, str]]) -> Series:
    return Series(result["metric"], [(timestamp_s, float(value)) for timestamp_s, value in values])
