"""Deltas of panes tell which worker held which key: one record per tick says how even the load was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skewless.algorithms.aggregates.base import COUNT
from skewless.algorithms.distribution import (
    hottest,
    imbalance,
    judged_max_over_avg,
    max_over_avg,
    std_dev,
    tuples_by_worker,
)
from skewless.algorithms.watermark import END_OF_TIME
from skewless.algorithms.windowed import Chunk, Emission, Windows
from skewless.algorithms.windows import starts
from skewless.changelog import chunk_output
from skewless.errors import BadRecordError
from skewless.observer.run import Run
from skewless.observer.shown import samples
from skewless.public_records import HottestKey, RunDistribution, TickDistribution
from skewless.records import (
    PARTIALS,
    PROGRESS,
    Batch,
    Headers,
    Output,
    dead_letter,
    expect,
    fact_timestamp,
    read_partials,
)
from skewless.step import Sample
from skewless.windows_step import UNLIMITED, Input, StateLimit, WindowsStep

RUN_KEY = b"run"
RUN_PARTITION = 0


@dataclass(frozen=True, slots=True)
class ObserverRules:
    """What a tick is and what it tells."""

    tick_ms: int
    workers: int
    hottest: int
    grouping: str
    limit: StateLimit = UNLIMITED


class ObserverStep(WindowsStep):
    """Needs all partitions in one process: a tick is told when all of them have passed its end."""

    def __init__(self, rules: ObserverRules, *, origins: int, partitions: int, topic: str) -> None:
        super().__init__(origins=origins, topic=topic, limit=rules.limit)
        self._rules = rules
        self._partitions = partitions
        self._run = Run()
        self._run_changed = False
        self._ticks = 0
        self._last: TickDistribution | None = None
        """How many ticks were told and the last of them, as `tuples`."""

    def _no_windows(self) -> Windows:
        # A tick that is told is not told again: what an idle origin brings later counts for the run alone.
        return Windows([COUNT], self._rules.tick_ms, keep_ms=0, updates=False)

    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Take back open ticks, and what is remembered of the run."""
        if partition == RUN_PARTITION:
            self._run = next((Run.load(value) for key, value in state if key == RUN_KEY), Run())
        super().assign(partition, position, [(key, value) for key, value in state if key != RUN_KEY])

    def process(self, batch: Batch, now: int) -> Iterator[Output]:
        """Count tuples by key and worker."""
        mine = self._inputs[batch.partition]
        for index, (value, headers) in enumerate(zip(batch.values, batch.headers, strict=True)):
            try:
                self._take_in(mine, value, headers, now)
            except BadRecordError as error:
                yield dead_letter(self._topic, batch, index, error.reason)

    def _take_in(self, mine: Input, value: bytes | None, headers: Headers, now: int) -> None:
        partials = None
        if expect(headers, PARTIALS, PROGRESS) == PARTIALS:
            partials = read_partials(value, ("pane", "key", "count", "worker"))
        self._hear(mine, headers, partials)
        if partials is not None:
            self._remember(partials, now)
            self._merge(mine, _by_worker(self._not_told(mine, partials)))

    def _not_told(self, mine: Input, partials: pa.Table) -> pa.Table:
        if mine.windows.closed_to is None:
            return partials
        ends = starts(partials["pane"].to_numpy(), self._rules.tick_ms) + self._rules.tick_ms
        return partials.filter(pa.array(ends > mine.windows.closed_to))

    def _remember(self, partials: pa.Table, now: int) -> None:
        workers, counts = partials["worker"].to_numpy().astype(np.int64), partials["count"].to_numpy()
        self._run.add(partials["key"].to_pylist(), workers, tuples_by_worker(workers, counts, 0), now)
        self._run_changed = True

    def flush(self, now: int) -> Iterable[Output]:
        """Write what changed to the changelog, and tell the ticks that are over."""
        self._absorb()
        watermark = self._watermark()
        end = max((mine.windows.end for mine in self._inputs.values() if mine.windows.end is not None), default=None)
        told: dict[int, list[Emission]] = {}
        for partition, mine in self._inputs.items():
            mine.ended = watermark == END_OF_TIME
            for part in mine.windows.flush(end if mine.ended else watermark):
                if isinstance(part, Chunk):
                    yield chunk_output("ticks", partition, part)
                else:
                    told.setdefault(part.window, []).append(part)
        for tick in sorted(told):
            yield self._tick(tick, told[tick], now)
        if self._run_changed and RUN_PARTITION in self._inputs:
            self._run_changed = False
            yield Output("ticks", self._run.save(), RUN_KEY, RUN_PARTITION)

    def resize(self, workers: int) -> None:
        """Compare at least this many workers in the ticks that are told from now on."""
        self._rules = replace(self._rules, workers=workers)

    def _watermark(self) -> int | None:
        if len(self._inputs) < self._partitions:
            return None
        marks = [mine.marks.watermark() for mine in self._inputs.values()]
        return None if None in marks else min(mark for mark in marks if mark is not None)

    def _tick(self, tick: int, emissions: Sequence[Emission], now: int) -> Output:
        rules = self._rules
        keys, workers, counts = _rows(emissions)
        tuples = tuples_by_worker(workers, counts, rules.workers)
        self._run.add_tick(judged_max_over_avg(tuples))
        self._run_changed = True
        distinct = pc.count_distinct(keys).as_py()
        run_tuples = tuples_by_worker(np.arange(len(self._run.tuples)), self._run.tuples, rules.workers)
        duration = max(0, now - (self._run.first_ms or now))
        total = int(run_tuples.sum())
        record = TickDistribution(
            tick_start=tick,
            tick_end=tick + rules.tick_ms,
            grouping=rules.grouping,
            workers=len(tuples),
            tuples=int(tuples.sum()),
            tuples_by_worker=tuples.tolist(),
            keys=distinct,
            std_dev=std_dev(tuples),
            imbalance=imbalance(tuples),
            max_over_avg=max_over_avg(tuples),
            dist_cost=len(keys) / distinct if distinct else 0.0,
            hottest_keys=[HottestKey(*row) for row in hottest(keys, counts, rules.hottest)],
            run=RunDistribution(
                total_count=total,
                duration=duration,
                throughput_ratio=total * 1000 / duration if duration else 0.0,
                tuples_by_worker=run_tuples.tolist(),
                std_dev=std_dev(run_tuples),
                imbalance=imbalance(run_tuples),
                max_over_avg=max_over_avg(run_tuples),
                dist_cost=self._run.dist_cost(),
                worst_tick_max_over_avg=self._run.worst_tick_max_over_avg,
            ),
        )
        self._ticks += 1
        self._last = record
        return Output("distribution", msgspec.json.encode(record), str(tick).encode(), 0, fact_timestamp(tick))

    def samples(self) -> Iterator[Sample]:
        """Tell the last tick."""
        yield from super().samples()
        yield Sample("skewless_observer_ticks_total", (), self._ticks)
        if self._last is not None:
            yield from samples(self._last)


def _by_worker(partials: pa.Table) -> pa.Table:
    """Put the worker into the key: `<worker>/<key>`."""
    pairs = [
        f"{worker}/{key}"
        for worker, key in zip(partials["worker"].to_pylist(), partials["key"].to_pylist(), strict=True)
    ]
    return pa.table({"pane": partials["pane"], "key": pa.array(pairs, pa.string()), "count": partials["count"]})


def _rows(emissions: Sequence[Emission]) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return the keys, workers and counts of all rows."""
    pairs = pa.concat_arrays([emission.keys for emission in emissions])
    parts = pc.list_flatten(pc.split_pattern(pairs, "/", max_splits=1))
    workers = parts.take(pa.array(np.arange(0, len(parts), 2))).cast(pa.int64()).to_numpy()
    counts = np.concatenate([emission.data["count"] for emission in emissions])
    return parts.take(pa.array(np.arange(1, len(parts), 2))), workers, counts
