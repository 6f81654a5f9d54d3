"""Builds PromQL expressions that are limited to the dashboard's variables."""

from __future__ import annotations

WHERE = 'cluster=~"$cluster", namespace=~"$namespace", job=~"$job"'
"""Matchers of the processes among which the dashboard selects."""
SELECTED = f'{WHERE}, pipeline=~"$pipeline", instance=~"$instance"'
"""Matchers of the pipeline that is selected above the dashboard."""
COMPARED = f'{WHERE}, pipeline=~"$compared"'
"""Matchers of the pipelines that are compared. Those have processes of their own, which `$instance` does not select."""

OF_PROCESSES = f'{WHERE}, instance=~"$instance"'
"""Matchers of the metrics of the operating system process, which have no label `pipeline`."""
PROCESS = "cluster, namespace, job, instance"
"""Labels of a process."""
CPU = f"process_cpu_seconds_total{{{OF_PROCESSES}}}"
MEMORY = f"process_resident_memory_bytes{{{OF_PROCESSES}}}"


def select(name: str, matchers: str = SELECTED, **labels: str) -> str:
    """Select the series of a metric. A label equals its value, or matches it if the value begins with `~`."""
    label_matchers = [
        f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"' for label, value in labels.items()
    ]
    return f"{name}{{{', '.join([matchers, *label_matchers])}}}"


def rate(selector: str) -> str:
    """Return the rate per second, over the shortest interval that has enough scrapes."""
    return f"rate({selector}[$__rate_interval])"


def growth(counter: str) -> str:
    """Return the growth of counters in the time range, including what new ones counted before their first scrape."""
    known = f"present_over_time({counter}[10m] offset $__range)"
    first = total(f"min_over_time({counter}[$__range]) unless {known}")
    return f"{total(f'increase({counter}[$__range])')} + ({first} or vector(0))"


def total(expression: str, *by: str) -> str:
    """Return the sum over all labels except these."""
    return f"sum{_by(by)} ({expression})"


def maximum(expression: str, *by: str) -> str:
    """Return the maximum over all labels except these."""
    return f"max{_by(by)} ({expression})"


def minimum(expression: str, *by: str) -> str:
    """Return the minimum over all labels except these."""
    return f"min{_by(by)} ({expression})"


def quantile(share: float, buckets: str, *by: str) -> str:
    """Estimate a quantile of a histogram from the selector of its buckets."""
    return f"histogram_quantile({share}, {total(rate(buckets), *by, 'le')})"


def watermark_delay(**stage: str) -> str:
    """Return the watermark delay of each partition: the stage's largest event time minus the partition's watermark."""
    of_stage = ("cluster", "namespace", "pipeline", "stage")
    # The largest event time of a partition that lags is old itself, so that of the whole stage is used.
    max_event_time = maximum(select("skewless_max_event_timestamp_seconds", **stage), *of_stage)
    watermark = select("skewless_watermark_timestamp_seconds", **stage)
    return f"{max_event_time} - on ({', '.join(of_stage)}) group_right () {watermark}"


def with_stage_label(value: str, stage: str = "") -> str:
    """Add the label `stage` to a metric of the operating system process, such as CPU time, for each stage it runs."""
    info = select("skewless_build_info", stage=stage) if stage else select("skewless_build_info")
    return f"{value} * on ({PROCESS}) group_right () {info}"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
