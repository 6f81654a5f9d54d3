"""ACLs that the smoke test needs on the brokers. Pure."""

from __future__ import annotations

from skewless.config.acls import AclBinding, source_topics
from skewless.config.pipeline_settings import PipelineSettings


def rights(settings: PipelineSettings) -> list[AclBinding]:
    """Return the ACLs: read and write the source, read the results, find the processes. No transactions."""
    return [
        *source_topics(settings, ("Read", "Write"), "its records"),
        AclBinding("topic", settings.topic("aggregates"), ("Read",), ("their counts",)),
        AclBinding("group", f"{settings.full_name}-", ("Describe",), ("processes",), prefixed=True),
    ]
