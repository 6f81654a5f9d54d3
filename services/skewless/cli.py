"""The command line: the table of commands, the exit codes, and the end of the process."""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib
import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import click

from skewless import __version__
from skewless.errors import BUG, ConfigurationError, SkewlessError, UnreachableError

INTERRUPTED = 130
CLOSED_PIPE = 141
"""Exit code of a command whose reader has closed the pipe, as in `| head`; a shell shows the same after SIGPIPE."""
EXHAUSTED = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""Errors of the machine, not of this program: no disk, memory or file descriptors left."""
REPORT = "report it to the maintainers, with the lines above"

PLACED = "skewless.placed"
"""Key in click's `meta` of what puts the file before a problem with a setting: set once the settings are loaded."""

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A command that is imported when it is used, so that `skewless --help` needs none of them."""

    target: str
    """`module:attribute` of the click command."""
    summary: str


COMMANDS = {
    "demo": Entry("skewless.commands.demo:demo", "Run everything on this machine with a real data set, and report."),
    "up": Entry("skewless.commands.up:up", "Run all stages of a pipeline on this machine."),
    "run": Entry("skewless.commands.run:run", "Run one stage in the foreground."),
    "config": Entry("skewless.commands.config:config", "Check or show the configuration of a pipeline."),
    "topics": Entry("skewless.commands.topics:topics", "Create or verify the topics of a pipeline."),
    "produce": Entry("skewless.commands.produce:produce", "Write a data set into a topic."),
    "simulate": Entry("skewless.commands.simulate:simulate", "Run groupings alone on a stream of keys, and measure."),
    "batch": Entry("skewless.commands.batch:batch", "Compute a pipeline's answer on history, by Spark."),
    "audit": Entry("skewless.commands.audit:audit", "Compute a pipeline's answer again, and compare."),
    "evaluate": Entry("skewless.commands.evaluate:evaluate", "Measure runs of pipelines, compare them in a report."),
    "plan": Entry("skewless.commands.plan:plan", "Recommend grouping and W for a topic, by running all on a sample."),
    "broker": Entry("skewless.commands.broker:broker", "Start and stop a Kafka broker on this machine."),
}


class LazyGroup(click.Group):
    """A group whose commands are listed without being imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> Any:
        """Run the command line; without `args` this is the whole process, which ends here."""
        try:
            return super().main(args, *others, **options)
        except SystemExit as end:
            code = CLOSED_PIPE if _is_closed_pipe(end.__context__) else end.code or 0
            if args is None and isinstance(code, int) and any(thread.daemon for thread in threading.enumerate()):
                _end_now(code)
            raise SystemExit(code) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what the user has to act on becomes `error:` lines on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except SkewlessError as error:
            place = ctx.meta.get(PLACED, str)
            for line in map(place, error.problems) if isinstance(error, ConfigurationError) else (str(error),):
                click.echo(f"error: {line}", err=True)
            ctx.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if _is_closed_pipe(error):
                raise  # click makes stdout harmless, whose last flush would fail again
            if isinstance(error, OSError) and error.errno in EXHAUSTED:
                click.echo(f"error: this machine has not enough for it: {error}", err=True)
                ctx.exit(UnreachableError.exit_code)
            ctx.exit(_bug(error))


def _is_closed_pipe(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _bug(error: Exception) -> int:
    """Log an uncaught exception with its traceback, print the error line behind it, and return the exit code."""
    log.critical("uncaught exception", exc_info=error)
    what = f"{type(error).__name__}: {error}".rstrip(": ").replace("\n", " ")
    click.echo(f"error: this is a bug in skewless {__version__}: {what}; {REPORT}", err=True)
    return BUG


def _end_now(code: int) -> NoReturn:
    """End the process without freeing its objects.

    A daemon thread may be inside a call of librdkafka that never returns, and what it holds cannot be freed. Python's
    own shutdown would report the objects of compiled modules as leaks, in hundreds of lines behind the error.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - what a usual end runs too; it has no public name
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


EPILOG = """\b
Examples:
  skewless config check -f pipeline.yaml
  skewless topics apply -f pipeline.yaml
  skewless up -f pipeline.yaml

Exit codes: 0 fine, 1 the check failed, 2 wrong use or configuration, 3 broker, store or Spark failed,
70 a bug in skewless, 130 interrupted, 141 stdout was closed.

\b
Shell completion (bash, zsh, fish):
  eval "$(_SKEWLESS_COMPLETE=bash_source skewless)"
  eval "$(_SKEWLESS_COMPLETE=zsh_source skewless)"
  _SKEWLESS_COMPLETE=fish_source skewless | source
"""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="skewless")
def main() -> None:
    """Count and sum a Kafka topic exactly and fast, however skewed its keys are."""
