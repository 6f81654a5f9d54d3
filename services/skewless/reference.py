"""The reference pages of the documentation, made of the code itself: `python -m skewless.reference FOLDER`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
import msgspec
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from skewless import cli, config, errors, metrics, topology
from skewless.algorithms.aggregates import AGGREGATES
from skewless.algorithms.grouping import GROUPINGS
from skewless.asyncapi.document import as_yaml, document
from skewless.asyncapi.page import table, topic_sections
from skewless.metrics.base import SECONDS
from skewless.settings import PipelineSettings
from skewless.transport import topics

WIDTH = 100
MADE = "<!-- Made by `make docs` from the code. Change the code, not this page. -->"
SETTINGS_INTRO = f"""\
# Settings

A pipeline is one YAML file. Every name below is a path in it; what is not set has its default.
`skewless config check` names every mistake at once, `skewless config dump` prints what is in effect.
Names that end in `_s` are seconds, in `_ms` milliseconds, in `_bytes` bytes.

The environment wins over the file: `{config.PREFIX}ROUTER__WORKERS=4` sets `router.workers`. Two underscores part the
names of a path, values are YAML. In names of Kafka options `_` stands for `.`
(`{config.PREFIX}KAFKA__OPTIONS__SOCKET_TIMEOUT_MS`), in names of topics for `-`
(`{config.PREFIX}TOPICS__OPTIONS__WORKER_INPUT__RETENTION_MS`). A variable that names no setting is an error.
A file without the section `splitter` reads plain text; with it, `splitter.format` is json unless it says otherwise."""
TOPICS_INTRO = """\
# Topics and records

A topic's full name is `<pipeline>.<name>`. Public topics are the API: one JSON object per record (`dead-letters`: the
bad record as it came), with the event time as the record's timestamp. The others carry columns between the stages and
may change with any version. Consumers of public topics should set `isolation.level=read_committed`.
With `tracing.enabled` any record may carry the headers `traceparent` and `tracestate` too (W3C trace context).

All of this page is in [asyncapi.yaml](asyncapi.yaml) too, an AsyncAPI 3 document with JSON Schemas of all records.
`skewless topics asyncapi` prints it with the names and numbers of your pipeline."""
COMMANDS_INTRO = """\
# Commands

The [exit codes](errors.md) of all commands are the same.
"""
METRICS_INTRO = """\
# Metrics

Each process shows these at `/metrics` in Prometheus' text format, beside those of the process itself
(`process_resident_memory_bytes` and so on). `metrics.port` says where; `skewless up` gives each process a free port and
prints it. All carry the labels `pipeline` and `stage`, and those below. Counters count the work of one process: what a
rewind repeats counts again. [How to watch a pipeline](../how-to/watch.md) says how to read them."""
ERRORS_INTRO = """\
# Errors

What the user has to act on is one `error:` line per mistake at the end of stderr, and an exit code; never a traceback.
Only a bug has one: the traceback is in the log, and the line behind it says that this is a bug.

