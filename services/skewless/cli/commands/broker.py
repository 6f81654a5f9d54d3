"""Implements `skewless broker`: runs Apache Kafka on this machine, without Docker."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import click

from skewless.cli.options import writable_folder
from skewless.errors import ConfigurationError
from skewless.lab.local import broker_daemon, formatted_storage_cache
from skewless.lab.local.folders import file_lock


@click.group()
def broker() -> None:
    """Run Apache Kafka on this machine (KRaft, one node, loopback only)."""


@broker.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps the data. Default: a temporary folder.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port for clients. Default: a free port.")
@click.option("--foreground", is_flag=True, help="Run until Ctrl-C. Default: return as soon as the broker answers.")
def start(data: Path | None, port: int | None, foreground: bool) -> None:  # noqa: FBT001 - click passes flags as keyword arguments
    """Start the broker if it is not running, and print its address.

    \b
    Example:
      export KAFKA_BOOTSTRAP_SERVERS=$(skewless broker start)
    """  # noqa: D301 - \b is click's marker for unwrapped text
    folder = data.absolute() if data else None
    with contextlib.ExitStack() as starting:
        starting.enter_context(file_lock(broker_daemon.start_lock()))
        if state := broker_daemon.running():
            other_folder = folder is not None and folder.resolve() != Path(state.folder).resolve()
            other_port = port is not None and state.address != f"127.0.0.1:{port}"
            if other_folder or other_port or foreground:
                raise ConfigurationError(
                    f"a broker with its data in {state.folder} runs at {state.address}: stop it first with "
                    "`skewless broker stop`, or leave out --data, --port and --foreground to use it"
                )
            click.echo("the broker is already running", err=True)
            click.echo(state.address)
            return
        if folder is not None:
            writable_folder("--data", folder)
        formatted_storage_cache.template()  # in this process rather than in the daemon, so that its progress is shown
        if not foreground:
            click.echo(broker_daemon.start_daemon(folder, port).address)
            return

        def ready(state: broker_daemon.State) -> None:
            starting.close()
            click.echo(state.address)
            click.echo("press Ctrl-C to stop it", err=True)

        with contextlib.suppress(KeyboardInterrupt):
            broker_daemon.run_daemon(folder, port, ready)


@broker.command()
def stop() -> None:
    """Stop the broker. Remove its data, unless it was started with --data."""
    state = broker_daemon.stop()
    click.echo(f"stopped the broker at {state.address}" if state else "no broker is running", err=True)


@broker.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:  # noqa: FBT001 - click passes flags as keyword arguments
    """Print whether the broker is running, and its address.

    Exits with 1 if it is not running.
    """
    state = broker_daemon.running()
    shown = {"address": state.address, "pid": state.pid, "folder": state.folder} if state else {}
    report = {"running": bool(state), **shown}
    if as_json:
        click.echo(json.dumps(report))
    else:
        for name, value in report.items():
            click.echo(f"{name:8} {str(value).lower() if value is True or value is False else value}")
    context.exit(0 if state else 1)
