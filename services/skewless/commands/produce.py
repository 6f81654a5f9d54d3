"""`skewless produce`: a dataset into a topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from skewless.commands.options import Finite, broker_of, load_settings, pipeline_file, topic_of
from skewless.config_problems import plain
from skewless.datasets import DATASETS, Dataset, DatasetOptions, detect, find_dataset, find_name, take
from skewless.datasets.files import first_lines
from skewless.errors import ConfigurationError
from skewless.transport.settings import KafkaSettings

if TYPE_CHECKING:
    from skewless.commands.produce_judged import Judged
    from skewless.settings import PipelineSettings

INTERRUPTED = 130
AUTO = "auto"


def _described() -> str:
    """List the datasets, each with the forms of its records, where they come from, and its published name."""
    parts = []
    for name, dataset in DATASETS.items():
        source = "" if dataset.read is None else "; files" if dataset.generate is None else "; files or synthetic"
        parts.append(f"  {name:18} {dataset.summary} ({', '.join(dataset.forms)}{source})\n")
        if dataset.published:
            parts.append(f"  {'':18} also: {dataset.published}\n")
    return "".join(parts)


_EPILOG = f"""\b
Data sets (with the forms of their records, the default first):
{_described()}  {AUTO:18} what the first --input looks like

\b
Synthetic: without --input the records are made up, from --seed alone.
Times in seconds, milliseconds or ISO 8601 are sent as milliseconds.

\b
Examples:
  skewless produce zipf --topic events --create-topic 4 --records 100000
  skewless produce ticker --topic ticks --input ticks.jsonl.gz --speed 3600
  skewless produce COUNTRY_SKEW_R80 --topic c --create-topic 4 --rate 1000
  skewless produce words -f pipeline.yaml --rate 5000
  skewless produce sales --topic s --records 5000000 --resume
