"""Step of the aggregator: merges partials into windows by key, the only long-lived state of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import PartialColumn, ResultCondition, ResultField, selected
from skewless.algorithms.duration_histogram import Histogram
from skewless.algorithms.watermark import MAX_WATERMARK, MIN_WATERMARK
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.algorithms.windowing.session_store import SessionStore
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.algorithms.windowing.window import Chunk, Emission
from skewless.algorithms.windowing.window_store import WindowStore
from skewless.engine.step import HistogramSample, Sample
from skewless.errors import BadRecordError
from skewless.stages.aggregator.metrics import LATENCY_S
from skewless.stages.windowed_step import UNLIMITED, Input, StateLimit, WindowedStep
from skewless.wire.aggregates import AGGREGATE_HEADERS, Encode, Numbers, aggregate_constructor, encode_json
from skewless.wire.changelog import chunk_output, chunks_by_window
from skewless.wire.columns import WriteColumns, read_table, write_packed
from skewless.wire.dead_letters import WINDOW_EXPIRED, dead_letter, dead_letter_rows
from skewless.wire.headers import newest_read_time, schema_of
from skewless.wire.partials import PARTIALS, read_partials
from skewless.wire.record import Batch, Headers, OutputRecord, OwnHeaders, public_timestamp

ROWS = 8192
"""Number of results that are converted to Python objects at once."""


@dataclass(frozen=True, slots=True)
class AggregatorRules:
    """Settings of windows and of their results."""

    results: Sequence[ResultField]
    columns: Sequence[PartialColumn]
    windows: WindowAssigner
    closed_window_retention_ms: int
    updates: bool
    lateness_ms: int = 0
    """By how much a record may be older than others of its source partition."""
    numbers: Numbers = "number"
    conditions: Sequence[ResultCondition] = ()
    """Conditions that the results of a key must match to be emitted."""
    key_parts: Sequence[str] = ()
    """Names of the parts of a composite key; empty for another key."""
    limit: StateLimit = UNLIMITED
    emit_interval_ms: int = 0
    encode: Encode = encode_json
    """Returns the value of a result in the format of the topic."""
    headers: OwnHeaders = field(default_factory=lambda: AGGREGATE_HEADERS)
    """Headers of results."""
    write: WriteColumns = write_packed
    """Encodes rows of windows."""
    results_retention_ms: int | None = None
    """Time after the start of a window after which the topic deletes its results; None if it keeps them."""
    report_expired: Callable[[int], None] = lambda _window: None
    """Receives the start of a window whose results are deleted as soon as they are written."""


class AggregatorStep(WindowedStep):
    """Merges partials into windows. Emits one record per window and key at each change, or when the window closes."""

    store = WindowStore
    changelog = "aggregator-changelog"

    def __init__(self, rules: AggregatorRules, *, worker_partitions: int, topic: str) -> None:
        super().__init__(worker_partitions=worker_partitions, topic=topic, limit=rules.limit)
        self._rules = rules
        self._closed = self._reopened = self._first_results = self._revisions = 0
        """Numbers of windows and of results since the process started, for the metrics."""
        self._read_times: dict[int, int] = {}
        """Newest read time by partition of the tuples that were merged since the last commit, for the metrics."""
        self._latency = Histogram(LATENCY_S)
        self._new_record = aggregate_constructor(rules.results, rules.numbers, rules.key_parts)
        self._may_report = rules.results_retention_ms is not None

    def _new_store(self) -> WindowStore:
        rules = self._rules
        return self.store(
            rules.columns,
            rules.windows,
            rules.closed_window_retention_ms,
            updates=rules.updates,
            emit_interval_ms=rules.emit_interval_ms,
        )

    def revoke(self, partition: int) -> None:
        """Drop the state of the partition."""
        super().revoke(partition)
        self._read_times.pop(partition, None)

    def windows_to_reopen(self, batch: Batch) -> set[int]:
        """Return the closed windows of the partials in a batch. Pass them to `reopen` before the batch is processed."""
        input_ = self._inputs.get(batch.partition)
        if input_ is None or input_.windows.closed_until is None:
            return set()
        windows: set[int] = set()
        for value, headers in zip(batch.values, batch.headers, strict=True):
            with suppress(BadRecordError):  # `process` reports the error
                if schema_of(headers) == PARTIALS:
                    panes = read_partials(value, ("pane",))["pane"].to_numpy()
                    windows |= input_.windows.windows_to_reopen(panes)
        return windows

    def reopen(self, partition: int, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Load closed windows into memory from their changelog records (key, value)."""
        for window, chunks in chunks_by_window(state).items():
            tables = {chunk: read_table(value) for chunk, value in chunks.items()}
            self._reopened += self._inputs[partition].windows.reopen(window, tables)

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - event time only
        """Merge the partials of a batch into their windows."""
        input_ = self._inputs[batch.partition]
        for index, (value, headers) in enumerate(zip(batch.values, batch.headers, strict=True)):
            try:
                expired = self._merge_record(input_, value, headers)
            except BadRecordError as error:
                yield dead_letter(self._topic, batch, index, error.reason)
            else:
                if expired is not None:
                    yield from dead_letter_rows(self._topic, batch, index, expired, WINDOW_EXPIRED)
        read_time = newest_read_time(batch.headers)
        if read_time is not None:
            self._read_times[batch.partition] = max(read_time, self._read_times.get(batch.partition, 0))

    def _merge_record(self, input_: Input, value: bytes | None, headers: Headers) -> pa.Table | None:
        """Merge the partials of one record. Returns those whose window has expired."""
        partials = self._read_record(input_, value, headers, self._rules.columns)
        return None if partials is None else self._merge(input_, partials)

    def flush(self, now: int) -> Iterable[OutputRecord]:
        """Yield changelog records for all changes, and results that must be emitted."""
        self._absorb()
        for read_time in self._read_times.values():
            # The clocks of the processes may differ.
            self._latency.observe(max(0, now - read_time) / 1000)
        self._read_times.clear()
        for partition, input_ in self._inputs.items():
            watermark, ended_earlier = input_.watermarks.state()
            input_.ended = watermark == MAX_WATERMARK
            open_before = input_.windows.open
            reached = None
            if input_.ended:
                # A worker may be at the end of this run, and another one still at that of the run before.
                reached = MIN_WATERMARK if ended_earlier else self._reached(input_.windows)
                watermark = input_.windows.end
            for output in input_.windows.flush(watermark, now, reached):
                if isinstance(output, Chunk):
                    yield chunk_output(self.changelog, partition, output, self._rules.write)
                else:
                    if self._may_report:
                        self._check_retention(self._oldest(output), now)
                    yield from self._results(partition, output)
            self._closed += open_before - input_.windows.open

    def _reached(self, windows: WindowStore) -> int | None:
        """Return the time from which the retention of closed windows is measured at the end of a bounded run.

        Later runs may have records that are in time for windows which this run closes: so it is the watermark of the
        records.
        """
        return None if windows.newest is None else windows.newest - self._rules.lateness_ms

    def _oldest(self, emission: Emission) -> int:
        """Return the start of the oldest window of a result."""
        return emission.window

    def _check_retention(self, window: int, now: int) -> None:
        """Report once if the topic deletes results as soon as they are written. Without a timestamp they are kept."""
        retention_ms = self._rules.results_retention_ms
        if retention_ms is None or public_timestamp(window) is None or window >= now - retention_ms:
            return
        self._may_report = False
        self._rules.report_expired(window)

    def _results(self, partition: int, emission: Emission) -> Iterable[OutputRecord]:
        """Yield one record per key, because public topics contain one result per record."""
        window = emission.window
        bounds = window, self._rules.windows.end(window)
        encode, headers, new_record = self._rules.encode, self._rules.headers, self._new_record
        prefix, timestamp = f"{window}/".encode(), public_timestamp(window)
        for key, results in self._presented(emission):
            value = None if results is None else encode(new_record(key, *bounds, *results))
            yield OutputRecord("aggregates", value, prefix + key.encode(), partition, timestamp, headers)

    def _identities(self, emission: Emission, rows: slice) -> Sequence[Any]:
        """Return what identifies each row for `_results`: its key."""
        keys: list[str] = emission.keys[rows].to_pylist()
        return keys

    def _presented(self, emission: Emission, *, are_counted: bool = True) -> Iterator[tuple[Any, Sequence[Any] | None]]:
        """Yield the identity of each row with its results and its revision as Python objects, and count them.

        Results that do not match the conditions are omitted. They are None if there are earlier ones, which may have
        matched, and then must be deleted.
        """
        # A few thousand at a time, because the objects take four times the memory of the columns.
        for first in range(0, len(emission.keys), ROWS):
            rows = slice(first, first + ROWS)
            data = {name: values[rows] for name, values in emission.data.items()}
            as_text = self._rules.numbers == "text"
            columns = [result.to_python(data, as_text=as_text) for result in self._rules.results]
            keys = self._identities(emission, rows)
            presented = zip(keys, zip(*columns, data["revision"].tolist(), strict=True), strict=True)
            matches = selected(self._rules.conditions, data) if self._rules.conditions else None
            if are_counted:
                self._count(data["revision"] == 0, matches)
            if matches is None:
                yield from presented
                continue
            for (key, results), is_selected in zip(presented, matches, strict=True):
                if is_selected or results[-1]:
                    yield key, results if is_selected else None

    def _count(self, is_first: NDArray[np.bool_], matches: NDArray[np.bool_] | None) -> None:
        """Count results. One that is deleted counts as a revision."""
        self._first_results += int(np.count_nonzero(is_first if matches is None else is_first & matches))
        self._revisions += int(np.count_nonzero(~is_first))

    def collect_metrics(self) -> Iterator[Sample | HistogramSample]:
        """Yield the latency, and the numbers of windows, keys and results."""
        yield HistogramSample("skewless_end_to_end_latency_seconds", (), self._latency)
        yield from super().collect_metrics()
        stores = list(self._window_stores())
        yield Sample("skewless_aggregator_open_windows", (), sum(windows.open for windows in stores))
        yield Sample("skewless_aggregator_keys", (), sum(map(len, stores)))
        yield Sample("skewless_aggregator_closed_windows_total", (), self._closed)
        yield Sample("skewless_aggregator_reopened_windows_total", (), self._reopened)
        yield Sample("skewless_aggregator_results_total", ("first",), self._first_results)
        yield Sample("skewless_aggregator_results_total", ("revision",), self._revisions)


