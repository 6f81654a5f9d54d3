"""What the check must be allowed on the brokers. Pure."""

from __future__ import annotations

from skewless.acls import Right
from skewless.settings import PipelineSettings


def rights(settings: PipelineSettings) -> list[Right]:
    """Read and write the source, read the results; it joins no group, and has no transactions."""
    results = settings.topic("aggregates")
    return [
        Right("topic", settings.source.topic, prefixed=False, operations=("Read", "Write"), needed="its records"),
        Right("topic", results, prefixed=False, operations=("Read",), needed="their counts"),
    ]