"""


@click.command(epilog=_EPILOG)
@click.argument("dataset")
@click.option("--topic", help="Topic to write to. Default with -f: the pipeline's source topic.")
@pipeline_file
@click.option(
    "--bootstrap-servers",
    help="Broker's host:port. Default: the pipeline's with -f, else $KAFKA_BOOTSTRAP_SERVERS, else localhost:9092.",
)
@click.option("--create-topic", type=click.IntRange(1, 100_000), metavar="PARTITIONS", help="Create a missing topic.")
@click.option(
    "--records", type=click.IntRange(min=0), help="Stop after so many. Default: a million generated, all recorded."
)
@click.option("--rate", type=float, help="At most so many records per second. Default: no limit.")
@click.option("--speed", type=Finite(min=0, min_open=True), help="Keep the pace of event time, times this.")
@click.option("--as", "form", type=click.Choice(["raw", "json"]), help="Form of the records; see the list below.")
@click.option(
    "--input",
    type=click.Path(path_type=Path),
    multiple=True,
    help="File to read, plain or .gz, .bz2, .zst, .lz4; repeatable.",
)
@click.option("--seed", type=int, help="Seed of generated records: the same seed, the same records. Default: 1.")
@click.option(
    "--event-rate",
    type=float,
    help="Records per second of event time, where they carry none. Default: --rate, else 1000 (words: 500).",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with a run that was interrupted: the topic is read, and only what it lacks of the run is sent. "
    "Give the same options as before.",
)
@click.option("--skew", type=float, help="country-*skew: percentage that is the hot country. Default: 80.")
@click.option("--z", type=float, help="zipf: exponent. Default: 1.1.")
@click.option("--mu", type=float, help="lognormal: mean of the logarithm. Default: 1.789, as LN1.")
@click.option("--sigma", type=float, help="lognormal: standard deviation of the logarithm. Default: 2.366, as LN1.")
@click.option("--keys", type=int, help="zipf: number of keys. Default: 50,000.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as one JSON object at the end.")
@click.pass_context
def produce(  # noqa: PLR0913 - click passes an argument per option
    context: click.Context,
    /,
    dataset: str,
    *,
    topic: str | None,
    file: Path | None,
    bootstrap_servers: str | None,
    create_topic: int | None,
    speed: float | None,
    resume: bool,
    as_json: bool,
    **chosen: object,
) -> None:
    """Write DATASET into a topic, with event times as the records' timestamps.

    Record i goes to partition (i // 100) mod partitions, so that two runs write the same logs.
    """
    from skewless.commands import produce_resume
    from skewless.commands.produce_judged import Judging
    from skewless.commands.produce_run import run
    from skewless.transport.sender import Sender, prepare_topic

    if topic is not None:
        topic_of("--topic", topic)
    options = _options({name: value for name, value in chosen.items() if value is not None})
    name, source = _dataset(dataset, options)
    settings = None if file is None else load_settings(file)
    kafka, target, replication_factor = _target(settings, bootstrap_servers, topic)
    partitions = prepare_topic(kafka, target, create_topic, replication_factor)
    synthetic = source.read is not None and not options.input
    if synthetic:
        click.echo(f"{name}: no --input, so the records are synthetic, of seed {options.seed}", err=True)
    total, already = source.total(options), 0
    chunks = take(source.chunks(options), total)
    sender = Sender(kafka, target, partitions)
    if resume:
        present = produce_resume.read_present(kafka, target, partitions)
        produce_resume.check(take(source.chunks(options), total), present, target)
        chunks, already = produce_resume.rest(chunks, sender, present), present.total
        click.echo(f"{already:,} records of the run are in {target} already", err=True)
    judging = (
        Judging(settings.splitter, settings.event_time.lateness_ms, partitions)
        if settings
        else Judging(source.splitter(options.form), 0, partitions)
    )
    summary = run(chunks, sender, None if total is None else total - already, options.rate, speed, judging=judging)
    click.echo(f"{summary} to {target}", err=True)
    _show_left_out(judging.result, name, file)
    if as_json:
        facts = {"dataset": name, "topic": target, "synthetic": synthetic, "already": already}
        click.echo(json.dumps(facts | summary.facts() | judging.result.facts()))
    if summary.interrupted:
        context.exit(INTERRUPTED)


def _show_left_out(judged: Judged, dataset: str, file: Path | None) -> None:
    from skewless.commands.produce_judged import notes

    remedy = (
        f"correct them, or name another data set than {dataset}"
        if file is None
        else f"correct them, or section splitter of {file}"
    )
    for note in notes(judged.unreadable, judged.late, "records", judged.behind_ms, remedy):
        click.echo(note, err=True)


def _options(chosen: dict[str, object]) -> DatasetOptions:
    try:
        return DatasetOptions.model_validate(chosen)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    raise ConfigurationError(*(f"--{str(p['loc'][0]).replace('_', '-')}: {plain(p)}" for p in problems))


def _dataset(name: str, options: DatasetOptions) -> tuple[str, Dataset]:
    if name == AUTO:
        if not options.input:
            raise ConfigurationError("--input: missing; auto looks at the first file to find out what it holds")
        name = detect(options.input[0])
    dataset = find_dataset(name)
    dataset.chunks(options)  # options that do not fit it are found out before a broker is asked
    for path in options.input:
        first_lines(path, 1)  # a file that cannot be read is found out before anything is sent
    return find_name(name), dataset


def _target(
    settings: PipelineSettings | None, servers: str | None, topic: str | None
) -> tuple[KafkaSettings, str, int]:
    """Find the broker, the topic, and the replication factor of a new topic (-1: the broker's default)."""
    if settings is not None:
        return broker_of(servers, settings.kafka), topic or settings.source.topic, settings.topics.replication_factor
    if topic is None:
        raise ConfigurationError("--topic: missing; name the topic to write to, or give a pipeline with -f")
    return broker_of(servers), topic, -1
