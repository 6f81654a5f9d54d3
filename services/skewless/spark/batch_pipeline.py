"""The pipeline as DataFrame transformations: records in, one row per window and key out.

Skew is handled as in the stream: each task reduces its tuples to partial results, which Spark then merges. A task has
few partial results per key, however hot the key is. Parsing, lateness, partial results and results use the code of the
stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_type
from pyspark.storagelevel import StorageLevel

from skewless.algorithms.aggregates import (
    LOAD_COLUMN,
    BinaryColumn,
    PartialColumn,
    Partials,
    ResultCondition,
    ResultField,
    selected,
)
from skewless.algorithms.hashing import partition_of_keys
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.algorithms.windowing.sessions import FIRST, LAST, SESSION, SessionWindows
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import JobFailedError
from skewless.spark import user_module
from skewless.spark.partition_reader import (
    SPLIT,
    TUPLE,
    PartitionReadPlan,
    SplitId,
    SplitStatistics,
    resolve_lateness,
    row_schema,
)
from skewless.spark.shuffle import repartition_keys
from skewless.wire.aggregates import Numbers, aggregate_constructor, encode_json
from skewless.wire.tuples import parts_of

SPLIT_ID = ("source_partition", "block", "first_offset")


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Partial results and counts of a batch of records. Close it after use: Spark caches the partial results."""

    partials: DataFrame
    """`window` (its start, ms), `key`, and the partial columns. Binary columns are lists of partials to merge."""
    records: int
    tuples: int
    late: int
    filtered: int
    """Number of records that do not meet the conditions of the pipeline."""
    rounded: int
    """Number of values that have more decimals than the pipeline keeps."""
    invalid: Mapping[str, int]
    """Number of records that cannot be parsed or have an invalid time, by reason."""
    cached: Sequence[DataFrame]

    def close(self) -> None:
        """Remove the partial results from Spark's cache."""
        for rows in self.cached:
            rows.unpersist()


def read_plan(settings: PipelineSettings, now: int | None) -> PartitionReadPlan:
    """Return how the pipeline reads records.

    `now`: wall-clock time in ms, used to detect timestamps too far in the future; None disables that check.
    """
    rules = settings.event_time_rules()
    if now is None:
        rules = replace(rules, max_ahead_ms=MAX_WATERMARK)
    columns = settings.wire_columns
    windows = settings.aggregator.windows
    pane_ms = windows.grid_ms(rules.earliest, rules.latest)
    if pane_ms > windows.max_pane_ms:
        pane_ms = settings.pane_ms
    return PartitionReadPlan(settings.splitter, rules, columns, windows, pane_ms, now=now or 0)


def answer(records: DataFrame, plan: PartitionReadPlan) -> BatchResult:
    """Read records (see `kafka_source`) and aggregate them. Runs the reading; Spark merges only when rows are used.

    Raises JobFailedError if the first record of a split is gone when the split is read a second time.
    """
    user_module.send(records.sparkSession, plan.splitter)
    cached: list[DataFrame] = []
    try:
        on_time, splits, late_in_heads = _on_time(records, plan, cached)
    except BaseException:
        for rows in cached:
            rows.unpersist()
        raise
    if plan.windows.overlap > 1:
        on_time = on_time.withColumn("window", F.explode("window"))
    merged = [F.call_function(_spark_function(column), column.name).alias(column.name) for column in plan.columns]
    if isinstance(plan.windows, SessionWindows):
        partials = _with_session(on_time, plan.windows).groupBy("window", "key", SESSION).agg(*merged)
        partials = partials.withColumn("window", F.col(FIRST.name)).drop(SESSION)
    else:
        partials = on_time.groupBy("window", "key").agg(*merged)
    return BatchResult(
        partials=partials,
        records=sum(statistics.records for statistics in splits.values()),
        tuples=sum(statistics.tuples for statistics in splits.values()) - late_in_heads,
        late=sum(statistics.late for statistics in splits.values()) + late_in_heads,
        filtered=sum(statistics.filtered for statistics in splits.values()),
        rounded=sum(statistics.rounded for statistics in splits.values()),
        invalid=_invalid_by_reason(splits.values()),
        cached=cached,
    )


def _on_time(
    records: DataFrame, plan: PartitionReadPlan, cached: list[DataFrame]
) -> tuple[DataFrame, dict[SplitId, SplitStatistics], int]:
    """Read records, and return the tuples that are not late, the splits, and how many tuples of their heads are late.

    Adds what Spark caches to `cached`.
    """
    rows = _read(records, plan)
    cached.append(rows)
    splits = _split_statistics(rows)
    watermarks, to_reread = resolve_lateness(splits, plan.rules.lateness_ms)
    classified = _classified(rows, watermarks, to_reread)
    if to_reread:
        reread = _read(records, replace(plan, earlier_max_times=to_reread))
        cached.append(reread)
        reread_splits = _split_statistics(reread)
        if changed := to_reread.keys() - reread_splits.keys():
            names = ", ".join(sorted({str(source_partition) for source_partition, *_ in changed}))
            raise JobFailedError(
                f"records of source partition {names} changed while they were read, such as by compaction: repeat the "
                "command"
            )
        splits |= reread_splits
        classified = classified.unionByName(reread.withColumn("late", F.lit(False)))
    classified = classified.where(F.col("kind") != SPLIT)
    late_in_heads = _late_in_heads(classified) if watermarks else 0
    return classified.where("not late"), splits, late_in_heads


