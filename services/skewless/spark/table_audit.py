"""Compares the table of a pipeline with what it must have, for `skewless audit` where `sink` is set.

The table and the offsets that are stored with it are read in one transaction, so the sink may run meanwhile. With
`mode: replace`, the table must have the result of each window and key that the sink keeps of those before these offsets
of topic `aggregates`. With `mode: merge`, complete windows must have the sums and counts of the batch answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from skewless import topology
from skewless.algorithms.aggregates import ResultField
from skewless.algorithms.hashing import partition_of_keys
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.config.pipeline_settings import PipelineSettings
from skewless.spark import batch_pipeline
from skewless.spark.audit_job import (
    DIFFERENT,
    DUPLICATE,
    MISSING,
    NOT_CLOSED,
    TOO_OLD,
    UNEXPECTED,
    are_equal,
    by_partition,
    is_open,
    is_too_old,
    summary,
)
from skewless.spark.batch_pipeline import BatchResult
from skewless.sql.dialects import database_of
from skewless.sql.settings import DatabaseSettings
from skewless.sql.table import ResultTable, key_id
from skewless.sql.table_reader import ResultReader, StoredRow, TableSnapshot, snapshot
from skewless.wire.changelog import decode_checkpoint, read_watermarks

NOT_STORED = "results that are not in the table yet"
NOT_ACCEPTED = "results that the database refused (these are in the table of refused rows)"
KEY_ID = "key_id"
"""Field of the ids of keys, which only a row with a wrong one has."""
_OFFSET, _REFUSED, _ROW = "offset", "refused", "row"
"""Kinds of the rows that the reading task returns."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The table at one moment. Spark caches it."""

    rows: DataFrame
    """The rows: `record_key` (that of `aggregates`), `partition` of the key, `needed_id`, `repeats`, `found`.

    `found` has the fields of a result, `revision` and `key_id`. This and `needed_id` are null if the row has the id of
    its key, otherwise both are in hexadecimal digits. `repeats` is the number of the row among those of its window and
    key, from 1.
    """
    refused: DataFrame
    """`record_key` of the rows that the database refused."""
    offsets: Mapping[int, int]
    """Offset of the input at which the table ends, by partition."""
    watermarks: Mapping[int, int]
    """With `mode: merge`: watermark of the input, by partition."""


@contextlib.contextmanager
def read(spark: SparkSession, settings: PipelineSettings, since: int | None) -> Iterator[StoredTable]:
    """Read the table in one task, page by page; `since` (ms): without the windows that start earlier."""
    sink = settings.table_settings
    results = sink.stored_results(settings.results)
    fields = batch_pipeline.fields(settings, results) | {"revision": "bigint"}
    stage = topology.table_stage(settings)
    task = _ReadTask(
        database=sink,
        table=settings.sink_table(),
        results=results,
        key_parts=tuple(settings.splitter.key.parts),
        progress=(settings.full_name, stage.name, settings.topic(stage.input)),
        partitions=settings.topics.aggregator_partitions,
        since=since,
    )
    rows = spark.range(0, 1, numPartitions=1).mapInArrow(task, from_arrow_schema(pa.schema(task.types)))
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        offsets = rows.where(F.col("_kind") == _OFFSET).select("_partition", "_next_offset", "_checkpoint").collect()
        record_key = batch_pipeline.record_key()
        found = rows.where(F.col("_kind") == _ROW).select(
            record_key,
            F.col("_partition").alias("partition"),
            F.col("_needed_id").alias("needed_id"),
            F.struct(*fields, F.col("_key_id").alias(KEY_ID)).alias("found"),
        )
        # The row that the sink would replace is the first one.
        order = Window.partitionBy("record_key").orderBy(F.col("needed_id").asc_nulls_first())
        yield StoredTable(
            found.withColumn("repeats", F.row_number().over(order)),
            rows.where(F.col("_kind") == _REFUSED).select(record_key).distinct(),
            {row[0]: row[1] for row in offsets},
            {row[0]: _watermark(row[2]) for row in offsets} if sink.mode == "merge" else {},
        )
    finally:
        rows.unpersist()


