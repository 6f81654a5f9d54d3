"""Reads the results of a pipeline from its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skewless import topology
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BrokerError, CheckFailedError, ConfigurationError, UnreachableError
from skewless.kafka.consumer.offsets import OffsetRanges, OffsetReader
from skewless.operations.closed_windows import closed_everywhere
from skewless.operations.result_table import opened_table
from skewless.operations.results import topic
from skewless.operations.results.selection import ResultRecord, Selection, Window, closed_of, no_results
from skewless.sql.table import ResultTable
from skewless.sql.table_reader import ResultReader, StoredRow, TableSnapshot, snapshot
from skewless.wire.changelog import decode_checkpoint, read_watermarks


def read(settings: PipelineSettings, select: Selection, key: str | None) -> list[ResultRecord]:
    """Return the results of the selected windows, of one key or of all, in the form of records of topic `aggregates`.

    Raises CheckFailedError if there is no window to select.
    """
    with opened_table(settings) as database:
        table = database.statements.table
        convert = ResultReader(table, settings.table_settings.stored_results(settings.results))
        # Before the snapshot, which may lack results of windows that close later.
        is_replaced = settings.table_settings.mode == "replace"
        closed_until, written = _closed_in_topic(settings) if select.by_closing and is_replaced else (None, {})
        with snapshot(database) as stored:
            of_key = [] if key is None else [stored.of_key(key)]
            if not of_key and not isinstance(settings.aggregator.windows, SessionWindows):
                windows = set(stored.windows())
            else:  # sessions of several keys may have one start and different ends
                windows = {_window_of(row) for page in of_key or stored.pages() for row in page}
            if not windows:
                raise CheckFailedError(no_results(f"table {table.name} in {database.address}", key))
            closed = _complete(settings, stored, windows, closed_until, written) if select.by_closing else set()
            selected = select.choose(windows, closed)
            starts = [start for start, _ in selected]
            pages = of_key or (stored.pages(min(starts), max(starts)) if starts else ())
            rows = [row for page in pages for row in page if _window_of(row) in selected]
    return [_result(table, convert(row)) for row in rows]


def _window_of(row: StoredRow) -> Window:
    return row[0], row[1]


def _result(table: ResultTable, row: StoredRow) -> ResultRecord:
    start, end, key, *contents, revision = row
    values = dict(zip((column.name for column in table.contents), contents, strict=True))
    if table.adds:
        values = {column.name: _quotient(values, column.column, column.divisor) for column in table.view}
    return {"key": key, "window_start": start, "window_end": end, **values, "revision": revision}


def _quotient(values: Mapping[str, Any], dividend: str, divisor: str | None) -> Any:
    """Return a result of a table of parts. A quotient is the nearest double, unlike in the table's view."""
    value = values[dividend]
    if divisor is None or value is None:
        return value
    if not values[divisor]:
        return None
    numerator, denominator = value.as_integer_ratio()
    return numerator / (denominator * values[divisor])  # Python rounds the quotient of integers once


def _closed_in_topic(settings: PipelineSettings) -> tuple[int | None, OffsetRanges]:
    """Return up to which time topic `aggregates` has all results (None: unknown), and the offsets that have them.

    A table with `emit: final` is readable without Kafka: all of its windows have closed in some partition.
    """
    try:
        closed_until = closed_everywhere(settings, topology.RESULTS_STAGE)
        written = {} if closed_until is None else OffsetReader(settings.kafka).ranges(settings.topic("aggregates"))
    except (BrokerError, ConfigurationError, UnreachableError):
        if settings.aggregator.emit == "updates":
            raise
        return MAX_WATERMARK, {}
    return closed_until, written


def _complete(
    settings: PipelineSettings,
    stored: TableSnapshot,
    windows: set[Window],
    closed_until: int | None,
    written: OffsetRanges,
) -> set[Window]:
    """Return the closed windows of which the table has all results.

    If rows are replaced while their window is open, only Kafka knows them: see `_closed_in_topic`.
    """
    stage = topology.table_stage(settings)
    offsets = stored.offsets(settings.full_name, stage.name, settings.topic(stage.input))
    if settings.table_settings.mode == "merge":
        trackers = [read_watermarks(decode_checkpoint(offset.checkpoint)) for offset in offsets.values()]
        watermarks = [watermark for tracker in trackers if (watermark := tracker.watermark()) is not None]
        is_known = len(watermarks) == settings.topics.aggregator_partitions
        return closed_of(windows, min(watermarks) if is_known else None)
    missing = {
        partition: (max(begin, offsets[partition].next_offset) if partition in offsets else begin, end)
        for partition, (begin, end) in written.items()
    }
    incomplete = topic.starts_between(settings, missing)
    return {window for window in closed_of(windows, closed_until) if window[0] not in incomplete}
