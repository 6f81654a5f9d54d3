"""`skewless broker`: a real Kafka on this machine, without Docker."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import click

from skewless.commands.options import writable_folder
from skewless.local import keeper, template
from skewless.local.folders import exclusive


@click.group()
def broker() -> None:
    """Run Apache Kafka on this machine (KRaft, one node, loopback only)."""


@broker.command()
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Keep the data in DIR. Default: temporary."
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port for clients. Default: a free one.")
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C instead of returning once it answers.")
def start(data: Path | None, port: int | None, foreground: bool) -> None:  # noqa: FBT001 - click passes flags so
    """Start the broker, unless it runs, and print its address.

    \b
    Example:
      export KAFKA_BOOTSTRAP_SERVERS=$(skewless broker start)
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    folder = data.absolute() if data else None
    if folder is not None:
        writable_folder("--data", folder)
    with contextlib.ExitStack() as starting:
        starting.enter_context(exclusive(keeper.start_lock()))
        if state := keeper.running():
            click.echo("the broker is running already", err=True)
            click.echo(state.address)
            return
        template.template()  # here, not in the keeper, so that its progress is seen
        if not foreground:
            click.echo(keeper.detach(folder, port).address)
            return

        def ready(state: keeper.State) -> None:
            starting.close()
            click.echo(state.address)
            click.echo("Ctrl-C stops it", err=True)

        with contextlib.suppress(KeyboardInterrupt):
            keeper.keep(folder, port, ready)


@broker.command()
def stop() -> None:
    """Stop the broker; its data are removed unless it was started with --data."""
    state = keeper.stop()
    click.echo(f"stopped the broker at {state.address}" if state else "no broker is running", err=True)


@broker.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:  # noqa: FBT001 - click passes flags so
    """Say whether the broker runs, and where; exit code 1 when it does not."""
    state = keeper.running()
    facts = {"running": bool(state)} | (state._asdict() if state else {})
    facts.pop("started", None)
    if as_json:
        click.echo(json.dumps(facts))
    else:
        for name, value in facts.items():
            click.echo(f"{name:8} {str(value).lower() if value is True or value is False else value}")
    context.exit(0 if state else 1)
