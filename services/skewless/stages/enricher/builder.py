"""The enricher's builder."""

from __future__ import annotations

from functools import partial

from skewless.config.stage_start import StageStart
from skewless.engine.executor import StepExecutor
from skewless.errors import ConfigurationError
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
    follower = TableFollower(start.settings.kafka, tables)

    def process(executor: StepExecutor) -> Process:
        return partial(executor.process, before_step=follower.before_step)

    step = EnricherStep(settings, tables)
    processor, registry = with_schemas({None: step.parser}, step, process)

    def wait() -> None:
        if registry is not None:
            registry.wait()
        follower.load()

    names = ", ".join(table.topic for table in tables)
    return BuiltStage(
        step,
        processor=processor,
        dependency=Dependency(f"table {names}", wait),
        tables={table.topic: table.update for table in tables},
    )
