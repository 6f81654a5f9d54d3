"""Defines the command line: the table of commands, their exit codes, and how the process exits."""

from __future__ import annotations

import atexit
import contextlib
import difflib
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
from skewless.errors import BUG, ConfigurationError, RecoverableError, SkewlessError, UnreachableError

INTERRUPTED = 130
CLOSED_PIPE = 141
"""Exit code of a command whose reader closed the pipe, as in `| head`. Shells report the same code after SIGPIPE."""
RESOURCE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""Errors of the machine rather than of this program: disk, memory or file descriptors are exhausted."""
REPORT = "report it to the maintainers, with the lines above"

PROBLEM_LOCATOR = "skewless.problem_locator"
"""Key in click's `meta` of the function that adds the file to a problem with a setting; set by `load_settings`."""

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A command that is imported on first use, so that `skewless --help` imports no command."""

    target: str
    """`module:attribute` of the click command."""
    summary: str


GROUPS: dict[str, dict[str, Entry]] = {
    "Start": {
        "demo": Entry("skewless.cli.demo:demo", "Run Kafka and all stages on this machine with real data, and report."),
        "inspect": Entry("skewless.cli.inspect_command:inspect", "Show the hot keys, skew and times of any topic."),
        "init": Entry("skewless.cli.init_command:init", "Write a pipeline file for a topic."),
    },
    "Run": {
        "up": Entry("skewless.cli.up:up", "Run all stages of a pipeline on this machine."),
        "run": Entry("skewless.cli.run:run", "Run one stage in the foreground."),
        "config": Entry("skewless.cli.config_command:config", "Check or show the configuration of a pipeline."),
        "topics": Entry("skewless.cli.topics_command:topics", "Create or verify the topics of a pipeline."),
        "sink": Entry("skewless.cli.sink_command:sink", "Show or check the tables of results in a database."),
        "reset": Entry("skewless.cli.reset:reset", "Remove the results and the state of a pipeline."),
        "join": Entry("skewless.cli.join_command:join", "Check whether the topics of a join fit together."),
        "produce": Entry("skewless.cli.produce:produce", "Write a data set into a topic."),
    },
    "See": {
        "status": Entry("skewless.cli.status:status", "Show the lag, event time, load and problems of a pipeline."),
        "top": Entry("skewless.cli.top:top", "Show workers, hot keys and stages of a pipeline live."),
        "results": Entry("skewless.cli.results:results", "Print the results of a pipeline."),
        "dead-letters": Entry(
            "skewless.cli.dead_letters_command:dead_letters", "List, show or replay the invalid records of a pipeline."
        ),
        "smoke-test": Entry(
            "skewless.cli.smoke_test_command:smoke_test",
            "Send records through a running pipeline, and check their counts.",
        ),
    },
    "Analyse": {
        "simulate": Entry("skewless.cli.simulate:simulate", "Run only the groupings on a stream of keys, and measure."),
        "plan": Entry("skewless.cli.plan:plan", "Recommend a grouping and the number of workers from a sample."),
        "batch": Entry("skewless.cli.batch:batch", "Compute a pipeline's results from recorded data with Spark."),
        "audit": Entry("skewless.cli.audit:audit", "Recompute a pipeline's results with Spark, and compare them."),
        "evaluate": Entry("skewless.cli.evaluate:evaluate", "Measure runs of pipelines, and compare them in a report."),
    },
    "This machine": {
        "broker": Entry("skewless.cli.broker_command:broker", "Start and stop a Kafka broker on this machine."),
        "completion": Entry("skewless.cli.completion:completion", "Print a script that completes commands in a shell."),
        "version": Entry("skewless.cli.version:version", "Show the versions of Skewless and of what it uses."),
    },
}
"""Commands by section of the help."""
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


class LazyGroup(click.Group):
    """Click group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import and return a command; None if the name is unknown."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the commands and their summaries from the table, a section for each group."""
        for title, entries in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])

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
        except RecoverableError as error:
            ctx.exit(_bug(error))
        except SkewlessError as error:
            locate = ctx.meta.get(PROBLEM_LOCATOR, str)
            for line in map(locate, error.problems) if isinstance(error, ConfigurationError) else (str(error),):
                click.echo(f"error: {line}", err=True)
            ctx.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if _is_closed_pipe(error):
                raise  # click replaces stdout, because its last flush would fail again
            if isinstance(error, OSError) and error.errno in RESOURCE_ERRORS:
                click.echo(f"error: this machine is out of a resource: {error}", err=True)
                ctx.exit(UnreachableError.exit_code)
            ctx.exit(_bug(error))


def _is_closed_pipe(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _bug(error: Exception) -> int:
    """Log an uncaught exception with its traceback, print the error line after it, and return the exit code."""
    log.critical("uncaught exception", exc_info=error)
    description = f"{type(error).__name__}: {error}".rstrip(": ").replace("\n", " ")
    click.echo(f"error: this is a bug in skewless {__version__}: {description}; {REPORT}", err=True)
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
70 a bug in skewless, 130 interrupted, 141 stdout was closed.
"""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="skewless")
def main() -> None:
    """Count and sum a Kafka topic exactly and fast, however skewed its keys are."""
