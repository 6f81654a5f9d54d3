"""How values of a panel are written, by the unit and the thresholds of the panel."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

LIGHTS = {"green": "#73bf69", "yellow": "#f2cc0c", "red": "#f2495c", "blue": "#8ab8ff", "purple": "#ca95e5"}
GRID = "#2c3235"


def said(value: float, panel: Mapping[str, Any]) -> str:
    """Write a value in the unit of its panel."""
    match panel["fieldConfig"]["defaults"]["unit"]:
        case "percentunit":
            return f"{value:.1%}"
        case "dateTimeAsIso":
            return clock(value / 1000).strftime("%H:%M:%S")
        case "cps":
            return f"{value:,.0f}/s"
        case "none":
            return f"{value:.2f}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"


def axis(panel: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the axis of values for Plotly."""
    defaults = panel["fieldConfig"]["defaults"]
    form: dict[str, Any] = {"gridcolor": GRID, "rangemode": "tozero" if defaults.get("min") == 0 else "normal"}
    match defaults["unit"]:
        case "percentunit":
            form["tickformat"] = ".0%"
        case "dateTimeAsIso":
            form["type"] = "date"
        case "bytes":
            form |= {"tickformat": ".3s", "ticksuffix": "B"}
        case "Bps":
            form |= {"tickformat": ".3s", "ticksuffix": "B/s"}
        case "s":
            form["ticksuffix"] = " s"
        case "cps":
            form["ticksuffix"] = "/s"
    return form


def suffix(panel: Mapping[str, Any]) -> tuple[str, float]:
    """Tell what to write behind a value, and by what to multiply it before."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return {"percentunit": ("%", 100.0), "cps": ("/s", 1.0)}.get(unit, ("", 1.0))


def light(panel: Mapping[str, Any], value: float) -> str:
    """Choose the colour of a value."""
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    reached = [step["color"] for step in steps if step.get("value") is None or value >= step["value"]]
    return LIGHTS[reached[-1]] if reached else LIGHTS["green"]


def clock(at: float) -> dt.datetime:
    """Turn seconds since the epoch into a time."""
    return dt.datetime.fromtimestamp(at, tz=dt.UTC)
