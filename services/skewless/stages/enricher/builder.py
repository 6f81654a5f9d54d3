"""The enricher's builder."""

from __future__ import annotations

from functools import partial

from skewless.config.stage_start import StageStart
from skewless.engine.executor import StepExecutor
from skewless.errors import ConfigurationError
from skewless.schema_registry.settings import REGISTRY
from skewless.stages.built_stage import BuiltStage, Dependency, Process
from skewless.stages.enricher.follower import TableFollower
from skewless.stages.enricher.step import EnricherStep
from skewless.stages.enricher.table import Table
from skewless.stages.schema_fetches import with_schemas


def build(start: StageStart) -> BuiltStage:
    """Build the enricher from its settings. Its tables are empty until its dependency is there."""
    settings = start.settings.enrich
    if settings is None:
        raise ConfigurationError("enrich: is required for the stage enricher; set enrich.topic and enrich.tables")
    tables = [Table(table) for table in settings.tables]
    follower = TableFollower(start.settings.kafka, tables, start.report_wait)

    def process(executor: StepExecutor) -> Process:
        return partial(executor.process, before_step=follower.before_step)

    step = EnricherStep(settings, tables)
    step.table_waits = lambda: follower.waiting
    processor, _ = with_schemas({None: step.parser}, step, process)
    caches = [cache for parser in (step.parser, *(table.parser for table in tables)) for cache in parser.schemas]

    def wait() -> None:
        for cache in caches[:1]:  # all caches have the same registry
            cache.wait()
        follower.load()

    names = ", ".join(table.topic for table in tables)
    return BuiltStage(
        step,
        processor=processor,
        dependency=Dependency(REGISTRY if caches else f"table {names}", wait),
        tables={table.topic: table.update for table in tables},
    )
