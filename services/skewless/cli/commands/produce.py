"""Implements `skewless produce`: writes a data set into a topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from skewless.cli.interrupts import received_signals
from skewless.cli.options import (
    FiniteFloat,
    bootstrap_servers_option,
    default_file,
    kafka_of,
    load_settings,
    no_progress,
    optional_pipeline_file,
    topic_of,
    with_servers,
)
from skewless.errors import ConfigurationError
from skewless.kafka.settings import KafkaSettings
from skewless.lab.datasets import DATASETS, Dataset, DatasetOptions, detect, find_dataset, find_name, take
from skewless.lab.datasets.data_files import first_lines
from skewless.settings_base import plain

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.lab.datasets.produce_classified import ClassificationCounts, InputRules

AUTO = "auto"
SIDES = {"impressions": "left", "clicks": "right"}
"""Datasets that belong to a side of a join."""


def _dataset_list() -> str:
    """Return a line for each data set: its records, its source, and on a second line its published name."""
    lines = []
    for name, dataset in DATASETS.items():
        source = "" if dataset.read is None else " (files)" if dataset.generate is None else " (files or synthetic)"
        lines.append(f"  {name:18} {dataset.summary}{source}\n")
        if dataset.alias:
            lines.append(f"  {'':18} also: {dataset.alias}\n")
    return "".join(lines)


_EPILOG = f"""\b
Data sets:
{_dataset_list()}  {AUTO:18} detected from the first --input

\b
Synthetic: without --input the records are generated from --seed.
Times in seconds, milliseconds or ISO 8601 are sent as milliseconds.

\b
Examples:
  skewless produce zipf --topic events --partitions 4 --records 100000
  skewless produce ticker --topic ticks --input ticks.jsonl.gz --speed 3600
  skewless produce COUNTRY_SKEW_R80 --topic c --partitions 4 --rate 1000
  skewless produce words -f pipeline.yaml --rate 5000
  skewless produce sales --topic s --records 5000000 --resume
  skewless produce clicks -f ads.yaml --records 100000 --disorder-ms 500
