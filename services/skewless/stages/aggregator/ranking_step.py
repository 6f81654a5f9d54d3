"""Step of an aggregator whose results are ranked: it also writes the best keys of each window of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from skewless.algorithms.aggregates import LOAD_COLUMN
from skewless.algorithms.ranking import Ranking
from skewless.algorithms.watermark import NOTHING_REPORTED, WatermarkState
from skewless.algorithms.windowing.window import Emission, WholeWindow
from skewless.algorithms.windowing.window_store import WholeWindowStore
from skewless.stages.aggregator.step import AggregatorRules, AggregatorStep
from skewless.wire.headers import schema_header, watermark_records
from skewless.wire.partials import PARTIALS, write_partials
from skewless.wire.record import OutputRecord
from skewless.wire.top_candidates import CANDIDATES, encode_candidates

TOPIC = "top-candidates"


class RankingStep(AggregatorStep):
    """Writes for each emission of a window its best keys among those of the partition, then the watermark."""

    store = WholeWindowStore

    def __init__(self, rules: AggregatorRules, ranking: Ranking, *, worker_partitions: int, topic: str) -> None:
        super().__init__(rules, worker_partitions=worker_partitions, topic=topic)
        self._ranking = ranking
        self._reported: dict[int, WatermarkState] = {}
        """Last reported state by partition."""

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Restore the partition. Its watermark is reported again."""
        super().assign(partition, checkpoint, state)
        self._reported[partition] = NOTHING_REPORTED

    def flush(self, now: int) -> Iterable[OutputRecord]:
        """Yield the records of an aggregator, best keys, and watermarks that have changed."""
        yield from super().flush(now)
        for partition, input_ in self._inputs.items():
            state = input_.watermarks.state()
            if state != self._reported[partition]:
                self._reported[partition] = state
                # After the windows that it closes: the ranker must not close them before.
                yield from watermark_records(TOPIC, [0], {partition: state})

    def _results(self, partition: int, emission: Emission) -> Iterable[OutputRecord]:
        if not isinstance(emission, WholeWindow):
            return super()._results(partition, emission)
        every_row = np.arange(len(emission.rows))
        best = self._ranking.best(emission.rows.emissions(emission.window, every_row, updates=False))
        records = [*self._records(best)]
        table = pa.table(
            {
                "pane": [emission.window],
                "key": [str(partition)],
                LOAD_COLUMN.name: [len(records)],
                CANDIDATES.name: [encode_candidates(emission.version, records)],
            }
        )
        value = write_partials(table, self._rules.write)
        return [OutputRecord(TOPIC, value, partition=0, headers=[schema_header(PARTIALS)])]

    def _records(self, rows: Emission) -> Iterator[msgspec.Struct]:
        bounds = rows.window, self._rules.windows.end(rows.window)
        for key, results in self._presented(rows, are_counted=False):
            yield self._new_record(key, *bounds, *(results or ()))
