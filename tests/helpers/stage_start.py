"""Starts of stages without a broker, and the settings of pipelines that have them."""

from __future__ import annotations

from typing import Any

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart

SIDES = {side: {"topic": f"p-{side}", "id": {"field": "id"}} for side in ("left", "right")}
REQUIRED: dict[str, dict[str, Any]] = {
    "join": {**SIDES, "apart_s": 1},
    "sink": {"url": "sqlite:///x.db"},
    "enrich": {"topic": "p-events", "tables": [{"topic": "p-users", "fields": {"name": "name"}, "missing": "keep"}]},
    "mirror": {"kafka": {"bootstrap_servers": "other:9092"}},
}
"""Settings without a default, by section."""
SET: dict[str, Any] = {"aggregator.top": {"n": 3, "by": "count"}, "sink.top_table": "ranks"}
"""Values of settings that a condition needs to be set, by path."""


def sections_for(stage: topology.Stage) -> dict[str, dict[str, Any]]:
    """Return the sections without which a pipeline `p` with a source topic does not have this stage."""
    if stage.option is None:
        return {}
    section, _, setting = stage.option.path.partition(".")
    value = stage.option.values[0] if stage.option.values else SET.get(stage.option.path)
    ranked = {"aggregator": {"top": SET["aggregator.top"]}} if stage.option.path == "sink.top_table" else {}
    source = {"source": {"topic": "p.enriched"}} if section == "enrich" else {}
    return source | ranked | {section: REQUIRED.get(section, {}) | ({setting: value} if setting else {})}


def in_memory(stage: str, settings: PipelineSettings, partitions: int, *, drain: bool = False) -> StageStart:
    """Return the start of a stage in which all topics have this number of partitions."""
    names = [*(settings.topic(topic.name) for topic in topology.TOPICS), *settings.user_topics.values()]
    return StageStart(topology.stage(stage), settings, dict.fromkeys(names, partitions), drain)