def _watermark(checkpoint: str) -> int:
    tracker = read_watermarks(decode_checkpoint(checkpoint))
    watermark = tracker.watermark()
    return -MAX_WATERMARK if watermark is None else watermark


@dataclass(frozen=True, slots=True)
class _ReadTask:
    """Reads the table: its offsets, the refused rows, and its rows."""

    database: DatabaseSettings
    table: ResultTable
    results: Sequence[ResultField]
    key_parts: tuple[str, ...]
    progress: tuple[str, str, str]
    """Pipeline, stage and topic of the offsets."""
    partitions: int
    """Number of partitions of the keys."""
    since: int | None

    def __call__(self, _batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        database = database_of(self.database, self.table)
        database.require_existence()
        database.connect()
        try:
            with snapshot(database) as stored:
                yield from self._progress(stored)
                reader = ResultReader(self.table, self.results)
                for page in stored.pages_with_ids(self.since):
                    yield self._rows([row[0] for row in page], [reader(row[1:]) for row in page])
        finally:
            database.close()

    def _progress(self, stored: TableSnapshot) -> Iterator[pa.RecordBatch]:
        offsets = stored.offsets(*self.progress)
        if offsets:
            next_offsets, checkpoints = zip(*offsets.values(), strict=True)
            yield self._batch(_OFFSET, _partition=list(offsets), _next_offset=next_offsets, _checkpoint=checkpoints)
        refused = [(window, key.decode(errors="replace")) for window, key in stored.refused()]
        if refused:
            windows, keys = zip(*refused, strict=True)
            yield self._batch(_REFUSED, window_start=windows, key=keys)

    def _rows(self, ids: Sequence[Any], page: Sequence[StoredRow]) -> pa.RecordBatch:
        starts, ends, keys, *contents, revisions = zip(*page, strict=True)
        names = [column.name for column in self.table.contents]
        partitions = partition_of_keys(pa.array(keys, pa.string()), self.partitions)
        bounds = {"window_start": starts, "window_end": ends}
        columns = dict(zip(names, contents, strict=True))
        needed_ids = [None if stored == key_id(key) else key_id(key) for stored, key in zip(ids, keys, strict=True)]
        return self._batch(
            _ROW,
            **bounds,
            key=keys,
            _partition=partitions.tolist(),
            _key_id=[needed and _hex(stored) for stored, needed in zip(ids, needed_ids, strict=True)],
            _needed_id=[needed and _hex(needed) for needed in needed_ids],
            **columns,
            revision=revisions,
        )

    def _batch(self, kind: str, **columns: Sequence[Any]) -> pa.RecordBatch:
        """Return a batch with these columns, and null in the others."""
        size = len(next(iter(columns.values())))
        return pa.record_batch(
            [
                pa.array([kind] * size if name == "_kind" else columns.get(name, [None] * size), arrow_type)
                for name, arrow_type in self.types.items()
            ],
            list(self.types),
        )

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Types of the columns of the rows. No result has the name of one of the first columns."""
        first = {"_kind": pa.string(), "_partition": pa.int32(), "_next_offset": pa.int64(), "_checkpoint": pa.string()}
        first |= {"_key_id": pa.string(), "_needed_id": pa.string()}
        bounds = {"key": pa.string(), "window_start": pa.int64(), "window_end": pa.int64()}
        parts = dict.fromkeys(self.key_parts, pa.string())
        results = {result.name: result.result_type for result in self.results}
        return first | bounds | parts | results | {"revision": pa.int64()}


def _hex(stored_id: Any) -> str:
    return stored_id.hex() if isinstance(stored_id, bytes) else str(stored_id)  # SQLite has text in any column


def compare_with_topic(  # noqa: PLR0913 - by name
    table: StoredTable,
    aggregates: DataFrame,
    settings: PipelineSettings,
    *,
    since: int | None,
    first: int,
    out: str | None,
) -> dict[str, Any]:
    """Compare the table with what the sink keeps of topic `aggregates`, of which `aggregates` are all records.

    Returns the report. `since`, `first` and `out`: as of `audit_job.compare`.
    """
    names = [*batch_pipeline.fields(settings), "revision", KEY_ID]
    joined = _kept(aggregates, settings, table.offsets).join(table.rows, "record_key", "full_outer")
    joined = joined.where("expected is not null or found is not null")
    # Compaction removes a result of the stream if one of `batch` follows, whose revision is 0. The table keeps it.
    revision = F.greatest("expected.revision", "found.revision")
    joined = joined.withColumn("expected", F.col("expected").withField("revision", revision))
    incomplete = F.when(F.col("is_ahead"), NOT_STORED)
    return summary(_rows(joined, table.refused, incomplete, names, since), first, out, expected=names, found=names)


def compare_with_answer(  # noqa: PLR0913 - by name
    table: StoredTable,
    answer: BatchResult,
    settings: PipelineSettings,
    *,
    complete_until: Mapping[int, int],
    since: int | None,
    first: int,
    out: str | None,
) -> dict[str, Any]:
    """Compare the table with the sums and counts of the batch answer, and return the report.

    `complete_until`, by partition: windows that end at or before this time are complete in the table and in the answer.
    """
    results = settings.table_settings.stored_results(settings.results)
    fields = list(batch_pipeline.fields(settings, results))
    names = [*fields, KEY_ID]
    rows = batch_pipeline.results(answer, settings, of=results)
    expected = rows.select(
        batch_pipeline.record_key(),
        F.col("partition").alias("answer_partition"),
        F.struct(*fields).alias("expected"),
    )
    joined = expected.join(table.rows, "record_key", "full_outer")
    partition = F.coalesce("answer_partition", "partition")
    incomplete = F.when(is_open(complete_until, partition), NOT_CLOSED)
    return summary(_rows(joined, table.refused, incomplete, names, since), first, out, expected=names, found=names)


def _kept(records: DataFrame, settings: PipelineSettings, offsets: Mapping[int, int]) -> DataFrame:
    """Return what the sink keeps of each Kafka key: `record_key`, `expected`, and `is_ahead`.

    A tombstone removes the earlier records of its partition. The last record of the highest revision stays. `expected`
    is null for a tombstone. `is_ahead`: whether the last record of a partition is not before these offsets.
    """
    deleted = F.max(F.when(F.col("value").isNull(), F.col("offset"))).over(Window.partitionBy("key", "partition"))
    left = records.withColumn("deleted", deleted).where("deleted is null or offset >= deleted")
    revision = F.from_json(F.col("value").cast("string"), "revision bigint")["revision"]
    left = left.withColumn("order", F.struct(revision.alias("revision"), "offset"))
    stored_until = F.coalesce(by_partition(offsets, F.col("partition")), F.lit(0))
    is_ahead = F.bool_or(F.col("offset") >= stored_until).alias("is_ahead")
    newest = batch_pipeline.newest_results(left, settings, is_ahead, order="order")
    return newest.select("record_key", "is_ahead", F.col("result").alias("expected"))


def _rows(
    joined: DataFrame, refused: DataFrame, incomplete: Column, names: Sequence[str], since: int | None
) -> DataFrame:
    """Return rows for `summary`."""
    rows = joined.select("*", *batch_pipeline.of_record_key())
    rows = rows.join(refused.withColumn("refused", F.lit(True)), "record_key", "left")
    rows = rows.withColumn("expected", F.col("expected").withField(KEY_ID, F.col("needed_id")))
    kind = (
        F.when(F.col("found").isNull(), MISSING)
        .when(F.col("expected").isNull(), UNEXPECTED)
        .when(F.col("repeats") > 1, DUPLICATE)
        .when(~are_equal(names), DIFFERENT)
    )
    left_out = F.coalesce(F.when(is_too_old(since), TOO_OLD), incomplete, F.when(F.col("refused"), NOT_ACCEPTED))
    columns = ("window_start", "key", left_out.alias("left_out"), kind.alias("kind"), "expected", "found")
    return rows.select(*columns)
