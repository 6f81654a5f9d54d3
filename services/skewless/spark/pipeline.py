"""The pipeline as transformations of DataFrames: records in, one row per window and key out.

Skew is handled as in the stream: tasks reduce their tuples to partial results, which then merge. A key has few of these
for each task, however hot it is. Splitter, lateness, partial results and results are the stream's own code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.storagelevel import StorageLevel

from skewless.aggregator.step import scaled
from skewless.algorithms import aggregates
from skewless.algorithms.aggregates import PartialColumn
from skewless.algorithms.hashing import partition_of_keys
from skewless.algorithms.watermark import END_OF_TIME
from skewless.settings import PipelineSettings
from skewless.spark.chunks import CHUNK, TUPLE, ChunkFacts, ChunkId, Reading, judge_chunks
from skewless.splitter.judgement import TimeRules

CHUNK_ID = ("origin", "block", "first")
_MERGES = {"sum": F.sum, "min": F.min, "max": F.max}


@dataclass(frozen=True, slots=True)
class Answer:
    """What records come to. Close it when it is no longer used: Spark holds the partial results."""

    partials: DataFrame
    """`window` (its start, ms), `key`, and the partial columns."""
    records: int
    tuples: int
    late: int
    bad: Mapping[str, int]
    """Records that cannot be read, by reason."""
    held: Sequence[DataFrame]

    def close(self) -> None:
        """Let Spark forget the partial results."""
        for rows in self.held:
            rows.unpersist()


def reading(settings: PipelineSettings, now: int | None) -> Reading:
    """Say how the pipeline reads records; `now` in ms judges times too far ahead, None: nobody does."""
    rules = TimeRules.of(settings)
    if now is None:
        rules = replace(rules, max_future_ms=END_OF_TIME)
    wanted = [aggregates.create(name) for name in dict.fromkeys(("count", *settings.aggregator.aggregates))]
    return Reading(settings.splitter, rules, aggregates.columns_of(wanted), settings.aggregator.window_ms, now=now or 0)


def answer(records: DataFrame, how: Reading) -> Answer:
    """Read records (see `source`) and aggregate them; runs the reading, but not yet the merging."""
    rows = _read(records, how)
    chunks = _chunks(rows)
    marks, wrong = judge_chunks(chunks, how.rules.lateness_ms)
    held, judged = [rows], _judged(rows, marks, wrong)
    if wrong:
        again = _read(records, replace(how, before=wrong))
        chunks |= _chunks(again)
        held.append(again)
        judged = judged.unionByName(again.withColumn("late", F.lit(False)))
    judged = judged.where(F.col("kind") != CHUNK)
    heads = judged.where("late").agg(F.sum("count")).first()
    late = int(heads[0] or 0) if heads else 0
    window = F.col("time") - F.pmod("time", F.lit(how.window_ms))
    merged = [_MERGES[column.merge](column.name).alias(column.name) for column in how.columns]
    return Answer(
        partials=judged.where("not late").groupBy(window.alias("window"), "key").agg(*merged),
        records=sum(facts.records for facts in chunks.values()),
        tuples=sum(facts.tuples for facts in chunks.values()) - late,
        late=sum(facts.late for facts in chunks.values()) + late,
        bad=dict(sorted(sum((Counter(facts.bad) for facts in chunks.values()), Counter()).items())),
        held=held,
    )


def _read(records: DataFrame, how: Reading) -> DataFrame:
    origin = records.schema["origin"].dataType.simpleString()
    numbers = ", ".join(f"`{column.name}` bigint" for column in how.columns)
    schema = f"origin {origin}, block bigint, first bigint, kind string, time bigint, key string, {numbers}"
    return records.mapInArrow(_in_tasks(how), schema).persist(StorageLevel.DISK_ONLY)


def _in_tasks(
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make a plain function of a callable object: Spark takes nothing else."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return work(batches)

    return run


def _chunks(rows: DataFrame) -> dict[ChunkId, ChunkFacts]:
    """Run the reading and bring the facts of the chunks, a row for each, to the driver."""
    found = rows.where(F.col("kind") == CHUNK).select(*CHUNK_ID, "key").collect()
    return {(row[0], row[1], row[2]): msgspec.json.decode(row[3], type=ChunkFacts) for row in found}


def _judged(rows: DataFrame, marks: Mapping[ChunkId, int], wrong: Mapping[ChunkId, int]) -> DataFrame:
    """Judge the heads by what came before them, and leave out chunks that are wrong."""
    if not marks:
        return rows.withColumn("late", F.lit(False))
    origin = rows.schema["origin"].dataType.simpleString()
    known = rows.sparkSession.createDataFrame(
        [(*chunk, mark, chunk in wrong) for chunk, mark in marks.items()],
        f"origin {origin}, block bigint, first bigint, mark bigint, wrong boolean",
    )
    joined = rows.join(F.broadcast(known), [*CHUNK_ID], "left").where("wrong is null or not wrong")
    late = (F.col("kind") == TUPLE) & F.col("mark").isNotNull() & (F.col("time") < F.col("mark"))
    return joined.withColumn("late", late).drop("mark", "wrong")


@dataclass(frozen=True, slots=True)
class _Presenting:
    """Makes results of partial columns, whole columns at a time."""

    names: tuple[str, ...]
    columns: tuple[PartialColumn, ...]
    window_ms: int
    decimals: int
    partitions: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            data = {column.name: batch[column.name].to_numpy() for column in self.columns}
            windows = batch["window"].to_numpy()
            results = [scaled(aggregates.create(name), data, self.decimals) for name in self.names]
            owners = partition_of_keys(batch["key"], self.partitions)
            columns = [batch["key"], windows, windows + self.window_ms, *results, owners]
            yield pa.record_batch(
                [pa.array(column) for column in columns],
                names=["key", "window_start", "window_end", *self.names, "partition"],
            )


def fields(settings: PipelineSettings) -> dict[str, str]:
    """Name the fields of a result, and their types in Spark: whole numbers, or doubles where they may have decimals."""
    one = {column.name: np.ones(1, dtype=np.int64) for column in reading(settings, None).columns}
    decimals = settings.splitter.value.decimals
    kinds = {name: scaled(aggregates.create(name), one, decimals).dtype.kind for name in settings.aggregator.aggregates}
    numbers = {name: "bigint" if kind == "i" else "double" for name, kind in kinds.items()}
    return {"key": "string", "window_start": "bigint", "window_end": "bigint", **numbers}


def results(found: Answer, settings: PipelineSettings, partitions: int | None = None) -> DataFrame:
    """One row per window and key, named as in the topic `aggregates`, with the `partition` that the key belongs to."""
    present = _Presenting(
        settings.aggregator.aggregates,
        reading(settings, None).columns,
        settings.aggregator.window_ms,
        settings.splitter.value.decimals,
        partitions or settings.topics.aggregator_partitions,
    )
    schema = ", ".join(f"`{name}` {kind}" for name, kind in (fields(settings) | {"partition": "int"}).items())
    return found.partials.mapInArrow(_in_tasks(present), schema)


def as_json(rows: DataFrame, settings: PipelineSettings) -> Column:
    """Write rows of `results` as the JSON values of records of `aggregates`."""
    return F.to_json(F.struct(*(rows[name] for name in fields(settings)), F.lit(0).alias("revision")))
