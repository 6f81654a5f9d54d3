"""Dashboards of the metrics that only some stages have: one per need, so that a pipeline has those of its stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dashboards.generate.dashboard import Dashboard, Row
from dashboards.generate.panels import Panel, PanelDescription, Query, line_panel
from dashboards.generate.promql import maximum, quantile, rate, select, total
from dashboards.generate.units import TIMESTAMPS, unit
from skewless.monitoring.metrics import METRICS, Metric
from skewless.topology import STAGES, Stage

NAMES = {"source": "aggregation", "aggregator": "ranks"}
"""Section of the settings that stages need -> name of their dashboard, if it is not the section's."""


def own_metrics(stages: Sequence[Stage] = STAGES, metrics: Sequence[Metric] = METRICS) -> Iterator[Dashboard]:
    """Yield a dashboard for the stages that need the same section of the settings, with a row for each of them.

    A stage without metrics of its own is in none.
    """
    measured = [stage for stage in stages if any(stage.name in metric.stages for metric in metrics)]
    for name, group in groupby(sorted(measured, key=need), key=need):
        needed = list(group)
        names = ", ".join(stage.name for stage in needed)
        yield Dashboard(
            f"skewless-{name}",
            f"Skewless / {name.capitalize()}",
            f"The metrics of these stages alone: {names}.",
            [_row(stage, metrics) for stage in needed],
            stages=[stage.name for stage in needed],
        )


def need(stage: Stage) -> str:
    """Return the name of the dashboard of a stage."""
    section = stage.needs.path.partition(".")[0] if stage.needs else "source"
    return NAMES.get(section, section)


def _row(stage: Stage, metrics: Sequence[Metric]) -> Row:
    condition = f" (where {stage.option})" if stage.option else ""
    panels = [metric_panel(metric, stage) for metric in metrics if stage.name in metric.stages]
    return Row(f"{stage.name}: {stage.description}{condition}", panels)


def metric_panel(metric: Metric, stage: Stage) -> Panel:
    """Return the panel of a stage-specific metric, with the text and unit of the list of metrics."""
    short_name = metric.name.removeprefix(f"skewless_{stage.name}_").removesuffix("_total").removesuffix("_ratio")
    meaning = f"{metric.meaning} Of several processes, the largest value." if metric.kind == "gauge" else metric.meaning
    description = PanelDescription(short_name.replace("_", " ").capitalize(), meaning, unit(metric))
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels) or short_name.replace("_", " ")
    if metric.kind == "histogram":
        return line_panel(description, Query(quantile(0.99, select(f"{metric.name}_bucket", stage=stage.name)), "p99"))
    selector = select(metric.name, stage=stage.name)
    if metric.kind == "counter":
        return line_panel(description, Query(total(rate(selector), *metric.labels), legend))
    value = (
        f"{maximum(selector, *metric.labels)} * 1000"
        if metric.name in TIMESTAMPS
        else maximum(selector, *metric.labels)
    )
    return line_panel(description, Query(value, legend), lowest=None if metric.name in TIMESTAMPS else 0)
