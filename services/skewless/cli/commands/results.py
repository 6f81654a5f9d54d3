"""Implements `skewless results`: prints the results of a pipeline from its table or its topic `aggregates`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec

from skewless.cli.options import is_given, load_settings, pipeline_file
from skewless.cli.plain_text import printable, value_text
from skewless.errors import ConfigurationError
from skewless.operations.results.selection import WINDOWS, ResultRecord
from skewless.times import instant_text


@click.command()
@pipeline_file
@click.option("--window", default="last", show_default=True, metavar="WINDOW", help=f"Windows to show: {WINDOWS}.")
@click.option("--key", help="Show only this key.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Show only the N largest results of each window.")
@click.option("--by", metavar="AGGREGATE", help="Aggregate that --top orders by. Default: the first one.")
@click.option("--ranks", is_flag=True, help="Show the keys that aggregator.top ranks, from topic `top`.")
@click.option("--follow", is_flag=True, help="Print new results as they arrive, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
def results(  # noqa: PLR0913 - click passes an argument per option
    *,
    file: Path | None,
    window: str,
    key: str | None,
    top: int | None,
    by: str | None,
    ranks: bool,
    follow: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print the results of a pipeline: committed ones, the newest revision of each key and window.

    `last` is the last window that is closed. While none is, it is the newest one, and a note says so. `open` are
    the windows after it. The results are those of the table of `sink`, if the pipeline has one, else those of topic
    `aggregates`. Closed windows of which the table lacks results count as open. --follow always reads the topic. No
    consumer group is used.

    \b
    Examples:
      skewless results -f pipeline.yaml --top 10
      skewless results -f pipeline.yaml --ranks --window all
      skewless results -f pipeline.yaml --window 2026-03-01T10:00 --key books --json
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    _ = settings.aggregated  # an error if the pipeline only joins
    from skewless.operations.results import query_of, read, topic

    try:
        query = query_of(settings, window=window, key=key, top=top, by=by, on_open=_note_open)
    except ConfigurationError as error:
        raise ConfigurationError(*(f"--{problem}" for problem in error.problems)) from None
    if as_json and as_csv:
        raise ConfigurationError("--json: not with --csv, leave one out")
    if follow:
        _check_follow(top, by)
    if ranks and (follow or top is not None or by is not None):
        raise ConfigurationError("--ranks: not with --follow, --top or --by, leave one out")
    columns = (*(["rank"] if ranks else []), *(result.name for result in settings.results))
    show = _printer(columns, settings.splitter.key.parts, as_json=as_json, as_csv=as_csv)
    if follow:
        for batch in topic.later(settings, key, _warn):
            show(batch)
    show(read(settings, query._replace(ranks=ranks), _warn))


def _check_follow(top: int | None, by: str | None) -> None:
    """Raise ConfigurationError for an option that has no effect on later results."""
    if top is not None:
        raise ConfigurationError("--top: not with --follow, because later results can be larger")
    if by is not None:
        raise ConfigurationError("--by: not with --follow, because results are printed as they arrive")
    if is_given("window"):
        raise ConfigurationError("--window: not with --follow, because new results of all windows are printed")


def _note_open() -> None:
    text = "no window is closed, so these results may still change: `skewless status` shows what the windows wait for"
    click.echo(f"note: {text}", err=True)


def _warn(message: str) -> None:
    click.echo(f"warning: {message}", err=True)


def _printer(
    aggregates: tuple[str, ...], key_parts: tuple[str, ...], *, as_json: bool, as_csv: bool
) -> Callable[[Sequence[ResultRecord]], None]:
    """Return a function that prints results in the chosen form."""
    if as_json:
        encode = msgspec.json.Encoder(decimal_format="number").encode

        def write_json(batch: Sequence[ResultRecord]) -> None:
            for result in batch:
                click.echo(encode(result))

        return write_json

    columns = ("window_start", "window_end", "key", *key_parts, *aggregates, "revision")
    if as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)

        def write(batch: Sequence[ResultRecord]) -> None:
            writer.writerows([value_text(result.get(name), if_null="") for name in columns] for result in batch)
            sys.stdout.flush()

        return write

    def show(batch: Sequence[ResultRecord]) -> None:
        for result in batch:
            numbers = "  ".join(f"{name} {printable(value_text(result.get(name)))}" for name in aggregates)
            click.echo(f"{instant_text(result['window_start'])}  {printable(result['key'])}  {numbers}")

    return show