def _with_session(rows: DataFrame, windows: SessionWindows) -> DataFrame:
    """Add the number of the session within its span and key, as `SessionWindows.session_of` does."""
    in_order = Window.partitionBy("window", "key").orderBy(FIRST.name, LAST.name)
    newest = F.max(LAST.name).over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    is_start = newest.isNull() | (F.col(FIRST.name) - newest >= windows.gap_ms)
    numbered = rows.withColumn(SESSION, is_start.cast("bigint"))
    return numbered.withColumn(SESSION, F.sum(SESSION).over(in_order.rowsBetween(Window.unboundedPreceding, 0)))


def _spark_function(column: PartialColumn) -> str:
    """Return the function of Spark that merges a column, or that collects the values which the column merges itself."""
    return "collect_list" if isinstance(column, BinaryColumn) else column.merge


def _invalid_by_reason(splits: Iterable[SplitStatistics]) -> dict[str, int]:
    invalid: Counter[str] = Counter()
    for statistics in splits:
        invalid.update(statistics.invalid)
    return dict(sorted(invalid.items()))


def _read(records: DataFrame, plan: PartitionReadPlan) -> DataFrame:
    schema = row_schema(to_arrow_type(records.schema["source_partition"].dataType), plan)
    return records.mapInArrow(plan, from_arrow_schema(schema)).persist(StorageLevel.DISK_ONLY)


def _spark_type(arrow_type: pa.DataType) -> str:
    """Return Spark's name of an Arrow type."""
    name: str = from_arrow_type(arrow_type).simpleString()
    return name


def in_partitions(rows: DataFrame, partitions: int, number: str) -> DataFrame:
    """Return rows in the partitions of Spark whose numbers are in column `number`."""
    # `repartitionById` does the same from Spark 4.1 on.
    keys = F.array(*map(F.lit, repartition_keys(partitions)))
    return rows.repartition(partitions, keys[F.col(number)])


def _split_statistics(rows: DataFrame) -> dict[SplitId, SplitStatistics]:
    """Run the reading and collect the statistics of the splits on the driver, one row per split."""
    collected = rows.where(F.col("kind") == SPLIT).select(*SPLIT_ID, "key").collect()
    return {(row[0], row[1], row[2]): msgspec.json.decode(row[3], type=SplitStatistics) for row in collected}


def _classified(rows: DataFrame, watermarks: Mapping[SplitId, int], to_reread: Mapping[SplitId, int]) -> DataFrame:
    """Add the column `late` by the watermarks of the earlier splits, and drop the splits that are read again."""
    if not watermarks:
        return rows.withColumn("late", F.lit(False))
    splits = rows.sparkSession.createDataFrame(
        [(*split_id, watermark, split_id in to_reread) for split_id, watermark in watermarks.items()],
        rows.select(*SPLIT_ID).schema.add("watermark_ms", "long").add("reread", "boolean"),
    )
    joined = rows.join(F.broadcast(splits), [*SPLIT_ID], "left").where("reread is null or not reread")
    late = (F.col("kind") == TUPLE) & F.col("watermark_ms").isNotNull() & (F.col("deadline") < F.col("watermark_ms"))
    return joined.withColumn("late", late).drop("watermark_ms", "reread")


def _late_in_heads(classified: DataFrame) -> int:
    """Return the number of late tuples of the splits that follow another one."""
    late = classified.where("late").agg(F.sum(LOAD_COLUMN.name)).first()
    return int(late[0] or 0) if late else 0


