"""Implements `skewless up`: runs all stages of a pipeline on this machine."""

from __future__ import annotations

import re
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skewless.cli.interrupts import INTERRUPTED, TERMINATED, received_signals
from skewless.cli.options import (
    load_settings,
    pipeline_file,
    remove_if_empty,
    take_over,
    writable_file,
    writable_folder,
)

if TYPE_CHECKING:
    from skewless.lab.local.supervisor import Event, Supervisor

TICK_S = 0.1
_WARNING = re.compile(r"\S+ \S+ WARNING (?:\S+ )?skewless\.(?:parsing|stages|sql)\.\S+: (.*)")
"""A line of a log with a warning of records or a database. For Kafka, `BrokerWatch` has one line for all processes."""


@click.command()
@pipeline_file
@click.option("--drain", is_flag=True, help="Process the records that the source has now, and exit with 0.")
@click.option(
    "--log-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the logs. [default: a temporary folder]",
)
@click.option("-v", "--verbose", is_flag=True, help="Also print the logs of the stages, each line with its process.")
@take_over
def up(file: Path | None, log_dir: Path | None, *, drain: bool, verbose: bool, take_over: bool) -> None:
    """Create the topics, then run every stage in its own processes until Ctrl-C or SIGTERM. Restart failed processes.

    The setting `replicas` in the pipeline file is the number of processes of each stage. Ends with exit code 3 if one
    of the processes runs already: on this machine by the same user, or on another one where it answers at
    `metrics.port`.

    It prints the warnings of stages about records and databases. At the end, it prints the numbers of records,
    results, late tuples and invalid records. With --drain, it exits with 1 if no record is in a result because all are
    late or invalid.

    \b
    Example:
      skewless up -f pipeline.yaml --log-dir logs
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.cli.up_counts import print_counts, warning_of_rejected_records
    from skewless.kafka.broker_watch import BrokerWatch
    from skewless.lab.local.supervisor import process_names
    from skewless.operations.local_run import prepare, registered
    from skewless.operations.run_counts import RunCounter

    if log_dir is None:
        log_dir = Path(tempfile.mkdtemp(prefix=f"skewless-{settings.name}-"))
        remove_if_empty([log_dir])
    else:
        writable_folder("--log-dir", log_dir)
        for name in (*process_names(settings), "host"):
            writable_file("--log-dir", log_dir / f"{name}.log")
    supervisor = prepare(settings, file, drain=drain, logs=log_dir)
    follow, watch = _Follower(supervisor, verbose=verbose), BrokerWatch(settings.kafka)

    def each_tick() -> None:
        if line := watch.poll():
            click.echo(line)
        follow()

    def note(line: str) -> None:
        click.echo(f"note: {line}", err=True)

    counter = RunCounter(settings)
    with registered(settings, supervisor, note, take_over=take_over), warning_of_rejected_records(settings, watch):
        click.echo(f"pipeline {settings.name}, logs in {log_dir}")
        code = supervise(supervisor, _show, each_tick, on_sigterm=TERMINATED if drain else 0)
    print_counts(counter, settings, drain=drain and not code)
    click.get_current_context().exit(code)


def supervise(
    supervisor: Supervisor, show: Callable[[Event], None], each_tick: Callable[[], None], *, on_sigterm: int
) -> int:
    """Run the supervisor until all stages are finished or a signal arrives.

    Returns the exit code: 0 if they are finished, 130 after SIGINT, `on_sigterm` after SIGTERM. Stops the processes
    also after an error. Must be called from the main thread, because it handles SIGINT and SIGTERM.
    """
    with received_signals() as signals:
        try:
            supervisor.start()
            for replica in supervisor.processes.values():
                click.echo(f"{replica.name}: pid {replica.pid}, metrics on port {replica.metrics_port}")
            while not signals and not supervisor.done:
                for event in supervisor.poll(time.monotonic()):
                    show(event)
                each_tick()
                time.sleep(TICK_S)
            if supervisor.done:
                return 0
        finally:
            supervisor.stop()
            each_tick()
    return INTERRUPTED if signal.SIGINT in signals else on_sigterm


def _show(event: Event) -> None:
    is_sentence = event.kind == "ended"
    click.echo(f"{event.name} {event.detail}" if is_sentence else f"{event.name}: {event.kind}, {event.detail}")


class _Follower:
    """Prints the lines that the processes have added to their logs since the last call: all, or the warnings."""

    def __init__(self, supervisor: Supervisor, *, verbose: bool) -> None:
        self._verbose = verbose
        self._logs = {replica.name: replica.log for replica in supervisor.processes.values()}
        self._width = max(map(len, self._logs), default=0)
        self._offsets = {name: log.stat().st_size if log.exists() else 0 for name, log in self._logs.items()}

    def __call__(self) -> None:
        for name, log in self._logs.items():
            if not log.exists() or log.stat().st_size <= self._offsets[name]:
                continue
            with log.open("rb") as file:
                file.seek(self._offsets[name])
                lines = file.read().rpartition(b"\n")[0]  # without a last line that is still being written
            self._offsets[name] += len(lines) + 1 if lines else 0
            for line in lines.decode(errors="replace").splitlines():
                if self._verbose:
                    click.echo(f"{name:{self._width}} | {line}")
                elif found := _WARNING.fullmatch(line):
                    click.secho(f"warning: {name}: {found[1]}", fg="yellow")
