"""The state schema: settings that a pipeline's state and internal records depend on. They are fixed once it has run.

Every committed offset carries the schema in its metadata, so that a stage with other settings refuses to start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from skewless.algorithms import aggregates

if TYPE_CHECKING:
    from skewless.settings import PipelineSettings

_SEPARATOR = "\n"
"""Between a step's checkpoint and the schema; no step writes it."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=2, forbid_unknown_fields=True):
    """The state schema. The metadata has it as an array of at most 200 characters that begins with its version.

    The version is the tag. It changes with the fields: a checkpoint of another version is refused.
    """

    window_ms: int
    tick_ms: int
    columns: str
    """Names of the partial columns, separated by commas."""
    decimals: int
    max_workers: int
    """Partitions of worker-input: the source partitions of every partial."""
    aggregator_partitions: int
    """Partitions of partials: a key's hash chooses one of them."""
    emit: Literal["updates", "final"]
    lateness_ms: int


class Saved(NamedTuple):
    """Metadata of a committed offset."""

    position: str | None
    """Checkpoint of the step; None without a commit."""
    shape: Shape | None
    """None without a commit, and of another version's checkpoint."""


def shape_of(settings: PipelineSettings) -> Shape:
    """Return the state schema of these settings."""
    columns = aggregates.columns_of([aggregates.create(name) for name in ("count", *settings.aggregator.aggregates)])
    return Shape(
        window_ms=settings.aggregator.window_ms,
        tick_ms=settings.observer.tick_ms,
        columns=",".join(sorted(column.name for column in columns)),
        decimals=settings.splitter.value.decimals,
        max_workers=settings.worker_input.max_workers,
        aggregator_partitions=settings.topics.aggregator_partitions,
        emit=settings.aggregator.emit,
        lateness_ms=settings.event_time.lateness_ms,
    )


def write_saved(position: str, shape: Shape | None) -> str:
    """Return the metadata of an offset."""
    return position if shape is None else f"{position}{_SEPARATOR}{msgspec.json.encode(shape).decode()}"


def read_saved(metadata: str | None) -> Saved:
    """Read the metadata of an offset; a schema of another version is None."""
    position, _, written = (metadata or "").partition(_SEPARATOR)
    try:
        shape = msgspec.json.decode(written, type=Shape)
    except msgspec.DecodeError:
        shape = None
    return Saved(position or None, shape)


def differences(before: Shape, now: Shape) -> Iterator[str]:
    """Yield a line for each setting that differs, with both values."""
    settings = (
        ("aggregator.window_s", before.window_ms / 1000, now.window_ms / 1000),
        ("aggregator.emit", before.emit, now.emit),
        ("observer.tick_s", before.tick_ms / 1000, now.tick_ms / 1000),
        ("splitter.value.decimals", before.decimals, now.decimals),
        ("event_time.allowed_lateness_s", before.lateness_ms / 1000, now.lateness_ms / 1000),
        ("worker_input.max_workers", before.max_workers, now.max_workers),
        ("topics.aggregator_partitions", before.aggregator_partitions, now.aggregator_partitions),
    )
    for path, was, wants in settings:
        if was != wants:
            yield f"{path}: is {wants}, was {was}"
    if before.columns != now.columns:
        yield f"aggregator.aggregates: needs the columns {now.columns}, needed {before.columns}"