| exit code | meaning | `skewless up` |
| --- | --- | --- |
| 0 | done | starts the stage again, with `--drain` the stage has finished |
| 1 | the check that was asked for found a difference, or nothing to compare | a stage never ends so |
| 2 | wrong use or configuration | ends, because a restart would repeat the mistake |
| 3 | broker, store or Spark failed | ends if the stage has never run for a minute, else starts it again |
| 70 | a bug: an uncaught exception | starts the stage again, as after a crash; `--drain` ends after 8 in a row |
| 130 | interrupted by Ctrl-C | starts the stage again |
| 141 | the reader of stdout has closed it, as `head` does | |
| killed by a signal | out of memory, `kill -9`, a crash of compiled code | starts the stage again |
"""

_BASIC = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_LENGTHS = {"min_length": "length at least", "max_length": "length at most"}


def pages() -> dict[str, str]:
    """Make all pages: text by file name."""
    made = {"settings": _settings(), "topics": _topics(), "commands": _commands(), "metrics": _metrics()}
    made["errors"] = _errors()
    texts = {f"{name}.md": "\n".join([MADE, *lines]).rstrip() + "\n" for name, lines in made.items()}
    return texts | {"asyncapi.yaml": f"# {MADE[5:-4]}\n{as_yaml(document())}"}


# Settings


def _settings() -> Iterator[str]:
    yield from SETTINGS_INTRO.splitlines()
    yield from _group("", PipelineSettings)
    yield from ["", "## Groupings", "", "What `router.grouping` may be."]
    modules = {name: inspect.getdoc(importlib.import_module(kind.__module__)) for name, kind in GROUPINGS.items()}
    yield from ["", *table(["name", "does"], [(f"`{name}`", doc or "") for name, doc in modules.items()])]
    yield from ["", "## Aggregates", "", "What `aggregator.aggregates` may list."]
    known = [(f"`{name}`", inspect.getdoc(type(aggregate)) or "") for name, aggregate in AGGREGATES.items()]
    yield from ["", *table(["name", "is"], known)]


def _group(path: str, model: type[BaseModel]) -> Iterator[str]:
    """Tell one group of settings, then the groups in it."""
    yield from ["", f"## `{path}`" if path else "## The pipeline itself", "", inspect.getdoc(model) or ""]
    fields = {name: field for name, field in model.model_fields.items() if not _model_of(field.annotation)}
    rows = [
        (f"`{path}.{name}`" if path else f"`{name}`", _kind_of(field), _default(field), field.description or "")
        for name, field in fields.items()
    ]
    if rows:
        yield from ["", *table(["setting", "value", "default", "meaning"], rows)]
    for name, field in model.model_fields.items():
        if inner := _model_of(field.annotation):
            yield from _group(f"{path}.{name}" if path else name, inner)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _kind_of(field: FieldInfo) -> str:
    return ", ".join([_kind(field.annotation), *_constraints(field.metadata)])


def _kind(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in args)
    if origin in (Union, UnionType):
        return " or ".join(map(_kind, args))
    if origin is Annotated:
        return _kind(args[0])
    if origin is tuple:
        return f"list of {_kind(args[0])}"
    if origin is dict:
        return "mapping"
    return "text, hidden when shown" if annotation is SecretStr else _BASIC[annotation]


def _constraints(metadata: Iterable[Any]) -> Iterator[str]:
    for entry in metadata:
        for name, words in (_BOUNDS | _LENGTHS).items():
            if (bound := getattr(entry, name, None)) is not None:
                yield f"{words} {bound:,}" if isinstance(bound, int) else f"{words} {bound:g}"
        if pattern := getattr(entry, "pattern", None):
            yield f"matches `{pattern}`"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    return f"`{msgspec.json.encode(default).decode()}`"


# Topics and records


def _topics() -> Iterator[str]:
    yield from TOPICS_INTRO.splitlines()
    yield from ["", "## Stages", ""]
    sinks = [(row.name, _code(row.source), ", ".join(map(_code, row.sinks)), row.does) for row in topology.STAGES]
    yield from table(["stage", "reads", "writes", "what it does"], sinks)
    yield from ["", "`source` is your own topic.", "", "## Topics", ""]
    yield from table(["topic", "public", "partitions", "key", "record", "cleanup"], map(_topic_row, topology.TOPICS))
    yield from ["", "`skewless topics apply` makes them with these options; `topics.options` changes or adds some.", ""]
    example = PipelineSettings.model_validate({"name": "x", "source": {"topic": "y"}})
    wanted = topics.desired_topics(example, source_partitions=1)
    yield from table(["topic", "options"], [(_code(spec.name[2:]), _options(spec)) for spec in wanted])
    yield from topic_sections(document())


def _topic_row(topic: topology.Topic) -> Sequence[str]:
    sizes = {
        "source": "as the source",
        "max_workers": "`worker_input.max_workers`",
        "aggregator": "`topics.aggregator_partitions`",
        "one": "1",
    }
    public = "yes" if topic.public else "no"
    return _code(topic.name), public, sizes[topic.partitions], topic.key, topic.record, topic.cleanup


def _options(spec: topics.TopicSpec) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in spec.options.items())


# Commands


def _commands() -> Iterator[str]:
    yield from COMMANDS_INTRO.splitlines()
    for name in cli.COMMANDS:
        command = cli.main.get_command(click.Context(cli.main), name)
        if command is not None:
            yield from _command(f"skewless {name}", command)


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path, terminal_width=WIDTH)
    yield from ["", f"## `{path}`", "", "```text", command.get_help(context), "```"]
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            yield from _command(f"{path} {name}", part)


# Metrics and errors


def _metrics() -> Iterator[str]:
    yield from METRICS_INTRO.splitlines()
    yield ""
    rows = [
        (
            _code(row.name),
            row.kind,
            ", ".join(row.stages) or "every stage",
            ", ".join(map(_code, row.labels)),
            row.unit,
            row.meaning,
        )
        for row in metrics.METRICS
    ]
    yield from table(["metric", "kind", "shown by", "labels", "unit", "meaning"], rows)
    yield from ["", f"Buckets of the histograms, in seconds: {', '.join(f'{bound:g}' for bound in SECONDS)}."]


def _errors() -> Iterator[str]:
    yield from ERRORS_INTRO.splitlines()
    yield from ["", "```text", (inspect.getdoc(errors) or "").partition("\n\n")[2], "```"]
    for kind in _tree(errors.SkewlessError):
        code = "never ends a process" if kind is errors.BadRecordError else f"exit code {kind.exit_code}"
        yield from ["", f"## `{kind.__name__}`: {code}", "", inspect.getdoc(kind) or ""]


def _tree(root: type[errors.SkewlessError]) -> Iterator[type[errors.SkewlessError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child)


def _code(text: str) -> str:
    return f"`{text}`"


def main(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
