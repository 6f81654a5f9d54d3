"""Implements `skewless results`: prints the results of a pipeline from its table or its topic `aggregates`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from skewless.cli.options import load_settings, pipeline_file
from skewless.cli.plain_text import iso, printable
from skewless.cli.result_selection import WINDOWS, Result, Selection, Window, no_results, other_windows, selection
from skewless.errors import BadRecordError, CheckFailedError, ConfigurationError

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.kafka.consumer.topic_reader import PartitionRecords
    from skewless.wire.aggregates import ToJson

FOLLOW_S = 1.0
"""Interval at which --follow looks for new results."""
RESULT_FIELDS = {"key", "window_start", "window_end", "revision"}
"""Fields of every result."""
MAX_PLACES = 3
"""Records that a warning names."""


@click.command()
@pipeline_file
@click.option("--window", default="last", show_default=True, metavar="WINDOW", help=f"Windows to show: {WINDOWS}.")
@click.option("--key", help="Show only this key.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Show only the N largest results of each window.")
@click.option("--by", metavar="AGGREGATE", help="Aggregate that --top orders by. Default: the first one.")
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
    follow: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print the results of a pipeline: committed ones, the newest revision of each key and window.

    `last` is the last window that is closed, `open` are the windows after it. The results are those of the table of
    `sink`, if the pipeline has one, else those of topic `aggregates`. --follow always reads the topic. No
    consumer group is used.

    \b
    Examples:
      skewless results -f pipeline.yaml --top 10
      skewless results -f pipeline.yaml --window 2026-03-01T10:00 --key books --json
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    _ = settings.aggregated  # an error if the pipeline only joins
    aggregates = tuple(result.name for result in settings.results)
    if as_json and as_csv:
        raise ConfigurationError("--json: not with --csv, leave one out")
    if follow and top is not None:
        raise ConfigurationError("--top: not with --follow, because later results can be larger")
    if by is not None and by not in aggregates:
        raise ConfigurationError(f"--by: {by} is not a result of this pipeline: {', '.join(aggregates)}")
    select = selection(window)
    show = _printer(aggregates, as_json=as_json, as_csv=as_csv)
    if follow or settings.sink is None:
        from skewless.config.topic_plan import require_topic

        require_topic(settings, "aggregates")
    if follow:
        for batch in _later_results(settings):
            show([result for result in batch if key is None or result["key"] == key])
    if settings.sink is None:
        chosen = _results_from_topic(settings, select, key)
    else:
        from skewless.cli import table_results

        chosen = table_results.read(settings, select, key)
    if not chosen:
        raise CheckFailedError(f"no results for --window {window}: choose {other_windows(window)}")
    show(_sorted_results(chosen, by or aggregates[0], top))


def _results_from_topic(settings: PipelineSettings, select: Selection, key: str | None) -> list[Result]:
    """Return the newest revisions of the selected windows, of one key or of all, from the topic."""
    from skewless.cli.audit_scope import closed_everywhere

    found = _newest_revisions(settings, lambda result: key is None or result["key"] == key)
    if not found:
        raise CheckFailedError(no_results(f"topic {settings.topic('aggregates')}", key))
    windows = select(sorted({_window_of(result) for result in found}), lambda: closed_everywhere(settings))
    return [result for result in found if _window_of(result) in windows]


def _window_of(result: Result) -> Window:
    return result["window_start"], result["window_end"]


def _newest_revisions(settings: PipelineSettings, wanted: Callable[[Result], bool]) -> list[Result]:
    """Return the newest revision of every wanted result."""
    newest: dict[tuple[int, str], Result] = {}
    for result in _all_results(settings):
        if wanted(result):
            place = result["window_start"], result["key"]
            if place not in newest or newest[place]["revision"] <= result["revision"]:
                newest[place] = result
    return list(newest.values())


def _later_results(settings: PipelineSettings) -> Iterator[list[Result]]:
    """Yield the results that are committed from now on."""
    from skewless.config.result_codec import result_reader
    from skewless.kafka.consumer.offsets import OffsetReader
    from skewless.kafka.consumer.topic_reader import TopicReader

    offsets, topic, to_json = OffsetReader(settings.kafka), settings.topic("aggregates"), result_reader(settings)
    with TopicReader(settings.kafka, topic, offsets.end(topic)) as reader:
        while True:
            yield list(_results_in(topic, to_json, reader.poll(FOLLOW_S)))
            offsets.end(topic)  # an error if no broker answers


def _all_results(settings: PipelineSettings) -> Iterator[Result]:
    """Yield all results of the topic."""
    from skewless.config.result_codec import result_reader
    from skewless.kafka.consumer.offsets import OffsetReader
    from skewless.kafka.consumer.topic_reader import read_ranges

    topic = settings.topic("aggregates")
    records = read_ranges(settings.kafka, topic, OffsetReader(settings.kafka).ranges(topic))
    return _results_in(topic, result_reader(settings), records)


def _results_in(topic: str, to_json: ToJson, batches: Iterable[PartitionRecords]) -> Iterator[Result]:
    """Yield the results in records of the topic, and warn of records that are none."""
    others: list[str] = []
    for partition, messages in batches:
        for message in messages:
            value = message.value()
            if value is None:
                continue
            if (result := _result(to_json, value)) is not None:
                yield result
            else:
                others.append(f"partition {partition} offset {message.offset()}")
    if others:
        click.echo(f"warning: topic {topic} has records that are not results: {_few(others)}", err=True)


def _result(to_json: ToJson, value: bytes) -> Result | None:
    """Return the result in a record; None if there is none."""
    try:
        found = json.loads(to_json(value), parse_float=Decimal)
    except (ValueError, RecursionError, BadRecordError):
        return None
    return found if isinstance(found, dict) and found.keys() >= RESULT_FIELDS else None


def _few(places: list[str]) -> str:
    return ", ".join(places[:MAX_PLACES]) + (f" and {len(places) - MAX_PLACES:,} more" if places[MAX_PLACES:] else "")


def _sorted_results(found: list[Result], by: str, top: int | None) -> list[Result]:
    """Return the results by window, largest first, at most `top` of each window."""
    by_window: dict[int, list[Result]] = {}
    for result in sorted(found, key=lambda result: (result["window_start"], -_number(result[by]), result["key"])):
        by_window.setdefault(result["window_start"], []).append(result)
    return [result for window in by_window.values() for result in window[:top]]


def _number(value: Any) -> float:
    """Return a result as a number for the order; results may be numbers as text, texts or null."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _printer(aggregates: tuple[str, ...], *, as_json: bool, as_csv: bool) -> Callable[[list[Result]], None]:
    """Return a function that prints results in the chosen form."""
    if as_json:
        encode = msgspec.json.Encoder(decimal_format="number").encode

        def write_json(batch: list[Result]) -> None:
            for result in batch:
                click.echo(encode(result))

        return write_json
    columns = ("window_start", "window_end", "key", *aggregates, "revision")
    if as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)

        def write(batch: list[Result]) -> None:
            writer.writerows([result[name] for name in columns] for result in batch)
            sys.stdout.flush()

        return write

    def show(batch: list[Result]) -> None:
        for result in batch:
            numbers = "  ".join(f"{name} {result[name]}" for name in aggregates)
            click.echo(f"{iso(result['window_start'])}  {printable(result['key'])}  {numbers}")

    return show
