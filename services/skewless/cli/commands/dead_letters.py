"""Implements `skewless dead-letters`: lists, shows and replays invalid records."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.cli.options import load_settings, pipeline_file, topic_of
from skewless.cli.plain_text import counted, printable
from skewless.errors import CheckFailedError, ConfigurationError, unknown

if TYPE_CHECKING:
    from skewless.operations.dead_letters import DeadLetter

MAX_SHOWN = 10_000
"""Bytes of a key or value that `show` prints as text at most."""

NO_REASON = (
    "no dead letters with this reason: it is compared as a whole, and `skewless dead-letters list` has all reasons"
)

POSITION = re.compile(r"[^/]+/[0-9]+/[0-9]+")

reason_option = click.option(
    "--reason", "reasons", multiple=True, metavar="REASON", help="Only dead letters with this reason; repeatable."
)


def _position(_ctx: click.Context, _param: click.Parameter, position: str) -> str:
    if not POSITION.fullmatch(position):
        raise click.BadParameter(f"{position!r} is not TOPIC/PARTITION/OFFSET, such as clicks/3/4711.")
    return position


@click.group("dead-letters")
def dead_letters() -> None:
    """List, show or replay the invalid records of a pipeline, which are in its topic `dead-letters`."""


@dead_letters.command("list")
@pipeline_file
@reason_option
@click.option("--each", is_flag=True, help="Print each dead letter with the coordinates of its record.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_(file: Path | None, *, reasons: tuple[str, ...], each: bool, as_json: bool) -> None:
    """Print the number of dead letters by reason and topic.

    The topic is that of the invalid records. The most frequent reasons come first.

    \b
    Examples:
      skewless dead-letters list -f pipeline.yaml
      skewless dead-letters list -f pipeline.yaml --reason 'malformed JSON' --each
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.operations.dead_letters import read_dead_letters

    counts: Counter[tuple[str, str]] = Counter()
    for letter in read_dead_letters(settings, reasons):
        counts[letter.origin.topic, letter.reason] += 1
        if each:
            click.echo(json.dumps(_as_json(letter)) if as_json else f"{letter.origin}  {printable(letter.reason)}")
    for (topic, reason), count in () if each else counts.most_common():
        row = {"topic": topic, "reason": reason, "dead_letters": count}
        click.echo(json.dumps(row) if as_json else f"{count:>12,}  {topic}  {printable(reason)}")
    if not counts and not as_json:
        click.echo(NO_REASON if reasons else "no dead letters")


@dead_letters.command()
@pipeline_file
@click.argument("position", metavar="TOPIC/PARTITION/OFFSET", callback=_position)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(file: Path | None, *, position: str, as_json: bool) -> None:
    """Print the dead letter of a record: reason, key and value. `list --each` prints the positions of the records.

    \b
    Example:
      skewless dead-letters show -f pipeline.yaml clicks/3/4711
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.operations.data_quality import remedy
    from skewless.operations.dead_letters import read_dead_letters

    letter = None
    for each in read_dead_letters(settings):
        if str(each.origin) == position:
            letter = each  # the newest one, if the topic was created again
    if letter is None:
        raise CheckFailedError(f"no dead letter of {position} in topic {settings.topic('dead-letters')}")
    if as_json:
        texts = {"key": _text(letter.key), "value": _text(letter.value)}
        click.echo(json.dumps(_as_json(letter) | texts | ({"traceback": letter.traceback} if letter.traceback else {})))
        return
    click.echo(f"record       {letter.origin}")
    click.echo(f"dead letter  {settings.topic('dead-letters')}/{letter.partition}/{letter.offset}")
    click.echo(f"reason       {printable(letter.reason)}")
    if found := remedy(letter.reason, letter.origin.topic, settings):
        click.echo(f"remedy       {found}")
    for line in (letter.traceback or "").splitlines():
        click.echo(f"             {printable(line)}")
    click.echo(f"key          {_shown(letter.key)}")
    click.echo(f"value        {_shown(letter.value)}")
    if not letter.is_whole:
        click.echo("The dead letter has only the first part of the record, which is complete in its own topic.")


@dead_letters.command()
@pipeline_file
@reason_option
@click.option(
    "--from",
    "origin",
    metavar="TOPIC",
    help="Topic of the invalid records.  [default: the topic that the pipeline reads; required for a join]",
)
@click.option("--to", "target", metavar="TOPIC", help="Topic to write to.  [default: the topic of the records]")
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Leave out records that were replayed this often and are invalid again.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be replayed.")
def replay(  # noqa: PLR0913 - click passes an argument per option
    file: Path | None,
    *,
    reasons: tuple[str, ...],
    origin: str | None,
    target: str | None,
    max_attempts: int,
    dry_run: bool,
) -> None:
    """Write invalid records to their topic again, or to another topic. None is written twice to the same topic.

    The records are read from the positions that the dead letters name, with their headers and timestamps. What was
    replayed is in the compacted topic `<pipeline>.replays`.

    \b
    Examples:
      skewless dead-letters replay -f pipeline.yaml --reason 'longer than 262144 bytes' --dry-run
      skewless dead-letters replay -f pipeline.yaml --to clicks-to-repair
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.config.topic_plan import user_topics

    replayable = sorted(user_topics(settings))
    source = _origin(replayable, origin)
    topic = source if target is None else topic_of("--to", target)
    from skewless.operations.dead_letters import ReplayReport, read_dead_letters
    from skewless.operations.dead_letters import replay as replay_letters

    letters = read_dead_letters(settings, reasons)
    report = replay_letters(settings, letters, origin=source, target=topic, max_attempts=max_attempts, dry_run=dry_run)
    if reasons and report == ReplayReport():
        click.echo(NO_REASON)
    verb = "would be replayed" if dry_run else "replayed"
    click.echo(f"{counted(report.replayed, 'record')} {verb} to {topic}")
    for reason, count in report.by_reason.most_common():
        click.echo(f"  {count:,}  {printable(reason)}")
    others = {other: report.other_topics[other] for other in replayable}
    for count, text in (
        (report.already_replayed, "replayed before"),
        (report.gone, f"no longer in topic {source}"),
        *((count, f"of topic {other}, which --from {other} replays") for other, count in others.items()),
        (
            report.other_topics.total() - sum(others.values()),
            "of topics that the pipeline writes or no longer reads, which cannot be replayed",
        ),
        (report.exhausted, f"replayed {max_attempts} times, and invalid again: raise --max-attempts"),
    ):
        if count:
            click.echo(f"left out: {counted(count, 'record')} {text}")


def _origin(topics: Sequence[str], topic: str | None) -> str:
    """Return the topic whose records are replayed. Raises ConfigurationError if it is none of those that are read."""
    if topic is None:
        if len(topics) > 1:
            raise ConfigurationError(f"--from: missing; the pipeline reads {', '.join(topics)}: name one of them")
        return topics[0]
    if topic not in topics:
        raise ConfigurationError(f"--from: {unknown('topic', topic, topics)}")
    return topic


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    topic, partition, offset = letter.origin
    return {"topic": topic, "partition": partition, "offset": offset, "reason": letter.reason}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _shown(data: bytes | None) -> str:
    """Return a key or value as a line that may be printed on a terminal."""
    if data is None:
        return "none"
    text = printable(data[:MAX_SHOWN].decode("utf-8", "backslashreplace"))
    return text if len(data) <= MAX_SHOWN else f"{text} ... ({len(data):,} bytes)"
