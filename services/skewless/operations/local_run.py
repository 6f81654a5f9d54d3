"""Runs the stages of a pipeline on this machine: creates the topics, and registers the processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from skewless import topology
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.running_query import check_no_query
from skewless.errors import ConfigurationError
from skewless.kafka.admin.groups import GroupReader
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local.published_processes import published, registering
from skewless.lab.local.supervisor import Supervisor, process_names
from skewless.operations.running_processes import check_not_running
from skewless.parsing.python_function import require_function


def prepare(
    settings: PipelineSettings,
    file: Path | None,
    *,
    drain: bool,
    logs: Path,
    environ: Mapping[str, str] | None = None,
) -> Supervisor:
    """Create the topics, and return the supervisor of all stages.

    Raises ConfigurationError before that if the function of `splitter.python` does not exist, or if the stages would
    wait without an end with `drain`.

    `file` and `environ`, variables in addition to those of this process, are what the processes load the settings from.
    """
    require_function(settings.splitter.python)
    if drain:
        check_inputs_end(settings)
    topic_plan.apply(settings)
    first = topology.needed_stages(settings)[0]
    # An earlier run has written there, also if its source was empty.
    rerun = drain and any(OffsetReader(settings.kafka).end(settings.topic(first.outputs[0])).values())
    return Supervisor(file, settings, drain=drain, logs=logs, rerun=rerun, environ=environ)


def check_inputs_end(settings: PipelineSettings) -> None:
    """Raise ConfigurationError for a stage that never ran, and has no process, whose end another stage waits for."""
    stages = [stage.name for stage in topology.needed_stages(settings)]
    awaited = set[str]().union(*(topology.upstream(stage) for stage in stages if settings.replicas.of(stage)))
    without_process = [stage for stage in stages if stage in awaited and not settings.replicas.of(stage)]
    if not without_process:
        return
    groups = GroupReader(settings.kafka)
    problems = [
        f"replicas.{stage}: is 0, so the stages after it would wait without an end: set 1, or start `skewless run "
        f"{stage} --drain` before"
        for stage in without_process
        # The group of a stage that ran, here or elsewhere, has offsets: the stage may have ended.
        if groups.describe(settings.group(stage)).state == "Dead"
    ]
    if problems:
        raise ConfigurationError(*problems)


@contextlib.contextmanager
def registered(
    settings: PipelineSettings, supervisor: Supervisor, note: Callable[[str], None], *, take_over: bool
) -> Iterator[None]:
    """Publish the processes on this machine until the end of the block.

    Raises FencedError if a query of Spark runs in their place, or, unless `take_over`, if one of them runs already.
    `note` receives a line for each process that was last on another machine.
    """
    check_no_query(settings)
    ports = {name: replica.metrics_port for name, replica in supervisor.processes.items()}
    with contextlib.ExitStack() as stack:
        with registering(settings):
            for line in () if take_over else check_not_running(settings, process_names(settings)):
                note(line)
            stack.enter_context(published(settings, ports))
        yield
