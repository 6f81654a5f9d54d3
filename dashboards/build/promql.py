"""Small pieces of PromQL, each of them narrowed to what is chosen above the dashboard."""

from __future__ import annotations

CHOSEN = 'job=~"$job", pipeline=~"$pipeline", instance=~"$instance"'
COMPARED = 'job=~"$job", pipeline=~"$compared", instance=~"$instance"'


def of(name: str, chosen: str = CHOSEN, **labels: str) -> str:
    """Select a metric; labels are equal to what is given, or match it when it begins with `~`."""
    more = [
        f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"' for label, value in labels.items()
    ]
    return f"{name}{{{', '.join([chosen, *more])}}}"


def rate(selector: str) -> str:
    """Per second, over the shortest time that has enough scrapes."""
    return f"rate({selector}[$__rate_interval])"


def total(expression: str, *by: str) -> str:
    """Sum over everything but these labels."""
    return f"sum{_by(by)} ({expression})"


def most(expression: str, *by: str) -> str:
    """Take the highest over everything but these labels."""
    return f"max{_by(by)} ({expression})"


def least(expression: str, *by: str) -> str:
    """Take the lowest over everything but these labels."""
    return f"min{_by(by)} ({expression})"


def quantile(share: float, histogram: str, *by: str) -> str:
    """Estimate a quantile of a histogram; `histogram` selects its buckets."""
    return f"histogram_quantile({share}, {total(rate(histogram), *by, 'le')})"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
