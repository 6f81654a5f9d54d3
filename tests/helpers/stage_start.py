"""Starts of stages without a broker."""

from __future__ import annotations

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart


def in_memory(stage: str, settings: PipelineSettings, partitions: int, *, drain: bool = False) -> StageStart:
    """Return the start of a stage in which all topics have this number of partitions."""
    names = [*(settings.topic(topic.name) for topic in topology.TOPICS), *settings.user_topics.values()]
    return StageStart(topology.stage(stage), settings, dict.fromkeys(names, partitions), drain)
