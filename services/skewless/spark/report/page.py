"""A report's page: sections of text, tables and charts in the template, with plotly's JavaScript inside."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

TEMPLATE = Path(__file__).with_name("template.html")

Figure = Mapping[str, Any]
"""What plotly draws: `data` and `layout`, as plain values."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report. `body` is HTML; texts in it are escaped already."""

    title: str
    body: str = ""
    figures: Sequence[Figure] = ()


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Put a report together; `lead` is HTML. Nothing in it is fetched from anywhere, and its policy forbids that."""
    from plotly.offline import get_plotlyjs

    figures = [figure for section in sections for figure in section.figures]
    places = iter(range(len(figures)))
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        lead=lead,
        sections="\n".join(_section(section, [next(places) for _ in section.figures]) for section in sections),
        figures=_embedded(figures),
        plotly=get_plotlyjs(),
    )


def _section(section: Section, places: Sequence[int]) -> str:
    charts = "".join(
        f'<div class="chart" id="chart-{place}" style="height:{figure["layout"]["height"]}px"></div>'
        for place, figure in zip(places, section.figures, strict=True)
    )
    return f"<section><h2>{html.escape(section.title)}</h2>{section.body}{charts}</section>"


def _embedded(figures: Sequence[Figure]) -> str:
    """Write JSON that stands in a script: no text in it can end the script."""
    return json.dumps(figures, allow_nan=False).replace("<", "\\u003c")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], best: AbstractSet[tuple[int, int]] = frozenset()) -> str:
    """Make a table of texts; the first column names the row, the others are numbers. `best`: (row, column)."""
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = [
        "<tr>" + "".join(_cell(cell, column, strong=(at, column) in best) for column, cell in enumerate(row)) + "</tr>"
        for at, row in enumerate(rows)
    ]
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _cell(text: str, column: int, *, strong: bool) -> str:
    if not column:
        return f'<th scope="row">{html.escape(text)}</th>'
    return f"<td{' class=best' if strong else ''}>{html.escape(text)}</td>"


def paragraph(text: str) -> str:
    """Make a paragraph of a text."""
    return f"<p>{html.escape(text)}</p>"


def folded(title: str, body: str) -> str:
    """Hide HTML until it is asked for."""
    return f"<details><summary>{html.escape(title)}</summary>{body}</details>"


def definitions(names: Mapping[str, str]) -> str:
    """List names and what they mean."""
    return "<dl>" + "".join(f"<dt>{html.escape(n)}</dt><dd>{html.escape(t)}</dd>" for n, t in names.items()) + "</dl>"
