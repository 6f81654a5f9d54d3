"""Implements `skewless init`: writes a pipeline file for a topic."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from skewless.cli.options import (
    Duration,
    FiniteFloat,
    bootstrap_servers_option,
    connections_of,
    no_progress,
    registry_option,
    topic_of,
    writing,
)
from skewless.cli.plain_text import field_label
from skewless.errors import CheckFailedError, ConfigurationError

if TYPE_CHECKING:
    from skewless.kafka.settings import KafkaSettings
    from skewless.lab.inspection.pipeline_file import Choices
    from skewless.lab.inspection.read_topic import SampleRange
    from skewless.schema_registry.settings import RegistrySettings

DEFAULT_RECORDS = 200_000


@click.command("init")
@click.argument("topic")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("pipeline.yaml"),
    show_default=True,
    help="File to write. An existing file is not replaced.",
)
@bootstrap_servers_option()
@registry_option
@click.option(
    "--records", type=click.IntRange(min=1), default=DEFAULT_RECORDS, show_default=True, help="Records to read."
)
@click.option("--since", type=Duration(), metavar="TIME", help="Read the records of this time, such as 1h, instead.")
@click.option(
    "--key", metavar="PATH", help="Field to use as key: a JSON path, the number of a column (from 0), or 'record key'."
)
@click.option("--name", help="Name of the pipeline. Default: from the topic.")
@click.option("--yes", is_flag=True, help="Accept all proposals. Without a terminal they are always accepted.")
@no_progress
def init(  # noqa: PLR0913 - click passes an argument per option
    *,
    topic: str,
    output: Path,
    bootstrap_servers: str | None,
    records: int,
    since: float | None,
    key: str | None,
    name: str | None,
    yes: bool,
) -> None:
    """Write a commented pipeline file for a topic, from a sample of its records.

    On a terminal, the key, the allowed lateness and the number of workers can be changed. Secrets are not written: set
    them in the environment.

    \b
    Examples:
      skewless init clicks
      skewless init clicks -b kafka:9092 --key user.id -o clicks.yaml --yes
      skewless init clicks --registry https://registry:8081
    """  # noqa: D301 - \b is click's marker for unwrapped text
    from skewless.lab.inspection.pipeline_file import (
        choices_of,
        event_time_of,
        format_warning,
        invalid_warning,
        late_warning,
        pipeline_file,
        refusals,
        unread_time_warning,
        usable_keys,
    )
    from skewless.lab.inspection.read_topic import inspect_topic, sample_range
    from skewless.lab.progress import report_progress

    _create(output).close()  # an error before the topic is read
    output.unlink()
    kafka, registry = connections_of(None, bootstrap_servers)
    source = topic_of("TOPIC", topic)
    now_ms = time.time_ns() // 1_000_000
    sample = sample_range(kafka, source, records, since, now_ms)
    with report_progress("reading", sample.records, time.monotonic()) as progress:
        report = inspect_topic(kafka, source, sample, key, registry=registry, on_progress=progress)
    if not usable_keys(report):
        if reasons := refusals(report):
            raise CheckFailedError(f"topic {source}: no record of the sample can be read: {'; '.join(reasons)}")
        advice = report["format"]["advice"] or "docs/how-to/read-any-topic.md shows how to read other formats"
        raise CheckFailedError(
            f"topic {source}: no field can be the key; its records are {report['format']['description']}; {advice}"
        )
    if key is not None and report["keys"][0]["splitter"] is None:
        reason = "are neither text in UTF-8 nor integers of 8 or 4 bytes"
        if report["has_registered_keys"]:
            reason = "have schemas of a registry: choose another key, then change it by docs/how-to/schema-registry.md"
        raise CheckFailedError(f"--key: {key}: the keys {reason}")
    _require_times(source, report)
    choices = choices_of(report, key_is_chosen=key is not None)
    if name is not None:
        choices = dataclasses.replace(choices, name=name)
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        choices = _ask(report, choices)
    used = registry if _has_schemas(report) else None
    text = pipeline_file(report, choices, _connections(kafka, used), now_ms)
    _require_valid(text)
    with writing("-o", output), _create(output) as file:
        file.write(text)
    time_label = field_label(event_time_of(report)["name"])
    click.echo(f"{output}: pipeline {choices.name}, key {field_label(choices.key['name'])}, event time {time_label}")
    _print_unread(report, sample)
    first = usable_keys(report)[0]["name"]
    if yes and first != choices.key["name"]:
        click.echo(f"not key {field_label(first)}: it is constant, unique, or missing in many records; see --key")
    if others := ", ".join(map(field_label, report["other_times"])):
        click.echo(f"other times in the records, for splitter.time: {others}")
    for line in (
        *format_warning(report),
        *unread_time_warning(report),
        *invalid_warning(choices.key),
        *late_warning(report, choices.lateness_s),
    ):
        click.echo(line, err=True)
    click.echo(f"next: skewless up -f {output}")
    click.echo(f"then: skewless results -f {output}")


def _print_unread(report: Mapping[str, Any], sample: SampleRange) -> None:
    """Print what was not read of the topic: older records, keys with schemas, and records of open transactions."""
    from skewless.kafka.consumer.offsets import uncommitted_records
    from skewless.lab.inspection.pipeline_file import OF_REGISTERED_KEYS

    if sample.records < sample.retained:
        click.echo(f"read: the newest {report['records']:,} records of {sample.retained:,} offsets; see --records")
    if report["has_registered_keys"]:
        click.echo(OF_REGISTERED_KEYS)
    if unread := report["uncommitted_offsets"]:
        click.echo(f"not read: {uncommitted_records(unread)}", err=True)


def _require_times(topic: str, report: Mapping[str, Any]) -> None:
    """Raise CheckFailedError if the records have neither a field with a time nor a time of Kafka."""
    from skewless.lab.inspection.pipeline_file import event_time_of

    if not report["times"]:
        problem = "the Kafka timestamps of its records are after the year 9999, so their producer does not write ms"
    else:
        time = event_time_of(report)
        if "header" in time or time["field"] is not None or time["last_ms"] >= 0:
            return
        problem = "its records have no timestamp of Kafka"
    raise CheckFailedError(
        f"topic {topic}: {problem}, and no field with a time was found, so a pipeline could not tell their windows; "
        "docs/how-to/read-any-topic.md shows how to read a time"
    )


def _create(output: Path) -> TextIO:
    """Create the file, and return it. Raises ConfigurationError if it exists or cannot be created."""
    with writing("-o", output):
        try:
            return output.open("x", encoding="utf-8")
        except FileExistsError:
            raise ConfigurationError(f"-o: {output}: exists; name another file, or remove it") from None


def _ask(report: dict[str, Any], proposed: Choices) -> Choices:
    """Let the user change the proposals."""
    from skewless.lab.inspection.pipeline_file import usable_keys

    keys = {key["name"]: key for key in usable_keys(report)}
    for key in keys.values():
        click.echo(
            f"  {field_label(key['name'])}: {key['cardinality']:,} distinct, the hottest has {key['max_share']:.2%}"
            + (f", {key['invalid_share']:.2%} of the records are invalid" if key["invalid_share"] else "")
        )
    key = click.prompt("Key", type=click.Choice(list(keys)), default=proposed.key["name"])
    lateness_s = click.prompt("Allowed lateness in s", type=FiniteFloat(min=0), default=proposed.lateness_s)
    workers = click.prompt("Workers", type=click.IntRange(1, 64), default=proposed.workers)
    return dataclasses.replace(proposed, key=keys[key], lateness_s=lateness_s, workers=workers)


def _has_schemas(report: dict[str, Any]) -> bool:
    """Return whether the records have schemas of a registry."""
    from skewless.parsing.formats import find_format

    chosen = report["format"]["splitter_format"]
    return chosen is not None and find_format(chosen["name"]).has_schemas


def _connections(kafka: KafkaSettings, registry: RegistrySettings | None) -> dict[str, Any]:
    """Return the sections of the connections, without secrets."""
    section = kafka.model_dump(
        exclude_defaults=True,
        mode="json",
        exclude={
            "sasl": {"password": True, "oauthbearer": {"client_secret"}},
            "tls": {"key_password"},
            "options": True,
        },
    )
    section["bootstrap_servers"] = kafka.bootstrap_servers
    if registry is None:
        return {"kafka": section}
    return {
        "kafka": section,
        "registry": registry.model_dump(
            exclude_defaults=True,
            mode="json",
            exclude={"password": True, "oauthbearer": {"client_secret"}, "tls": {"key_password"}},
        ),
    }


def _require_valid(text: str) -> None:
    """Raise ConfigurationError if the text is not a valid pipeline: --name may be wrong."""
    import os
    import tempfile

    from skewless.config.loader import load

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            load(file, os.environ)
        except ConfigurationError as error:
            raise ConfigurationError(*(problem.removeprefix(f"{file}: ") for problem in error.problems)) from None
