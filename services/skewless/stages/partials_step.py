"""Base class of the steps that read partials."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

from skewless.algorithms.aggregates import LOAD_COLUMN, PartialColumn
from skewless.algorithms.partials import newest_pane
from skewless.algorithms.watermark import WatermarkTracker
from skewless.engine.step import Step
from skewless.wire.headers import WATERMARK, require_schema, update_watermarks
from skewless.wire.partials import PARTIALS, read_partials
from skewless.wire.record import Headers


@dataclass(slots=True)
class PartialsInput:
    """One partition of partials."""

    watermarks: WatermarkTracker
    newest_pane: int | None = field(default=None, kw_only=True)
    """Start of the newest pane."""


PartitionInput = TypeVar("PartitionInput", bound=PartialsInput)


class PartialsStep(Step, Generic[PartitionInput]):
    """Reads partials and watermarks.

    `worker_partitions` is the number of partitions of worker-input: each has a watermark in partials.
    """

    def __init__(self, *, worker_partitions: int) -> None:
        self._worker_partitions = worker_partitions
        self._inputs: dict[int, PartitionInput] = {}

    def revoke(self, partition: int) -> None:
        """Drop what was read since the last commit. The rest is stored."""
        self._inputs.pop(partition, None)

    def _read_record(
        self,
        input_: PartitionInput,
        value: bytes | None,
        headers: Headers,
        columns: Iterable[PartialColumn],
        fields: Iterable[str] = ("pane", "key"),
    ) -> pa.Table | None:
        """Return the partials of a record, with these columns and LOAD_COLUMN; None if it has watermarks only.

        Raises BadRecordError.
        """
        partials = None
        if require_schema(headers, PARTIALS, WATERMARK) == PARTIALS:
            partials = read_partials(value, fields, (LOAD_COLUMN, *columns))
        update_watermarks(input_.watermarks, headers)
        if partials is not None:
            self.tuples += int(partials[LOAD_COLUMN.name].to_numpy().sum())
            input_.newest_pane = newest_pane(partials, input_.newest_pane)
        return partials

    def watermark(self, partition: int) -> int | None:
        """Return the watermark of the partition: the minimum over the worker partitions."""
        return self._inputs[partition].watermarks.watermark()

    def idle(self, partition: int) -> bool:
        """Return whether all worker partitions are idle."""
        return self._inputs[partition].watermarks.state().idle

    def max_event_time(self, partition: int) -> int | None:
        """Return the start of the newest pane in ms."""
        return self._inputs[partition].newest_pane
