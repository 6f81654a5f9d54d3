"""Finds a query of Spark that runs a pipeline in place of its stages."""

from __future__ import annotations

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BrokerError, FencedError
from skewless.kafka.admin.groups import GroupReader


def check_no_query(settings: PipelineSettings) -> None:
    """Raise FencedError if a query of Spark runs the pipeline.

    The driver is a member of the splitter's group. A user with the rights of another stage alone cannot see it. Then
    only the checkpoints of the stage say what runs the pipeline.
    """
    if settings.source is None:
        return
    try:
        group = GroupReader(settings.kafka).describe(settings.group(topology.SOURCE_STAGE))
    except BrokerError:
        return
    if (host := group.members.get(f"{settings.full_name}-{topology.QUERY}")) is not None:
        raise FencedError(
            f"pipeline {settings.name} is run by `skewless stream` at {host}: stop it, and let the stages continue "
            "with `skewless stream --hand-back`"
        )
