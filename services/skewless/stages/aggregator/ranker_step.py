"""Step of the ranker: merges the best keys of each partition into the ranks of a window."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from skewless.algorithms.ranking import Ranking
from skewless.algorithms.watermark import MIN_WATERMARK
from skewless.algorithms.windowing.assigner import SingleWindows
from skewless.algorithms.windowing.window import Emission, WholeWindow
from skewless.algorithms.windowing.window_store import WholeWindowStore, WindowStore
from skewless.engine.step import HistogramSample, Sample
from skewless.stages.aggregator.step import AggregatorRules, AggregatorStep
from skewless.stages.windowed_step import Input, WindowedStep
from skewless.wire.aggregates import TOP_HEADERS, encode_json, top_type
from skewless.wire.record import OutputRecord, public_timestamp
from skewless.wire.top_candidates import CANDIDATES, candidates_json, encode_candidates

RANKED = ""
"""Key of the row of a window with its ranks as of the last emission. The other rows have the candidates."""

REMEDY = (
    "raise the limit and the memory of the ranker; a new pipeline may have shorter windows or a lower aggregator.top.n"
)


class Ranks(msgspec.Struct):
    """The ranks of a window."""

    revision: int
    rows: msgspec.Raw
    """JSON of the rows by rank."""


NO_RANKS = Ranks(-1, msgspec.Raw(b"[]"))


class RankerStep(AggregatorStep):
    """Holds the candidates of each window. Emits one record per rank that has changed, when the aggregator emits.

    With `emit: final`, a window is emitted when the watermarks of all partitions of the aggregator have passed its end.
    """

    store = WholeWindowStore
    changelog = "ranker-changelog"

    def __init__(self, rules: AggregatorRules, ranking: Ranking, *, aggregator_partitions: int, topic: str) -> None:
        """`rules` and `ranking` are those of the aggregator."""
        own = AggregatorRules(
            results=rules.results,
            columns=[CANDIDATES],
            windows=SingleWindows(rules.windows),
            closed_window_retention_ms=rules.closed_window_retention_ms,
            updates=rules.updates,
            lateness_ms=rules.lateness_ms,
            limit=replace(rules.limit, remedy=REMEDY),
        )
        super().__init__(own, worker_partitions=aggregator_partitions, topic=topic)
        self._ranking = ranking
        self._aggregator_partitions = aggregator_partitions
        self._newest: dict[str, int] = {}
        """Start of the newest window of which each partition of the aggregator has sent a list to this process."""
        # The results are copied, so that they keep all their digits.
        fields: list[tuple[str, Any]] = [(part, str) for part in ("key", *rules.key_parts)]
        row_type = msgspec.defstruct("Row", [*fields, *((result.name, msgspec.Raw) for result in rules.results)])
        self._decode: Callable[[bytes], list[Any]] = msgspec.json.Decoder(list[row_type]).decode  # type: ignore[valid-type]
        self._top_type = top_type(rules.results, rules.numbers, rules.key_parts)

    def _merge(self, input_: Input, partials: pa.Table) -> pa.Table | None:
        for partition, window in zip(partials["key"].to_pylist(), partials["pane"].to_pylist(), strict=True):
            self._newest[partition] = max(window, self._newest.get(partition, window))
        return super()._merge(input_, partials)

    def _reached(self, windows: WindowStore) -> int:  # noqa: ARG002 - as its superclass
        """Return the watermark of the slowest partition of the aggregator, whose windows may still change."""
        if len(self._newest) < self._aggregator_partitions:
            return MIN_WATERMARK  # that of a partition without a list in this process is unknown
        return min(self._newest.values()) - self._rules.lateness_ms

    def _results(self, partition: int, emission: Emission) -> Iterator[OutputRecord]:
        """Yield one record for each rank that has changed, and store the ranks in the window."""
        if not isinstance(emission, WholeWindow):
            return
        lists = _lists(emission)
        previous = msgspec.json.decode(lists.pop(RANKED), type=Ranks) if RANKED in lists else NO_RANKS
        candidates = (row for rows in lists.values() for row in self._decode(rows))
        rows = sorted(candidates, key=self._order)[: self._ranking.n]
        ranks = Ranks(previous.revision + 1, msgspec.Raw(encode_json(rows)))
        if ranks.rows == previous.rows:
            return
        partial = encode_candidates(emission.version, ranks)
        table = pa.table({"key": [RANKED], CANDIDATES.name: pa.array([partial], CANDIDATES.type)})
        emission.rows.merge(table, updates=False, reopened=False)
        start, end = emission.window, self._rules.windows.end(emission.window)
        for rank, (row, before) in enumerate(itertools.zip_longest(rows, self._decode(previous.rows)), 1):
            if row == before:
                continue
            key = f"{start}/{rank}".encode()
            value = None
            if row is not None:
                results = msgspec.structs.astuple(row)
                value = encode_json(self._top_type(results[0], start, end, rank, *results[1:], ranks.revision))
            yield OutputRecord("top", value, key, partition, public_timestamp(start), TOP_HEADERS)

    def _order(self, row: Any) -> tuple[Decimal, str]:
        result = Decimal(str(getattr(row, self._ranking.by.name), "ascii").strip('"'))
        return result.copy_negate(), row.key

    def collect_metrics(self) -> Iterator[Sample | HistogramSample]:
        """Yield the size of the state and its limit."""
        return WindowedStep.collect_metrics(self)


def _lists(emission: WholeWindow) -> dict[str, bytes]:
    """Return the JSON of the lists of a window by key."""
    lists: dict[str, bytes] = {}
    for rows in emission.rows.emissions(emission.window, np.arange(len(emission.rows)), updates=False):
        partials = map(candidates_json, rows.data[CANDIDATES.name].tolist())
        lists |= dict(zip(rows.keys.to_pylist(), partials, strict=True))
    return lists
