"""`skewless up`: a whole pipeline on this machine."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skewless.cli import INTERRUPTED
from skewless.commands.options import load_settings, pipeline_file, writable_folder

if TYPE_CHECKING:
    from skewless.local.supervisor import Event, Supervisor

TICK_S = 0.1


@click.command()
@pipeline_file
@click.option("--drain", is_flag=True, help="End (exit 0) once everything up to the end of the source is processed.")
@click.option(
    "--logs", type=click.Path(path_type=Path, file_okay=False), help="Folder of the logs. [default: a new one]"
)
@click.option("-v", "--verbose", is_flag=True, help="Show the stages' output too, each line with its stage.")
def up(file: Path | None, logs: Path | None, *, drain: bool, verbose: bool) -> None:
    """Create the topics, then run every stage as processes of its own; restart what dies, until Ctrl-C or SIGTERM.

    How many processes each stage has is set by `replicas` in the pipeline file.

    \b
    Example:
      skewless up -f pipeline.yaml --logs logs
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    settings = load_settings(file)
    from skewless.local.supervisor import Supervisor
    from skewless.transport import topics
    from skewless.transport.positions import Positions

    if logs is not None:
        writable_folder("--logs", logs)
    topics.apply(settings)
    logs = logs or Path(tempfile.mkdtemp(prefix=f"skewless-{settings.name}-"))
    click.echo(f"pipeline {settings.name}, logs in {logs}")
    rerun = drain and Positions(settings.kafka).has_run(settings)
    supervisor = Supervisor(file, settings, drain=drain, logs=logs, rerun=rerun)
    follow = _Follower(supervisor) if verbose else None
    click.get_current_context().exit(supervise(supervisor, _show, follow))


def supervise(
    supervisor: Supervisor, show: Callable[[Event], None], each_tick: Callable[[], None] | None = None
) -> int:
    """Run the supervisor until all is done or a signal comes; return the exit code: 0, or 130 after SIGINT.

    The processes are stopped whatever happens. Call it from the main thread: it handles SIGINT and SIGTERM.
    """
    signals: list[int] = []
    before = {
        number: signal.signal(number, lambda received, _: signals.append(received))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        supervisor.start()
        for replica in supervisor.processes.values():
            click.echo(f"{replica.name}: pid {replica.pid}, metrics on port {replica.metrics_port}")
        while not signals and not supervisor.done:
            for event in supervisor.poll(time.monotonic()):
                show(event)
            if each_tick:
                each_tick()
            time.sleep(TICK_S)
    finally:
        supervisor.stop()
        if each_tick:
            each_tick()
        for number, handler in before.items():
            signal.signal(number, handler)
    return INTERRUPTED if signal.SIGINT in signals else 0


def _show(event: Event) -> None:
    spoken = event.kind in {"ended", "again"}
    click.echo(f"{event.name} {event.detail}" if spoken else f"{event.name}: {event.kind}, {event.detail}")


class _Follower:
    """Prints what the processes have added to their logs since the last call, whole lines only."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._logs = {replica.name: replica.log for replica in supervisor.processes.values()}
        self._width = max(map(len, self._logs), default=0)
        self._read = {name: log.stat().st_size if log.exists() else 0 for name, log in self._logs.items()}

    def __call__(self) -> None:
        for name, log in self._logs.items():
            if not log.exists():
                continue
            with log.open("rb") as file:
                file.seek(self._read[name])
                lines = file.read().rpartition(b"\n")[0]
            self._read[name] += len(lines) + 1 if lines else 0
            for line in lines.decode(errors="replace").splitlines():
                click.echo(f"{name:{self._width}} | {line}")
