"""Implements `skewless simulate`: runs only the groupings on a recorded stream and measures them."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from skewless.cli.options import FiniteFloat, load_settings, no_progress, optional_pipeline_file, writing
from skewless.errors import ConfigurationError

if TYPE_CHECKING:
    from skewless.algorithms.grouping import GroupingOptions

MAX_WINDOW_S = 315_360_000_000

_EPILOG = """\b
FILE has lines `time_ms TAB key` or `time_ms TAB key TAB count`. Load is measured in tuples, so the count is ignored.
It may be compressed (.zst, .gz, .bz2, .lz4); `-` is standard input. --json prints one line per run.

\b
Examples:
  skewless simulate --input ticks.tsv.zst --grouping all --workers 10,50
  skewless simulate --input ticks.tsv --grouping key --workers 8 --assignments workers.txt --json
"""


@click.command(epilog=_EPILOG)
@click.option("--input", "path", required=True, metavar="FILE", help="File to read; - is standard input.")
@click.option(
    "--grouping", "groupings", multiple=True, required=True, help="Groupings to run: a name, a,b or all; repeatable."
)
@click.option(
    "--workers", multiple=True, required=True, metavar="W", help="Numbers of workers: 10 or 10,50; repeatable."
)
@click.option(
    "--routers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of routers; tuples are sent to them in turn.",
)
@click.option("--rules", type=click.Choice(["published", "reference"]), help="Rules that dynamic_key follows.")
@click.option(
    "--clock",
    type=click.Choice(["event", "processing"]),
    default="event",
    show_default=True,
    help="Time that a grouping uses: the times of the lines, or wall-clock time.",
)
@click.option(
    "--window",
    "window_s",
    type=FiniteFloat(0.001, MAX_WINDOW_S),
    default=60,
    show_default=True,
    help="Length of a window in seconds.",
)
@click.option(
    "--local",
    "local_tuples",
    type=click.IntRange(1, 10_000_000),
    metavar="TUPLES",
    help="Aggregate so many tuples of each router to one row per key and pane before they are routed. Default: "
    "only for the grouping local, with 20,000.",
)
@optional_pipeline_file
@click.option(
    "--option", "assigned", multiple=True, metavar="NAME=VALUE", help="A setting of router.*; overrides the file of -f."
)
@click.option(
    "--assignments",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT",
    help="File for the worker of each line, one per line; needs one grouping and one number of workers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per run.")
@no_progress
def simulate(  # noqa: PLR0913 - click passes an argument per option
    *,
    path: str,
    groupings: tuple[str, ...],
    workers: tuple[str, ...],
    routers: int,
    rules: str | None,
    clock: str,
    window_s: float,
    local_tuples: int | None,
    file: Path | None,
    assigned: tuple[str, ...],
    assignments: Path | None,
    as_json: bool,
) -> None:
    """Run only the groupings on a stream of keys, and measure the load balance and its cost."""
    from skewless.cli import simulate_run
    from skewless.lab.progress import report_progress
    from skewless.lab.simulation.candidates import candidates_of
    from skewless.lab.simulation.simulation import Simulation, SimulationConfig
    from skewless.lab.simulation.tsv_reader import batches, open_source
    from skewless.stages.worker.settings import DEFAULT_PANE_MS

    config = SimulationConfig(
        _options(file, assigned, rules, clock),
        routers,
        round(window_s * 1000),
        local_tuples=local_tuples or 0,
        longest_pane_ms=DEFAULT_PANE_MS if file is None else load_settings(file).pane_ms,
    )
    runs = list(itertools.product(*candidates_of(groupings, workers, prefix="--")))
    if assignments is not None and len(runs) > 1:
        raise ConfigurationError(
            f"--assignments: there are {len(runs)} runs; give one grouping and one number of workers"
        )
    simulation = Simulation(runs, config)
    with (
        open_source(path) as source,
        _writer(assignments, path, runs[0][1]) as write,
        report_progress("simulating", source.size, time.monotonic(), unit="bytes") as progress,
    ):
        for lines in batches(source, simulation.rows):
            write(simulation.add(lines.keys, lines.times, now=time.time_ns() // 1_000_000))
            progress(time.monotonic(), source.position)
        results = [measures | {"window_s": config.window_ms / 1000} for measures in simulation.facts()]
        if not results[0]["tuples"]:
            raise ConfigurationError(f"{source.name}: is empty; give a file of `time_ms TAB key` lines")
    if as_json:
        for result in results:
            click.echo(json.dumps(result))
    else:
        simulate_run.show(results)


def _options(file: Path | None, assigned: Sequence[str], rules: str | None, clock: str) -> GroupingOptions:
    """Return the options of the groupings: those of the pipeline's file, overridden by the command line."""
    from skewless.algorithms.grouping import GroupingOptions, options_of

    document: dict[str, Any] = {}
    if file is not None:
        document = load_settings(file).router.model_dump(include=set(GroupingOptions.model_fields))
    given = [("clock", clock), *map(_name_and_value, assigned)] + ([("dynamic_key.rules", rules)] if rules else [])
    for name, value in given:
        _put(document, name.split("."), value)
    return options_of(document, prefix="--option")


def _name_and_value(text: str) -> tuple[str, Any]:
    from skewless.config.loader import value_of

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"--option: {text!r} is not NAME=VALUE, such as clock=event")
    return name.removeprefix("router."), value_of(value)


def _put(document: dict[str, Any], names: Sequence[str], value: Any) -> None:
    for name in names[:-1]:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise ConfigurationError(f"--option: {'.'.join(names)}: {name} has no settings below it")
    document[names[-1]] = value


@contextlib.contextmanager
def _writer(path: Path | None, source: str, workers: int) -> Iterator[Callable[[Sequence[Any]], None]]:
    """Yield a function that writes the workers of a batch to the file, or does nothing if `path` is None.

    After an error the file is removed, because it is not complete.
    """
    if path is None:
        yield lambda _: None
        return
    lines = [b"%d\n" % worker for worker in range(workers)]
    with writing("--assignments", path):
        if path.exists() and Path(source).exists() and path.samefile(source):
            raise ConfigurationError(f"--assignments: {path} is the input; name another file")
        with path.open("wb") as file:
            try:
                yield lambda workers_by_run: _write(file, lines, workers_by_run[0].tolist())
            except BaseException:
                # A link may be /dev/stdout.
                if path.is_file() and not path.is_symlink():
                    path.unlink()
                raise


def _write(file: IO[bytes], lines: list[bytes], workers: list[int]) -> None:
    file.write(b"".join(map(lines.__getitem__, workers)))
