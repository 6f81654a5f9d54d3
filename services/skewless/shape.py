"""The settings that a pipeline's state and internal records are made by: they are fixed once it has run.

They stand behind each committed position, so that a stage that is started with others says so before it mixes both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from skewless.algorithms import aggregates

if TYPE_CHECKING:
    from skewless.settings import PipelineSettings

_BEHIND = "\n"
"""Between position and shape; no step writes it."""


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """Written as a list, in less than 50 characters: the largest position of a step leaves room for 80."""

    window_ms: int
    tick_ms: int
    columns: str
    """Names of the partial columns, parted by commas."""
    decimals: int


class Saved(NamedTuple):
    """What stood beside a committed offset."""

    position: str | None
    """What the step saved; None when nothing was committed."""
    shape: Shape | None
    """None when nothing was committed, and of versions that wrote none."""


def shape_of(settings: PipelineSettings) -> Shape:
    """Tell what these settings fix."""
    columns = aggregates.columns_of([aggregates.create(name) for name in ("count", *settings.aggregator.aggregates)])
    return Shape(
        window_ms=settings.aggregator.window_ms,
        tick_ms=settings.observer.tick_ms,
        columns=",".join(sorted(column.name for column in columns)),
        decimals=settings.splitter.value.decimals,
    )


def write_saved(position: str, shape: Shape | None) -> str:
    """Write what is to stand beside an offset."""
    return position if shape is None else f"{position}{_BEHIND}{msgspec.json.encode(shape).decode()}"


def read_saved(metadata: str | None) -> Saved:
    """Read what stood beside an offset."""
    position, _, shape = (metadata or "").partition(_BEHIND)
    return Saved(position or None, msgspec.json.decode(shape, type=Shape) if shape else None)


def differences(before: Shape, now: Shape) -> Iterator[str]:
    """Name the settings that differ, with both values."""
    told = (
        ("aggregator.window_s", before.window_ms / 1000, now.window_ms / 1000),
        ("observer.tick_s", before.tick_ms / 1000, now.tick_ms / 1000),
        ("splitter.value.decimals", before.decimals, now.decimals),
    )
    for name, was, wants in told:
        if was != wants:
            yield f"{name}: is {wants}, was {was}"
    if before.columns != now.columns:
        yield f"aggregator.aggregates: needs the columns {now.columns}, needed {before.columns}"