class SessionStep(AggregatorStep):
    """Merges partials into sessions. Deletes the results of a session that an earlier tuple or session has changed."""

    def _new_store(self) -> WindowStore:
        rules = self._rules
        windows = rules.windows
        if not isinstance(windows, SessionWindows):
            raise TypeError(f"{windows} are not sessions")
        return SessionStore(rules.columns, windows, rules.closed_window_retention_ms, updates=rules.updates)

    def _oldest(self, emission: Emission) -> int:
        # `window` is the span that contains the sessions.
        return int(emission.data["window_start"].min())

    def _identities(self, emission: Emission, rows: slice) -> Sequence[Any]:
        """Return the key, the start and the end of each session."""
        bounds = (emission.data[name][rows].tolist() for name in ("window_start", "window_end"))
        return list(zip(emission.keys[rows].to_pylist(), *bounds, strict=True))

    def _results(self, partition: int, emission: Emission) -> Iterator[OutputRecord]:
        if emission.deletes:
            self._revisions += len(emission.keys)
            for key, start, end in self._identities(emission, slice(None)):
                yield self._result(partition, key, start, end, None)
            return
        for (key, start, end), results in self._presented(emission):
            yield self._result(partition, key, start, end, results)

    def _result(self, partition: int, key: str, start: int, end: int, results: Sequence[Any] | None) -> OutputRecord:
        value = None if results is None else self._rules.encode(self._new_record(key, start, end, *results))
        record_key = f"{start}/{key}".encode()
        return OutputRecord("aggregates", value, record_key, partition, public_timestamp(start), self._rules.headers)
