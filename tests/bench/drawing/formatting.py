"""Formats the values of a panel by the panel's unit and thresholds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

COLORS = {"green": "#73bf69", "yellow": "#f2cc0c", "red": "#f2495c", "blue": "#8ab8ff", "purple": "#ca95e5"}
"""Grafana's name of a colour -> HTML colour."""
DAY_S = 86_400
GRID_COLOR = "#2c3235"


def format_value(value: float, panel: Mapping[str, Any]) -> str:
    """Return a value as text in the unit of its panel."""
    match panel["fieldConfig"]["defaults"]["unit"]:
        case "percentunit":
            return f"{value:.1%}"
        case "dateTimeAsIso":
            return to_datetime(value / 1000).strftime("%H:%M:%S")
        case "cps":
            return f"{value:,.0f}/s"
        case "none":
            return f"{value:.2f}"
        case "s":
            return f"{value:.3g} s" if value < DAY_S else f"{value / DAY_S:,.0f} days"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"


def value_axis(panel: Mapping[str, Any]) -> dict[str, Any]:
    """Return Plotly's options of the value axis."""
    defaults = panel["fieldConfig"]["defaults"]
    options: dict[str, Any] = {"gridcolor": GRID_COLOR, "rangemode": "tozero" if defaults.get("min") == 0 else "normal"}
    match defaults["unit"]:
        case "percentunit":
            options["tickformat"] = ".3~p"
        case "dateTimeAsIso":
            options["type"] = "date"
        case "bytes":
            options |= {"tickformat": ".3s", "ticksuffix": "B"}
        case "Bps":
            options |= {"tickformat": ".3s", "ticksuffix": "B/s"}
        case "s":
            options["ticksuffix"] = " s"
        case "cps":
            options["ticksuffix"] = "/s"
    return options


def suffix_and_factor(panel: Mapping[str, Any]) -> tuple[str, float]:
    """Return the suffix of a panel's values, and the factor that converts them to that unit."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return {"percentunit": ("%", 100.0), "cps": ("/s", 1.0)}.get(unit, ("", 1.0))


def threshold_color(panel: Mapping[str, Any], value: float) -> str:
    """Return the colour of the highest threshold that a value has reached."""
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    reached = [step["color"] for step in steps if step.get("value") is None or value >= step["value"]]
    return COLORS[reached[-1]] if reached else COLORS["green"]


def to_datetime(timestamp_s: float) -> dt.datetime:
    """Convert seconds since the epoch to a datetime in UTC."""
    return dt.datetime.fromtimestamp(timestamp_s, tz=dt.UTC)
