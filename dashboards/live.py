"""Asks a real Prometheus what Grafana would ask it for a dashboard."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dashboards.build.frame import panels

TIMEOUT_S = 30.0
_LABEL_VALUES = re.compile(r"label_values\((?P<expr>.*), *(?P<label>\w+)\)")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


class Asked(NamedTuple):
    """An expression of a dashboard, and where it stands."""

    where: str
    expr: str


class Series(NamedTuple):
    """Labels, and values over time: (time in s, value)."""

    labels: Mapping[str, str]
    values: list[tuple[float, float]]


class Api:
    """Prometheus' HTTP API; a mistake in an expression raises ValueError with what Prometheus says."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def query(self, expr: str, at: float | None = None) -> list[Series]:
        """Evaluate an expression, now or at a time."""
        moment = {} if at is None else {"time": at}
        return [_series(one, [one["value"]]) for one in self.get("query", query=expr, **moment)["result"]]

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """Evaluate an expression over a time span."""
        found = self.get("query_range", query=expr, start=start, end=end, step=step)
        return [_series(one, one["values"]) for one in found["result"]]

    def label_values(self, query: str) -> list[str]:
        """Answer the query of a variable, `label_values(selector, label)`."""
        asked = _LABEL_VALUES.fullmatch(query)
        if asked is None:
            raise ValueError(f"not a query of a variable: {query}")
        return list(self.get(f"label/{asked['label']}/values", **{"match[]": asked["expr"]}))

    def firing(self) -> set[str]:
        """Name the alerts that fire now."""
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}

    def get(self, what: str, **arguments: object) -> Any:
        """Ask one of the API's questions."""
        try:
            with self._opener.open(
                f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(arguments)}", timeout=TIMEOUT_S
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{what} {arguments}: {error.read().decode()}") from None


def filled(expr: str, chosen: Mapping[str, str]) -> str:
    """Put what is chosen in the place of variables; KeyError for a variable that nobody chooses."""
    return _VARIABLE.sub(lambda found: chosen[found[1]], expr)


def expressions(dashboard: Mapping[str, Any]) -> Iterator[Asked]:
    """List what panels and annotations of a dashboard ask."""
    for panel in panels(dict(dashboard)):
        for target in panel.get("targets", ()):
            yield Asked(f"{dashboard['title']}: {panel['title']} {target['refId']}", target["expr"])
    for event in dashboard["annotations"].get("list", ()):
        yield Asked(f"{dashboard['title']}: event {event['name']}", event["expr"])


def _series(one: Mapping[str, Any], values: list[tuple[float, str]]) -> Series:
    return Series(one["metric"], [(at, float(value)) for at, value in values])
