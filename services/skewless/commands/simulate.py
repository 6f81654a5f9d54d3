"""`skewless simulate`: groupings alone on a recorded stream, measured."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from skewless.commands.candidates import candidates_of
from skewless.commands.options import Finite, load_settings, pipeline_file
from skewless.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from skewless.algorithms.grouping import GroupingOptions

MOST_WINDOW_S = 315_360_000_000

_EPILOG = """\b
FILE has lines `time_ms TAB key` or `time_ms TAB key TAB count`; load is tuples, so the count plays no part.
It may be compressed (.zst, .gz, .bz2, .lz4); `-` is standard input. --json prints a line per run.

\b
Examples:
  skewless simulate --input ticks.tsv.zst --grouping all --workers 10,50
  skewless simulate --input ticks.tsv --grouping key --workers 8 --assignments workers.txt --json
"""


@click.command(epilog=_EPILOG)
@click.option("--input", "path", required=True, metavar="FILE", help="Lines to read; - is standard input.")
@click.option(
    "--grouping", "groupings", multiple=True, required=True, help="Grouping, or several (a,b), or all; repeatable."
)
@click.option("--workers", multiple=True, required=True, metavar="W", help="W, or several (10,50); repeatable.")
@click.option("--routers", type=click.IntRange(1, 64), default=1, show_default=True, help="Tuples go to them in turn.")
@click.option("--rules", type=click.Choice(["published", "reference"]), help="Which rules dynamic_key follows.")
@click.option(
    "--clock",
    type=click.Choice(["event", "processing"]),
    default="event",
    show_default=True,
    help="What a grouping's own time follows: the lines' times, or the clock on the wall.",
)
@click.option("--window", "window_s", type=Finite(0.001, MOST_WINDOW_S), default=60, show_default=True, help="Seconds.")
@pipeline_file
@click.option("--option", "chosen", multiple=True, metavar="NAME=VALUE", help="A setting of router.*; wins over FILE.")
@click.option(
    "--assignments",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT",
    help="Write the worker of each line, one per line; for one grouping and one W.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per run.")
def simulate(  # noqa: PLR0913 - click passes an argument per option
    *,
    path: str,
    groupings: tuple[str, ...],
    workers: tuple[str, ...],
    routers: int,
    rules: str | None,
    clock: str,
    window_s: float,
    file: Path | None,
    chosen: tuple[str, ...],
    assignments: Path | None,
    as_json: bool,
) -> None:
    """Run groupings alone on a stream of keys: how even the load is, and what that costs."""
    from skewless.commands import simulate_run
    from skewless.simulation.candidate import Setup
    from skewless.simulation.lines import batches, open_source
    from skewless.simulation.replay import Simulation
    from skewless.simulation.replay import simulate as replay

    setup = Setup(_options(file, chosen, rules, clock), routers, round(window_s * 1000))
    runs = list(itertools.product(*candidates_of(groupings, workers)))
    if assignments is not None and len(runs) > 1:
        raise ConfigurationError(
            f"--assignments: there are {len(runs)} runs; give one grouping and one number of workers"
        )
    simulation = Simulation(runs, setup)
    with open_source(path) as source, _writer(assignments, path, runs[0][1]) as write:
        stream = batches(source, simulation.rows)
        if not as_json:
            stream = simulate_run.shown(source, stream)
        facts = replay(simulation, stream, write)
    if not facts[0]["tuples"]:
        raise ConfigurationError(f"{source.name}: is empty; give a file of `time_ms TAB key` lines")
    if as_json:
        for line in facts:
            click.echo(json.dumps(line))
    else:
        simulate_run.show(facts)


def _options(file: Path | None, chosen: Sequence[str], rules: str | None, clock: str) -> GroupingOptions:
    """Put the options of the groupings together: of the pipeline's file, then those chosen here."""
    from pydantic import ValidationError

    from skewless.algorithms.grouping import GroupingOptions

    document: dict[str, Any] = {}
    if file is not None:
        document = load_settings(file).router.model_dump(include=set(GroupingOptions.model_fields))
    here = [("clock", clock), *map(_assignment, chosen)] + ([("dynamic_key.rules", rules)] if rules else [])
    for name, value in here:
        _put(document, name.split("."), value)
    try:
        return GroupingOptions.model_validate(document)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    raise ConfigurationError(*(f"--option: {'.'.join(map(str, p['loc']))}: {_message(p)}" for p in problems))


def _message(problem: ErrorDetails) -> str:
    from skewless.config_problems import plain

    if problem["type"] == "extra_forbidden":
        return "unknown setting; those of router.* are in `skewless config dump`"
    return plain(problem)


def _assignment(text: str) -> tuple[str, Any]:
    from skewless.config import value_of

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"--option: {text!r} is not NAME=VALUE, such as clock=event")
    return name.removeprefix("router."), value_of(value)


def _put(document: dict[str, Any], names: Sequence[str], value: Any) -> None:
    for name in names[:-1]:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise ConfigurationError(f"--option: {'.'.join(names)}: {name} has no settings of its own")
    document[names[-1]] = value


@contextlib.contextmanager
def _writer(path: Path | None, source: str, workers: int) -> Iterator[Callable[[Sequence[Any]], None]]:
    """Open the file of assignments; gives what writes the workers of a batch, nothing without a file."""
    if path is None:
        yield lambda _: None
        return
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise ConfigurationError(f"--assignments: {path} is the input; name another file")
    lines = [b"%d\n" % worker for worker in range(workers)]
    with _told(path), path.open("wb") as file:
        yield lambda chosen: _write(file, lines, chosen[0].tolist())


def _write(file: IO[bytes], lines: list[bytes], chosen: list[int]) -> None:
    file.write(b"".join(map(lines.__getitem__, chosen)))


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say which file cannot be written, when it is opened, written to or closed."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"--assignments: {path}: cannot be written: {error.strerror}") from None
