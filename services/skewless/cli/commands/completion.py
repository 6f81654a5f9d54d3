"""Implements `skewless completion`: prints the script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from skewless.cli.main import main

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and file names in a shell.

    \b
    Examples:
      eval "$(skewless completion bash)"
      eval "$(skewless completion zsh)"
      skewless completion fish > ~/.config/fish/completions/skewless.fish
    """  # noqa: D301 - \b is click's marker for unwrapped text
    click.echo(SHELLS[shell](main, {}, "skewless", "_SKEWLESS_COMPLETE").source())
