"""Defines the command line: the table of commands, their exit codes, and how the process exits."""

from __future__ import annotations

import atexit
import contextlib
import difflib
import errno
import importlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

import click

from skewless.cli.interrupts import INTERRUPTED, end_at_once, handled
from skewless.entry_points import package_of
from skewless.errors import BUG, ConfigurationError, RecoverableError, SkewlessError, UnreachableError
from skewless.version import VERSION

CLOSED_PIPE = 141
"""Exit code of a command whose reader closed the pipe, as in `| head`. Shells report the same code after SIGPIPE."""
RESOURCE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""Errors of the machine rather than of this program: disk, memory or file descriptors are exhausted."""
NO_THREAD = "can't start new thread"
"""Message of Python's RuntimeError."""
REPORT = "report it to the maintainers, with the lines above"

PROBLEM_LOCATOR = "skewless.problem_locator"
"""Key in click's `meta` of the function that adds the file to a problem with a setting; set by `load_settings`."""

log = logging.getLogger(__name__)

_interrupts: list[int] = []
"""Signals of Ctrl-C, also if what they interrupt replaces KeyboardInterrupt."""

GROUPS: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "Run Kafka and all stages on this machine with real data, and report.",
        "inspect": "Show the hot keys, skew and times of any topic.",
        "init": "Write a pipeline file for a topic.",
    },
    "Run": {
        "up": "Run all stages of a pipeline on this machine.",
        "run": "Run one stage in the foreground.",
        "stream": "Run a pipeline as a query of Spark instead of stages.",
        "config": "Check or show the configuration of a pipeline.",
        "test": "Compare the results of given records with expected ones.",
        "topics": "Create or verify the topics of a pipeline.",
        "sink": "Show or check the tables of results in a database.",
        "reset": "Remove the results and the state of a pipeline.",
        "join": "Check whether the topics of a join fit together.",
        "produce": "Write a data set into a topic.",
    },
    "See": {
        "status": "Show the lag, event time, load and problems of a pipeline.",
        "top": "Show workers, hot keys and stages of a pipeline live.",
        "results": "Print the results of a pipeline.",
        "dead-letters": "List, show or replay the invalid records of a pipeline.",
        "smoke-test": "Send records through a running pipeline, and check their counts.",
    },
    "Analyse": {
        "simulate": "Run only the groupings on a stream of keys, and measure.",
        "plan": "Recommend a grouping and the number of workers from a sample.",
        "batch": "Compute a pipeline's results from recorded data with Spark.",
        "audit": "Recompute a pipeline's results with Spark, and compare them.",
        "evaluate": "Measure runs of pipelines, and compare them in a report.",
    },
    "This machine": {
        "broker": "Start and stop a Kafka broker on this machine.",
        "completion": "Print a script that completes commands in a shell.",
        "version": "Show the versions of Skewless and of what it uses.",
    },
}
"""Commands and their summaries by section of the help.

`x-y` is the click command `x_y` of the module `cli.commands.x_y`. Without its import, `skewless --help` is fast.
"""
COMMANDS = tuple(name for group in GROUPS.values() for name in group)


class LazyGroup(click.Group):
    """Click group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import and return a command; None if the name is unknown."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        is_program = signal.getsignal(signal.SIGINT) is _interrupt
        with handled(signal.SIGINT, end_at_once) if is_program else contextlib.nullcontext():
            command: click.Command = getattr(importlib.import_module(f"skewless.cli.commands.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the commands and their summaries from the table, a section for each group."""
        for title, entries in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(entries.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command and the remaining arguments. Fails with the closest names if it is unknown."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS and not ctx.resilient_parsing:
            closest = " or ".join(difflib.get_close_matches(args[0], COMMANDS, n=3))
            hint = f", did you mean {closest}?" if closest else "."
            ctx.fail(f"unknown command {args[0]}{hint} `skewless --help` lists all commands.")
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> Any:
        """Run the command line. Without `args` it runs as the program, and this method ends the process."""
        if args is None and signal.getsignal(signal.SIGINT) in {signal.default_int_handler, end_at_once}:
            signal.signal(signal.SIGINT, _interrupt)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a terminal or pipe may not have the characters of a key
        try:
            return super().main(args, *others, **options)
        except SystemExit as end:
            code = CLOSED_PIPE if _is_closed_pipe(end.__context__) else end.code or 0
            if args is None and isinstance(code, int) and any(thread.daemon for thread in threading.enumerate()):
                _end_now(code)
            raise SystemExit(code) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Errors that the user can fix become `error:` lines on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if _interrupts:
                # A Kafka client that is being created replaces KeyboardInterrupt by an error of its own.
                ctx.exit(INTERRUPTED)
            if _is_closed_pipe(error):
                raise  # click replaces stdout, because its last flush would fail again
            ctx.exit(_report(error, ctx.meta.get(PROBLEM_LOCATOR, str)))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    _interrupts.append(number)
    signal.default_int_handler(number, frame)


def _is_closed_pipe(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _report(error: Exception, locate: Callable[[str], str]) -> int:
    """Print the lines of an error that ends a command, and return the exit code."""
    if isinstance(error, SkewlessError) and not isinstance(error, RecoverableError):
        for line in map(locate, error.problems) if isinstance(error, ConfigurationError) else (str(error),):
            click.echo(f"error: {line}", err=True)
        return error.exit_code
    is_exhausted = isinstance(error, MemoryError) or str(error) == NO_THREAD
    if is_exhausted or (isinstance(error, OSError) and error.errno in RESOURCE_ERRORS):
        click.echo(f"error: this machine is out of a resource: {str(error) or 'memory'}", err=True)
        return UnreachableError.exit_code
    return _bug(error)


def _bug(error: Exception) -> int:
    """Log an uncaught exception with its traceback, print the error line after it, and return the exit code."""
    log.critical("uncaught exception", exc_info=error)
    description = f"{type(error).__name__}: {error}".rstrip(": ").replace("\n", " ")
    line = f"this is a bug in skewless {VERSION}: {description}; {REPORT}"
    if package := package_of(error):
        line = f"the code of {package}, which extends skewless, failed: {description}; repair it, see the lines above"
    click.echo(f"error: {line}", err=True)
    return BUG


def _end_now(code: int) -> NoReturn:
    """End the process without freeing its objects.

    A daemon thread may be inside a librdkafka call that never returns. The objects that it uses cannot be freed, and
    the regular shutdown would report objects of compiled modules as leaks, in hundreds of lines after the error.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - the regular shutdown runs them too; atexit has no public function
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


EPILOG = """\b
Examples:
  skewless inspect clicks
  skewless init clicks
  skewless up -f pipeline.yaml

Exit codes: 0 success, 1 a check failed, 2 wrong use or configuration, 3 broker, store or Spark failed,
70 a bug in skewless, 130 interrupted, 141 stdout was closed, 143 terminated.
"""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="%(prog)s %(version)s", prog_name="skewless")
def main() -> None:
    """Count and sum a Kafka topic exactly and fast, however skewed its keys are."""