"""


@click.command(epilog=_EPILOG)
@click.argument("dataset")
@click.option(
    "--topic",
    help="Topic to write to. Default with -f: the pipeline's source topic, that side of its join, or enrich.topic.",
)
@optional_pipeline_file
@bootstrap_servers_option("those of the pipeline with -f, else ")
@click.option(
    "--partitions", type=click.IntRange(1, 100_000), metavar="N", help="Create a missing topic with N partitions."
)
@click.option(
    "--records",
    type=click.IntRange(min=0),
    help="Number of records to send. Default: a million if generated, all of words and of files. Of generated "
    "impressions and clicks: number of impressions.",
)
@click.option("--rate", type=float, help="Maximum records per second. Default: no limit.")
@click.option(
    "--speed", type=FiniteFloat(min=0, min_open=True), help="Replay at this multiple of the speed of event time."
)
@click.option(
    "--input",
    type=click.Path(path_type=Path),
    multiple=True,
    help="File to read, plain or .gz, .bz2, .zst, .lz4; repeatable.",
)
@click.option("--seed", type=int, help="Seed of generated records; equal seeds give equal records. Default: 1.")
@click.option(
    "--event-rate",
    type=float,
    help="Records per second of event time, if records have no time. Default: --rate, else 1000 (words: 500). "
    "Default of impressions and clicks: 1000.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue an interrupted run: send only the records that the topic does not contain. Give the same options as "
    "in the interrupted run.",
)
@click.option("--skew", type=float, help="country-*skew: percentage of records of the hot country. Default: 80.")
@click.option("--zipf-exponent", type=float, help="zipf: exponent. Default: 1.1.")
@click.option("--mu", type=float, help="lognormal: mean of the logarithm. Default: 1.789, as LN1.")
@click.option("--sigma", type=float, help="lognormal: standard deviation of the logarithm. Default: 2.366, as LN1.")
@click.option("--keys", type=int, help="zipf: number of keys. Default: 50,000.")
@click.option("--matched", type=float, help="clicks: share of the impressions that have a click. Default: 0.9.")
@click.option(
    "--delay-ms",
    type=float,
    help="clicks: mean time from an impression to its click; none is more than 16 times as late. Default: 300.",
)
@click.option(
    "--disorder-ms",
    type=int,
    help="impressions, clicks: largest time by which a record is older than one before it. Default: 0.",
)
@click.option(
    "--duplicates", type=float, help="impressions, clicks: share of the records that are sent twice. Default: 0."
)
@click.option("--missing", type=float, help="impressions, clicks: share of the records that are not sent. Default: 0.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as one JSON object at the end.")
@no_progress
@click.pass_context
def produce(  # noqa: PLR0913 - click passes an argument per option
    context: click.Context,
    /,
    dataset: str,
    *,
    topic: str | None,
    file: Path | None,
    bootstrap_servers: str | None,
    partitions: int | None,
    speed: float | None,
    resume: bool,
    as_json: bool,
    **dataset_options: object,
) -> None:
    """Write DATASET into a topic, with event times as the records' timestamps.

    Record i is sent to partition (i // 100) mod partitions, so two runs write equal partitions. Impressions and clicks
    have their id as key, and are sent to the partition of the key. In a pipeline with a join, they are its sides.
    """
    from skewless.config.pipeline_settings import default_event_time_rules
    from skewless.kafka.producer.bulk import BulkProducer, prepare_topic
    from skewless.lab.datasets import resume_produce
    from skewless.lab.datasets.produce_classified import InputClassifier, InputRules, input_rules
    from skewless.lab.datasets.produce_run import run

    if topic is not None:
        topic_of("--topic", topic)
    options = _options({name: value for name, value in dataset_options.items() if value is not None})
    name, source = _dataset(dataset, options)
    if resume and source.keys is not None:
        raise ConfigurationError(f"--resume: not with {name}, whose records go to the partitions of their ids")
    if topic is None and bootstrap_servers is None:
        file = file or default_file()
    settings = None if file is None else load_settings(file)
    belongs_to = _input(settings, name)
    kafka, target, replication_factor = _target(settings, bootstrap_servers, topic, belongs_to)
    partition_count = prepare_topic(kafka, target, partitions, replication_factor)
    synthetic = source.read is not None and not options.input
    if synthetic:
        click.echo(f"{name}: no --input, so the records are generated with seed {options.seed}", err=True)
    total, existing_count = source.total(options), 0
    batches = take(source.batches(options), total)
    producer = BulkProducer(kafka, target, partition_count)
    if resume:
        counts = resume_produce.existing_records(kafka, target, take(source.batches(options), total))
        batches, existing_count = resume_produce.missing_records(batches, producer, counts), int(counts.sum())
        click.echo(f"topic {target} already contains {existing_count:,} records of the run", err=True)
    rules = input_rules(settings, belongs_to) if settings else InputRules(source.splitter(), default_event_time_rules())
    classifier = InputClassifier(rules.parsing, rules.event_times, partition_count)
    remaining = None if total is None else total - existing_count
    with received_signals(once=True) as signals:
        summary = run(batches, producer, remaining, options.rate, speed, classifier=classifier, signals=signals)
    click.echo(f"{summary} to {target}", err=True)
    _show_rejected(classifier.result, rules, name, file)
    if as_json:
        report = {"dataset": name, "topic": target, "synthetic": synthetic, "already": existing_count}
        click.echo(json.dumps(report | summary.to_json() | classifier.result.to_json()))
    if summary.interrupted:
        context.exit(128 + signals[0])


def _show_rejected(classified: ClassificationCounts, rules: InputRules, dataset: str, file: Path | None) -> None:
    """Print how many records a pipeline would reject as unreadable or late, and the remedy."""
    from skewless.lab.datasets.produce_classified import input_warnings

    remedy = (
        f"correct them, or name another data set than {dataset}"
        if file is None
        else f"correct them, or section {rules.section} of {file}"
    )
    late_remedy = rules.late_remedy(classified.max_lateness_ms)
    for warning in input_warnings(classified.unreadable, remedy, classified.late, "records", late_remedy):
        click.echo(warning, err=True)


def _options(values: dict[str, object]) -> DatasetOptions:
    try:
        return DatasetOptions.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    raise ConfigurationError(*(f"--{str(p['loc'][0]).replace('_', '-')}: {plain(p)}" for p in problems))


def _dataset(name: str, options: DatasetOptions) -> tuple[str, Dataset]:
    if name == AUTO:
        if not options.input:
            raise ConfigurationError("--input: missing; auto detects the data set from the first file")
        name = detect(options.input[0])
    dataset = find_dataset(name)
    dataset.batches(options)  # reports unsuitable options before the command connects to a broker
    for path in options.input:
        first_lines(path, 1)  # reports an unreadable file before any record is sent
    return find_name(name), dataset


def _input(settings: PipelineSettings | None, dataset: str) -> str:
    """Return the input of the pipeline to which a dataset belongs, as the topology names it."""
    side = SIDES.get(dataset)
    if settings and side in settings.sides:
        return side
    return "events" if settings and settings.enrich else "source"


def _target(
    settings: PipelineSettings | None, servers: str | None, topic: str | None, belongs_to: str
) -> tuple[KafkaSettings, str, int | None]:
    """Return the broker, the topic, and the replication factor of a new topic (None: the brokers' default)."""
    if topic is None and belongs_to == "source" and settings is not None and settings.own_source is not None:
        raise ConfigurationError(
            f"--topic: missing; the pipeline writes its source topic {settings.topic('source')} itself: name another "
            f"topic, or produce {' and '.join(SIDES)}, which belong to the sides of its join"
        )
    if settings is not None:
        return (
            with_servers(settings.kafka, servers),
            topic or settings.topic(belongs_to),
            settings.topics.replication_factor,
        )
    if topic is None:
        raise ConfigurationError("--topic: missing; name the topic to write to, or give a pipeline with -f")
    return kafka_of(servers), topic, None
