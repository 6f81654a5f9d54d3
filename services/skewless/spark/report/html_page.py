"""Renders the page of a report from its template: texts, tables and charts, with plotly's JavaScript embedded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment

Figure = Mapping[str, Any]
"""A chart for plotly: `data` and `layout`, as plain values."""


class Chart(NamedTuple):
    """Place of a chart in the page."""

    number: int
    """Position of its figure among all figures of the page."""
    height: int
    """Height in pixels."""


def template_environment(folder: Path) -> Environment:
    """Return the environment of the HTML templates in a folder: values are escaped, and unknown names are errors."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment


def render(template: str, figures: Mapping[str, Sequence[Figure]], **context: object) -> str:
    """Return the HTML of a report. The page loads no external resources; its policy forbids them.

    The template gets `figures` as `charts`: the places of the charts by section.
    """
    from plotly.offline import get_plotlyjs

    numbers = count()
    charts = {
        section: [Chart(next(numbers), figure["layout"]["height"]) for figure in group]
        for section, group in figures.items()
    }
    in_order = [figure for group in figures.values() for figure in group]
    return (
        template_environment(Path(__file__).parent)
        .get_template(template)
        .render(charts=charts, figures=in_order, plotly=get_plotlyjs(), **context)
    )
