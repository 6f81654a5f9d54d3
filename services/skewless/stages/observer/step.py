"""Step of the observer: measures from partials the load of each worker, and emits one record per tick.

The load is that of rows: tuples, or rows in which the splitter has aggregated several tuples. Keys count by tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET
from numpy.typing import NDArray

from skewless.algorithms.aggregates import LOAD_COLUMN, ROWS_COLUMN
from skewless.algorithms.hot_keys import KeyLoad, TickLoad, changes
from skewless.algorithms.load_metrics import (
    imbalance,
    judged_max_over_avg,
    load_stddev_percent,
    max_over_avg,
    sums_by_worker,
    top_keys,
)
from skewless.algorithms.partials import merge_partials
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.algorithms.windowing.assigner import starts, tumbling
from skewless.algorithms.windowing.window import Chunk, Emission
from skewless.algorithms.windowing.window_store import WindowStore
from skewless.engine.step import HistogramSample, Sample
from skewless.errors import BadRecordError
from skewless.stages.observer.metrics import samples
from skewless.stages.observer.run_statistics import RunStatistics
from skewless.stages.windowed_step import UNLIMITED, Input, StateLimit, WindowedStep
from skewless.wire.changelog import chunk_output, decode_checkpoint, encode_checkpoint
from skewless.wire.columns import WriteColumns, write_packed
from skewless.wire.dead_letters import dead_letter
from skewless.wire.distribution import DISTRIBUTION_HEADERS, RunDistribution, TickDistribution, TopKey
from skewless.wire.hot_keys import HOT_KEY_HEADERS, HotKeyChange
from skewless.wire.partials import read_partials, with_rows
from skewless.wire.record import Batch, Headers, OutputRecord, public_timestamp

RUN_KEY = b"run"
HOT_KEYS_KEY = b"hot-keys"
UNSAVED_KEY = b"partials"
"""Key of the partials that were read again, in the state of a partition. The other keys are those of the changelog."""
RUN_PARTITION = 0
"""Partition of the changelog with the state of the whole run and the hot keys."""
FIELDS = ("pane", "key", "worker")
COLUMNS = (LOAD_COLUMN, ROWS_COLUMN)
KEPT_PAIRS = (1000, 100, 10, 1)
"""Numbers of pairs of key and worker that a reduced tick keeps of each partition: those with most tuples. The next one
is for a state that is still too large."""
REDUCTIONS_PER_CHECK = 2000
"""Number of reductions after which a check ends once the state is below the limit. Each takes about 0.7 milliseconds,
and a check must end within the timeout of a transaction."""
TICKS_PER_COMMIT = 500
"""Default of `ticks_per_commit`. A year of one-minute ticks, which may end at the same time, takes longer than a
transaction may. A tick takes about a millisecond, and many times as long on a machine with too much work."""
SAVE_INTERVAL_MS = 120_000
"""Default of `save_interval_ms`."""
UNSAVED_BYTES = 32 * 2**20
"""Bytes of partials in memory above which the changelog is written. A restart reads so many again."""


@dataclass(frozen=True, slots=True)
class ObserverRules:
    """Settings of ticks and of their measures."""

    tick_ms: int
    workers: int
    top_keys: int
    grouping: str
    write: WriteColumns = write_packed
    limit: StateLimit = UNLIMITED


class ObserverStep(WindowedStep):
    """Counts tuples and rows by tick, worker and key.

    A tick is emitted when the watermarks of all partitions passed its end. Therefore one process must have all
    partitions of partials.

    The changelog is written when ticks end, and otherwise every two minutes: the checkpoint has the offsets of the
    partials that were merged since then, and a restart reads them again.
    """

    def __init__(self, rules: ObserverRules, *, worker_partitions: int, aggregator_partitions: int, topic: str) -> None:
        super().__init__(worker_partitions=worker_partitions, topic=topic, limit=rules.limit)
        self._rules = rules
        self._aggregator_partitions = aggregator_partitions
        self._run = RunStatistics()
        self._run_changed = False
        self._hot_since: dict[str, int] = {}
        """Start of the tick in which each hot key became hot."""
        self._hot_changed = False
        self.ticks_per_commit = TICKS_PER_COMMIT
        """Maximum number of ticks that a commit emits."""
        self.save_interval_ms = SAVE_INTERVAL_MS
        """Wall-clock time after which the changelog is written although no tick has ended. 0: at each commit."""
        self._saved_at: int | None = None
        """Wall-clock time in ms at which this process has written the changelog."""
        self._unsaved: dict[int, tuple[int, int]] = {}
        """Offsets (first, and end exclusive) by partition of the partials that are not in the changelog."""
        self._unsaved_bytes = 0
        """Bytes of the records in these ranges that this process has received."""
        self._reread: dict[int, list[pa.Table]] = {}
        """Partials that were read again, by partition: they count in the run when all partitions are assigned."""
        self._reduced: set[int] = set()
        """Starts of the open ticks that this process has reduced."""
        self._reduced_ticks = 0
        """Number of ticks that were reduced since the process started, for the metrics."""
        self._emitted_ticks = 0
        """Number of ticks that were emitted since the process started, for the metrics."""
        self._last_tick: TickDistribution | None = None

    def _new_store(self) -> WindowStore:
        # A tick is emitted only once. Later tuples of an idle source partition count for the run only.
        return WindowStore(COLUMNS, tumbling(self._rules.tick_ms), retention_ms=0, updates=False)

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Restore open ticks and the statistics of the run, also from partials that were read again."""
        if partition == RUN_PARTITION:
            values = dict(state)
            self._run = RunStatistics.load(values[RUN_KEY]) if RUN_KEY in values else RunStatistics()
            hot_since = values.get(HOT_KEYS_KEY)
            self._hot_since = msgspec.msgpack.decode(hot_since, type=dict[str, int]) if hot_since else {}
        others = {RUN_KEY, HOT_KEYS_KEY, UNSAVED_KEY}
        super().assign(partition, checkpoint, [(key, value) for key, value in state if key not in others])
        if unsaved := decode_checkpoint(checkpoint).unsaved:
            self._unsaved[partition] = unsaved
        input_, reread = self._inputs[partition], self._reread.setdefault(partition, [])
        for value in (value for key, value in state if key == UNSAVED_KEY):
            with suppress(BadRecordError):  # it has a dead letter
                reread.append(read_partials(value, FIELDS, COLUMNS))
                self._merge(input_, self._unreported(input_, _with_pair_keys(reread[-1])))

    def revoke(self, partition: int) -> None:
        """Drop the state of the partition."""
        super().revoke(partition)
        self._unsaved.pop(partition, None)
        self._reread.pop(partition, None)

    def _read_chunk(self, value: bytes) -> pa.Table:
        return with_rows(super()._read_chunk(value), COLUMNS)

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Count tuples and rows by key and worker."""
        self._count_reread(now)
        input_ = self._inputs[batch.partition]
        first, _ = self._unsaved.get(batch.partition, (batch.offsets[0], 0))
        self._unsaved[batch.partition] = first, batch.offsets[-1] + 1
        self._unsaved_bytes += batch.size
        for index, (value, headers) in enumerate(zip(batch.values, batch.headers, strict=True)):
            try:
                self._merge_record(input_, value, headers, now)
            except BadRecordError as error:
                yield dead_letter(self._topic, batch, index, error.reason)

    def _merge_record(self, input_: Input, value: bytes | None, headers: Headers, now: int) -> None:
        partials = self._read_record(input_, value, headers, COLUMNS, FIELDS)
        if partials is not None:
            pairs = _with_pair_keys(partials)
            self._add_to_run(partials, pairs["key"], now)
            self._merge(input_, self._unreported(input_, pairs))

    def _merge(self, input_: Input, partials: pa.Table) -> None:
        """Hold partials for the next flush, which knows the ticks that have ended."""
        input_.held.append(partials)
        if self._is_check_due(partials):
            self._take_held(None)
            self._check_state()

    def _take_held(self, watermark: int | None) -> list[Emission]:
        """Merge held partials into their ticks. Return ticks that have ended and of which nothing was stored before.

        A year of ticks may end at once, and in the store each takes a millisecond per partition.
        """
        stored = {start for windows in self._window_stores() for start in windows.starts}
        held = [(input_, partials) for input_ in self._inputs.values() for partials in input_.held]
        ticks_of = [starts(partials["pane"].to_numpy(), self._rules.tick_ms) for _, partials in held]
        ticks = np.unique(np.concatenate(ticks_of)) if held and watermark is not None else np.empty(0, np.int64)
        ended = ticks[(ticks > max(stored, default=-MAX_WATERMARK)) & (ticks <= (watermark or 0) - self._rules.tick_ms)]
        # None if there are more ticks than a commit may emit: they would overtake earlier ones that are stored.
        whole = ended if len(stored.union(ticks.tolist())) <= self.ticks_per_commit else ended[:0]
        tables = []
        for (input_, partials), tick in zip(held, ticks_of, strict=True):
            is_whole = np.isin(tick, whole)
            if is_whole.any():
                with_tick = partials.set_column(partials.schema.get_field_index("pane"), "pane", pa.array(tick))
                tables.append(with_tick.filter(pa.array(is_whole)))
            if not is_whole.all():
                super()._merge(input_, partials.filter(pa.array(~is_whole)))
        for input_ in self._inputs.values():
            input_.held = []
        return list(_emissions(tables)) if len(whole) else []

    def _check_state(self) -> None:
        """Reduce the largest ticks while the state is too large, because the pipeline must go on without the measures.

        Raises LimitError if that is not enough.
        """
        # Merged rows may take more memory than the pending ones.
        if self._state_bytes() > self._limit.max_bytes // 2:
            for windows in self._window_stores():
                windows.absorb()
        if self._state_bytes() > self._limit.max_bytes:
            self._reduce_ticks()
        super()._check_state()

    def _reduce_ticks(self) -> None:
        """Reduce the largest ticks until the state is half the limit, so that checks without reductions follow."""
        state_bytes, limit = self._state_bytes(), self._limit.max_bytes
        ticks = ((kept, *tick) for kept in KEPT_PAIRS for tick in self._largest_first(kept))
        for reductions, (kept, start, windows) in enumerate(ticks):
            if state_bytes <= (limit // 2 if reductions < REDUCTIONS_PER_CHECK else limit):
                break
            freed = windows.reduce(start, kept, _without_small_pairs)
            if freed > 0:
                self._note_reduced(start)
            state_bytes -= freed

    def _note_reduced(self, tick_start: int) -> None:
        if tick_start not in self._reduced:
            self._reduced.add(tick_start)
            self._reduced_ticks += 1

    def _largest_first(self, kept: int) -> list[tuple[int, WindowStore]]:
        """Return start and store of each tick in memory of which a reduction to so many pairs may drop some."""
        sizes = [
            (nbytes, start, windows)
            for windows in self._window_stores()
            for start, nbytes in windows.reducible(kept).items()
        ]
        return [(start, windows) for _, start, windows in sorted(sizes, key=itemgetter(0), reverse=True)]

    def _unreported(self, input_: Input, partials: pa.Table) -> pa.Table:
        """Return the partials of ticks that were not emitted yet."""
        if input_.windows.closed_until is None:
            return partials
        ends = starts(partials["pane"].to_numpy(), self._rules.tick_ms) + self._rules.tick_ms
        return partials.filter(pa.array(ends > input_.windows.closed_until))

    def _add_to_run(self, partials: pa.Table, pairs: pa.ChunkedArray, now: int) -> None:
        workers = partials["worker"].to_numpy().astype(np.int64)
        tuples, rows = (sums_by_worker(workers, partials[column.name].to_numpy(), 0) for column in COLUMNS)
        self._run.add(partials["key"], pairs, tuples, rows, now)
        self._run_changed = True

    def _count_reread(self, now: int) -> None:
        """Count partials that were read again in the run."""
        for partials in chain.from_iterable(self._reread.values()):
            self._add_to_run(partials, _with_pair_keys(partials)["key"], now)
        self._reread.clear()

    def flush(self, now: int) -> Iterable[OutputRecord]:
        """Yield the ticks that have ended, and changelog records for all changes if they are due."""
        self._count_reread(now)
        watermark = self._min_watermark()
        whole = self._take_held(watermark)
        has_ended = watermark == MAX_WATERMARK
        if has_ended:
            ends = [windows.end for windows in self._window_stores()]
            ends += [emission.window + self._rules.tick_ms for emission in whole[-1:]]
            watermark = max((end for end in ends if end is not None), default=None)
        last_end = self._last_end(watermark)
        is_save_due = bool(whole) or self._is_save_due(last_end, now)
        # Partials stay pending until the changelog is written: many commits are merged at once.
        if is_save_due:
            self._absorb()
        else:
            self._check_state()
        for input_ in self._inputs.values():
            input_.ended = has_ended and last_end == watermark
            input_.windows.advance(last_end)
        if is_save_due:
            self._saved_at, self._unsaved_bytes = now, 0
            self._unsaved.clear()
            yield from self._save({emission.window: [emission] for emission in whole}, last_end, now)

    def _is_save_due(self, last_end: int | None, now: int) -> bool:
        """Return whether a tick ends, or the changelog must be written although none ends."""
        starts = (start for windows in self._window_stores() for start in windows.starts)
        if any(self._has_ended(start, last_end) for start in starts):
            return True
        # The first commit of a process also writes: so a process that is killed again and again makes progress.
        is_late = self._saved_at is None or not 0 <= now - self._saved_at < self.save_interval_ms
        # Without this partition, the run cannot be written: the next owner reads the partials again and counts them.
        may_save = bool(self._unsaved) and RUN_PARTITION in self._inputs
        return may_save and (is_late or self._unsaved_bytes > UNSAVED_BYTES)

    def _save(
        self, emissions_by_tick: dict[int, list[Emission]], last_end: int | None, now: int
    ) -> Iterator[OutputRecord]:
        """Yield changelog records for all changes, and the ticks that have ended, with these emissions."""
        for partition, input_ in self._inputs.items():
            for output in input_.windows.flush(last_end, now):
                if not isinstance(output, Chunk):
                    emissions_by_tick.setdefault(output.window, []).append(output)
                elif (output.window, output.id) in input_.unwritten:
                    input_.unwritten.remove((output.window, output.id))
                elif output.table is None or output.id.compacted or not self._has_ended(output.window, last_end):
                    yield chunk_output("observer-changelog", partition, output, self._rules.write)
                else:
                    # The tick ends with this commit, so the next one would delete its chunk. A compaction is written,
                    # because it replaces chunks that this commit deletes.
                    input_.unwritten.add((output.window, output.id))
        for tick_start in sorted(emissions_by_tick):
            yield from self._tick_records(tick_start, emissions_by_tick[tick_start], now)
        if self._run_changed:
            self._run_changed = False
            yield OutputRecord("observer-changelog", self._run.save(), RUN_KEY, RUN_PARTITION)
        if self._hot_changed:
            self._hot_changed = False
            hot_since = msgspec.msgpack.encode(self._hot_since)
            yield OutputRecord("observer-changelog", hot_since, HOT_KEYS_KEY, RUN_PARTITION)

    def checkpoint(self, partition: int) -> str:
        """Return the checkpoint, with the offsets of the partials that are not in the changelog."""
        input_ = self._inputs[partition]
        return encode_checkpoint(input_.watermarks, input_.windows, self._unsaved.get(partition, UNSET))

    def set_workers(self, workers: int) -> None:
        """Measure the load of at least this many workers in the ticks that are emitted from now on."""
        self._rules = replace(self._rules, workers=workers)

    def _min_watermark(self) -> int | None:
        """Return the minimum over all partitions. None while one is not assigned or has no watermark."""
        if len(self._inputs) < self._aggregator_partitions:
            return None
        watermarks = [input_.watermarks.watermark() for input_ in self._inputs.values()]
        return None if None in watermarks else min(watermark for watermark in watermarks if watermark is not None)

    def _last_end(self, watermark: int | None) -> int | None:
        """Return the end of the last tick that the next commit may emit, at most the watermark."""
        if watermark is None:
            return None
        starts = {start for windows in self._window_stores() for start in windows.starts}
        ends = sorted(start + self._rules.tick_ms for start in starts if start + self._rules.tick_ms <= watermark)
        return ends[self.ticks_per_commit - 1] if len(ends) > self.ticks_per_commit else watermark

    def _has_ended(self, tick_start: int, last_end: int | None) -> bool:
        return last_end is not None and tick_start + self._rules.tick_ms <= last_end

    def _tick_records(self, tick_start: int, emissions: Sequence[Emission], now: int) -> Iterator[OutputRecord]:
        """Yield the measures of a tick and the changes of the hot keys."""
        rules = self._rules
        workers, data, load, is_complete = _pairs(emissions)
        tuples, rows = (sums_by_worker(workers, data[column.name], rules.workers) for column in COLUMNS)
        self._run.add_tick(judged_max_over_avg(rows))
        self._run_changed = True
        distinct_keys = pc.count_distinct(load.keys).as_py()
        run_workers = np.arange(len(self._run.tuples))
        run_tuples, run_rows = (
            sums_by_worker(run_workers, sums, rules.workers) for sums in (self._run.tuples, self._run.rows)
        )
        duration_ms = max(0, now - (self._run.first_ms or now))
        total_tuples = int(run_tuples.sum())
        record = TickDistribution(
            tick_start=tick_start,
            tick_end=tick_start + rules.tick_ms,
            grouping=rules.grouping,
            workers=len(tuples),
            tuples=int(tuples.sum()),
            tuples_by_worker=tuples.tolist(),
            keys=distinct_keys,
            rows=int(rows.sum()),
            rows_by_worker=rows.tolist(),
            load_stddev_percent=load_stddev_percent(rows),
            imbalance=imbalance(rows),
            max_over_avg=max_over_avg(rows),
            replication_factor=len(load.keys) / distinct_keys if distinct_keys else 0.0,
            top_keys=[TopKey(*row) for row in top_keys(load.keys, load.tuples, rules.top_keys)],
            run=RunDistribution(
                tuples=total_tuples,
                duration_ms=duration_ms,
                tuples_per_s=total_tuples * 1000 / duration_ms if duration_ms else 0.0,
                tuples_by_worker=run_tuples.tolist(),
                rows=int(run_rows.sum()),
                rows_by_worker=run_rows.tolist(),
                load_stddev_percent=load_stddev_percent(run_rows),
                imbalance=imbalance(run_rows),
                max_over_avg=max_over_avg(run_rows),
                replication_factor=self._run.replication_factor(),
                worst_tick_max_over_avg=self._run.worst_tick_max_over_avg,
            ),
            reduced=not is_complete,
        )
        self._emitted_ticks += 1
        self._reduced.discard(tick_start)
        self._last_tick = record
        key, timestamp = str(tick_start).encode(), public_timestamp(tick_start)
        yield OutputRecord("distribution", msgspec.json.encode(record), key, 0, timestamp, DISTRIBUTION_HEADERS)
        yield from self._hot_key_records(record, TickLoad(load.keys, load.tuples, record.workers, record.tuples))

    def _hot_key_records(self, tick: TickDistribution, load: TickLoad) -> Iterator[OutputRecord]:
        changed = changes(self._hot_since, load)
        for key, key_load in changed.risen.items():
            self._hot_since[key] = tick.tick_start
            yield _hot_key_record(tick, key, key_load, hot=True, hot_since=tick.tick_start)
        for key, key_load in changed.fallen.items():
            yield _hot_key_record(tick, key, key_load, hot=False, hot_since=self._hot_since.pop(key))
        self._hot_changed |= bool(changed.risen or changed.fallen)

    def collect_metrics(self) -> Iterator[Sample | HistogramSample]:
        """Yield the measures of the last tick."""
        yield from super().collect_metrics()
        yield Sample("skewless_observer_ticks_total", (), self._emitted_ticks)
        yield Sample("skewless_observer_reduced_ticks_total", (), self._reduced_ticks)
        yield Sample("skewless_observer_hot_keys", (), len(self._hot_since))
        if self._last_tick is not None:
            yield from samples(self._last_tick)


def _hot_key_record(tick: TickDistribution, key: str, load: KeyLoad, *, hot: bool, hot_since: int) -> OutputRecord:
    change = HotKeyChange(
        key=key,
        hot=hot,
        share=load.tuples / tick.tuples,
        worker_share=1 / tick.workers,
        workers=load.workers,
        tuples=load.tuples,
        hot_since=hot_since,
        tick_start=tick.tick_start,
        tick_end=tick.tick_end,
    )
    timestamp = public_timestamp(tick.tick_start)
    return OutputRecord("hot-keys", msgspec.json.encode(change), key.encode(), 0, timestamp, HOT_KEY_HEADERS)


def _with_pair_keys(partials: pa.Table) -> pa.Table:
    """Return the partials with keys of the form `<worker>/<key>`."""
    pairs = pc.binary_join_element_wise(partials["worker"].cast(pa.string()), partials["key"], "/")
    columns = {column.name: partials[column.name] for column in COLUMNS}
    return pa.table({"pane": partials["pane"], "key": pairs, **columns})


def _emissions(tables: Sequence[pa.Table]) -> Iterator[Emission]:
    """Yield the rows of each tick, from partials whose pane is their tick."""
    rows = merge_partials(tables, ("pane", "key"), COLUMNS).sort_by("pane").combine_chunks()
    ticks, keys = rows["pane"].to_numpy(), rows["key"].combine_chunks()
    data = {column.name: rows[column.name].to_numpy() for column in COLUMNS}
    cuts = np.flatnonzero(np.diff(ticks)) + 1
    for first, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(ticks)], strict=True):
        columns = {name: values[first:end] for name, values in data.items()}
        yield Emission(int(ticks[first]), keys.slice(first, end - first), columns)


class _Load(NamedTuple):
    """Pairs of key and worker of a tick, or those with most tuples."""

    keys: pa.Array
    tuples: NDArray[np.int64]


def _pairs(emissions: Sequence[Emission]) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]], _Load, bool]:
    """Return the worker and the columns of each row, the rows that have a key, and whether these are all rows.

    The keys of the rows have the form `<worker>/<key>`, or `<worker>` for the sum of several keys.
    """
    pairs = pa.concat_arrays([emission.keys for emission in emissions])
    parts = pc.split_pattern(pairs, "/", max_splits=1)
    workers = pc.list_element(parts, 0).cast(pa.int64()).to_numpy()
    data = {column.name: np.concatenate([emission.data[column.name] for emission in emissions]) for column in COLUMNS}
    with_key = np.flatnonzero(pc.list_value_length(parts).to_numpy() == 2)
    load = _Load(pc.list_element(parts.take(pa.array(with_key)), 1), data[LOAD_COLUMN.name][with_key])
    return workers, data, load, len(with_key) == len(workers)


def _without_small_pairs(rows: pa.Table, kept: int) -> pa.Table:
    """Return so many pairs with most tuples, and a row for each worker with the sums of its other pairs."""
    with_key = pc.greater_equal(pc.find_substring(rows["key"], "/"), 0)
    order = pc.sort_indices(rows.filter(with_key)[LOAD_COLUMN.name], sort_keys=[("", "descending")])
    pairs = rows.filter(with_key).take(order)
    others = pa.concat_tables([rows.filter(pc.invert(with_key)), pairs.slice(kept)])
    workers = pc.list_element(pc.split_pattern(others["key"], "/", max_splits=1), 0).cast(pa.int64()).to_numpy()
    sums = {column.name: sums_by_worker(workers, others[column.name].to_numpy(), 0) for column in COLUMNS}
    present = np.unique(workers)
    summed = pa.table({"key": present.astype(str), **{name: values[present] for name, values in sums.items()}})
    return pa.concat_tables([pairs.slice(0, kept), summed.select(rows.column_names)])