@dataclass(frozen=True, slots=True)
class _ResultMapper:
    """Computes results from partial columns, whole columns at a time."""

    results: tuple[ResultField, ...]
    columns: tuple[PartialColumn, ...]
    windows: WindowAssigner
    conditions: tuple[ResultCondition, ...]
    partitions: int
    key_parts: tuple[str, ...]
    numbers: Numbers | None = None
    """How values of records have the results, in a column `value`; None: a column for each result."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            partials = {column.name: _merged(column, batch[column.name]) for column in self.columns}
            windows = batch["window"].to_numpy()
            partitions = partition_of_keys(batch["key"], self.partitions)
            ends = self.windows.ends_of(windows, partials)
            bounds = {"window_start": pa.array(windows), "window_end": pa.array(ends)}
            columns = {"key": batch["key"], **bounds}
            if self.numbers is None:
                columns |= self._parts(batch["key"])
                columns |= {result.name: result.to_arrow(partials) for result in self.results}
            else:
                columns["value"] = pa.array(self._values(columns, partials, self.numbers), pa.binary())
            rows = pa.record_batch({**columns, "partition": pa.array(partitions)})
            yield rows.filter(pa.array(selected(self.conditions, partials))) if self.conditions else rows

    def _values(self, columns: Mapping[str, pa.Array], partials: Partials, numbers: Numbers) -> Iterator[bytes]:
        """Yield the values of records, as the aggregator encodes them."""
        new_record = aggregate_constructor(self.results, numbers, self.key_parts)
        results = (result.to_python(partials, as_text=numbers == "text") for result in self.results)
        identities = (column.to_pylist() for column in columns.values())
        for row in zip(*identities, *results, strict=True):
            yield encode_json(new_record(*row, 0))

    def _parts(self, keys: pa.Array) -> dict[str, pa.Array]:
        """Return the columns of the parts of composite keys."""
        if not self.key_parts:
            return {}
        rows = list(map(parts_of, keys.to_pylist()))
        return {
            part: pa.array([row[number] for row in rows], pa.string()) for number, part in enumerate(self.key_parts)
        }


def _merged(column: PartialColumn, values: pa.Array) -> NDArray[Any]:
    """Return the partials of a column of `BatchResult.partials`."""
    return column.merge_lists(values) if isinstance(column, BinaryColumn) else column.from_arrow(values)


def fields(settings: PipelineSettings, of: Sequence[ResultField] | None = None) -> dict[str, str]:
    """Return the fields of a result and their Spark types, such as bigint for counts and decimal(38,0) for sums.

    `of`: the results; None: those of the pipeline.
    """
    types = {result.name: _spark_type(result.result_type) for result in (settings.results if of is None else of)}
    parts = dict.fromkeys(settings.splitter.key.parts, "string")
    return {"key": "string", "window_start": "bigint", "window_end": "bigint", **parts, **types}


def record_key(name: str = "key") -> Column:
    """Return the Kafka key of a result: the start of its window, and what the column `name` has."""
    return F.concat_ws("/", F.col("window_start").cast("string"), F.col(name).cast("string")).alias("record_key")


def of_record_key() -> tuple[Column, Column]:
    """Return the window and the key that are in a column `record_key`; null for a foreign one."""
    parts = F.split("record_key", "/", 2)
    return parts[0].try_cast("bigint").alias("window_start"), F.get(parts, F.lit(1)).alias("key")


def newest_results(
    records: DataFrame, settings: PipelineSettings, *columns: Column, order: str = "offset"
) -> DataFrame:
    """Return the last record of each Kafka key: `record_key`, `value`, `partition`, `result`, and these aggregations.

    `value` and `result` are null for a tombstone. The result of an unreadable record has null in all fields. `order`:
    column by which a record is the last one.
    """
    last = records.groupBy(F.col("key").cast("string").alias("record_key")).agg(
        F.max_by("value", order).alias("value"), F.max_by("partition", order).alias("partition"), *columns
    )
    types = ", ".join(f"`{name}` {spark_type}" for name, spark_type in fields(settings).items())
    read, nothing = (
        F.from_json(text, f"{types}, revision bigint") for text in (F.col("value").cast("string"), F.lit("{}"))
    )
    return last.withColumn("result", F.when(F.col("value").isNotNull(), F.coalesce(read, nothing)))


def results(
    result: BatchResult,
    settings: PipelineSettings,
    partitions: int | None = None,
    of: tuple[ResultField, ...] | None = None,
) -> DataFrame:
    """Return one row per window and key, with the fields of `aggregates` but `revision`, and the key's `partition`.

    `partitions`: number of partitions of the target topic; None: that of `aggregates`. `of`: as for `fields`.
    """
    mapper = _mapper(settings, partitions, of)
    columns = fields(settings, of) | {"partition": "int"}
    schema = ", ".join(f"`{name}` {spark_type}" for name, spark_type in columns.items())
    return result.partials.mapInArrow(mapper, schema)


def records(result: BatchResult, settings: PipelineSettings, partitions: int | None = None) -> DataFrame:
    """Return one row per window and key, with the `value` of its record in `aggregates` in the format json.

    `partitions`: as for `results`.
    """
    mapper = replace(_mapper(settings, partitions), numbers=settings.aggregator.numbers)
    schema = "key string, window_start bigint, window_end bigint, value binary, partition int"
    return result.partials.mapInArrow(mapper, schema)


def _mapper(
    settings: PipelineSettings, partitions: int | None, of: tuple[ResultField, ...] | None = None
) -> _ResultMapper:
    return _ResultMapper(
        settings.results if of is None else of,
        read_plan(settings, None).columns,
        settings.aggregator.windows,
        settings.conditions,
        partitions or settings.topics.aggregator_partitions,
        settings.splitter.key.parts,
    )


def with_ranks(rows: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return rows of `results` with the column `rank`, null for keys without a rank."""
    ranking = settings.ranking
    order = Window.partitionBy("window_start").orderBy(F.col(ranking.by.name).desc_nulls_last(), "key")
    is_ranked = F.col(ranking.by.name).isNotNull() & (F.row_number().over(order) <= ranking.n)
    return rows.withColumn("rank", F.when(is_ranked, F.row_number().over(order)))
