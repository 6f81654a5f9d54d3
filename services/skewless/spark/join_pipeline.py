"""The join as DataFrame transformations: records of both topics in, the records that the join writes out.

Parsing, lateness and pairs use the code of the stream. Lateness depends on all records of a partition in the order of
their offsets, so a partition is read by one task for it. The pairs of an id depend only on the records with this id, so
they are found in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.storagelevel import StorageLevel

from skewless.algorithms.hashing import partition_of_keys
from skewless.algorithms.join.held_records import Records, records_of
from skewless.algorithms.join.window_join import JoinRules, Side, WindowJoin
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.config.pipeline_settings import PipelineSettings
from skewless.parsing.formats import find_format
from skewless.parsing.join_records import read_records, side_rules
from skewless.parsing.join_side_settings import JoinSideSettings
from skewless.spark.record_columns import record_columns
from skewless.wire.joined import joined_records, late_records, unmatched_records
from skewless.wire.record import OutputRecord
from skewless.wire.timed_records import read_timed_records

SLICE_RECORDS = 10_000
"""Records of one side that are joined at once."""
COLUMNS = ("topic", "partition", "key", "value", "timestamp", "decided")
"""Columns of an answer. `topic` is a name of the topology. `decided` is false for a record that is unmatched only
because the topics end: later records might have been its partner."""
_ANSWER = "topic string, partition int, key string, value string, timestamp bigint, decided boolean"
_VALID = "side string, partition int, offset bigint, id string, time bigint, value binary, number int"
"""Columns of valid records. `number` is the partition in which the join has the record."""
_READ = f"{_VALID}, reason string"

_MERGED = f"{_VALID}, source_partition int, source_offset bigint"
"""Columns of merged records: also their partition and offset in the user's topic."""
_SOURCE_NAMES = ["source_partition", "source_offset"]
_COLUMN_NAMES = ["side", "partition", "offset", "id", "time", "value", "number", "reason"]

Batches = Iterable[pa.RecordBatch]


def of_topic(records: DataFrame, side: Side, settings: JoinSideSettings) -> DataFrame:
    """Convert rows of Spark's Kafka source to those that `answer` reads. They need `headers` if the side reads them."""
    timestamp = F.unix_millis("timestamp").alias("timestamp")
    headers = ["headers"] if settings.parsing.reads_headers else []
    return records.select(F.lit(side.value).alias("side"), "partition", "offset", timestamp, "key", "value", *headers)


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """What a join of two topics writes. Close it after use: Spark caches the records that were read."""

    rows: DataFrame
    """A row with `COLUMNS` for each record."""
    records: Mapping[Side, int]
    """Number of records that were read."""
    invalid: Mapping[str, int]
    """Number of invalid records by reason."""
    cached: DataFrame

    def close(self) -> None:
        """Remove the records from Spark's cache."""
        self.cached.unpersist()


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """Settings of a join for the tasks of Spark."""

    sides: Mapping[Side, JoinSideSettings]
    rules: JoinRules
    emit_unmatched_left: bool
    merged: Mapping[Side, int] | None = None
    """Number of partitions of each topic whose records are partitioned again (join.repartition). None: they are not."""

    def numbers(self, ids: Sequence[str], partitions: pa.Array) -> pa.Array:
        """Return the partitions in which the join has records, by their ids and partitions."""
        if self.merged is None:
            return partitions
        return pa.array(partition_of_keys(pa.array(ids, pa.string()), max(self.merged.values())))

    def watermarks(self, reached: Mapping[tuple[Side, int], int]) -> Mapping[tuple[Side, int], int]:
        """Return the watermark of each partition of the join. `reached` has that of each partition of the topics."""
        if self.merged is None:
            return reached
        merged: dict[tuple[Side, int], int] = {}
        for side, count in self.merged.items():
            own = [time for (of_side, _), time in reached.items() if of_side is side]
            if len(own) == count:  # a partition without records holds the others back
                merged |= {(side, number): min(own) for number in range(max(self.merged.values()))}
        return merged

    def is_json(self, side: Side) -> bool:
        """Return whether results contain the records of a side as JSON."""
        return find_format(self.sides[side].format.name).in_json


def plan_of(settings: PipelineSettings, partitions: Mapping[Side, int]) -> JoinPlan:
    """Return the plan of a pipeline. Raises ConfigurationError if it joins nothing.

    `partitions` has the number of partitions of both topics.
    """
    join = settings.joined
    merged = partitions if join.repartition == "always" else None
    return JoinPlan({side: join.side(side) for side in Side}, join.rules(), join.kind == "left", merged)


def answer(
    records: DataFrame,
    plan: JoinPlan,
    newest: int = MAX_WATERMARK,
    late: DataFrame | None = None,
    merged: DataFrame | None = None,
) -> JoinAnswer:
    """Join the records of both topics (see `of_topic`). The end of the records is the end of time.

    `newest` is the largest event time that is not too far ahead of the clock, in ms. Records with a reason in
    `refused`, a column that is optional, are invalid, too. `late` has `side`, `partition` and `offset` of records that
    take no part, in addition to those that are late. `merged` are the records of left-records and right-records (see
    `merged_records`), whose order then counts. Without them, records with the same id that are partitioned again are
    ordered by partition and offset. Reads the records at once. Spark finds the pairs when the rows are used.
    """
    read = records.mapInArrow(partial(_parsed, plan=plan, newest=newest), _READ).persist(StorageLevel.DISK_ONLY)
    counts = read.groupBy("side", "partition", "reason").agg(F.count("*").alias("rows"), F.max("time").alias("time"))
    groups = counts.collect()
    rules = plan.rules
    watermarks = {
        (Side(row.side), row.partition): row.time - rules.disorder_ms(Side(row.side))
        for row in groups
        if row.reason is None
    }
    invalid: dict[str, int] = {}
    for row in groups:
        if row.reason is not None:
            invalid[row.reason] = invalid.get(row.reason, 0) + row["rows"]
    valid = _with_watermark(read.where("reason is null").drop("reason"), rules)
    is_late = F.col("time") < F.coalesce(F.col("watermark"), F.col("time"))
    on_time = valid.where(~is_late)
    if late is not None and merged is None:
        on_time = on_time.join(F.broadcast(late), ["side", "partition", "offset"], "left_anti")
    if late is not None and merged is not None:  # a record that is late in the join was written to its topic before
        renamed = late.select(
            "side", F.col("partition").alias("source_partition"), F.col("offset").alias("source_offset")
        )
        merged = merged.join(F.broadcast(renamed), ["side", *_SOURCE_NAMES], "left_anti")
    # A group of records with the same id is in one task, in the order in which the mapper reads it.
    joined = on_time if merged is None else merged.drop(*_SOURCE_NAMES)
    ordered = joined.repartition("number", "id").sortWithinPartitions("number", "id", "side", "partition", "offset")
    paired = ordered.mapInArrow(_Pairs(plan, plan.watermarks(watermarks)), _ANSWER)
    rows = paired.unionByName(valid.where(is_late).mapInArrow(partial(_late_outputs, plan=plan), _ANSWER))
    if merged is not None:
        rows = rows.unionByName(written_records(on_time).withColumn("decided", F.lit(True)))
    return JoinAnswer(
        rows=rows,
        records={side: sum(row["rows"] for row in groups if row.side == side.value) for side in Side},
        invalid=dict(sorted(invalid.items())),
        cached=read,
    )


def merged_records(records: DataFrame, side: Side) -> DataFrame:
    """Convert rows of Spark's Kafka source, of left-records or right-records, to the valid records of the join."""
    columns = records.where("value is not null").select("partition", "offset", "key", "value")
    return columns.mapInArrow(partial(_merged, side=side), _MERGED)


def written_records(valid: DataFrame) -> DataFrame:
    """Return valid records as rows of left-records and right-records, with all columns but `decided`."""
    return valid.select(
        F.concat("side", F.lit("-records")).alias("topic"),
        F.col("number").alias("partition"),
        F.col("id").alias("key"),
        F.concat_ws(" ", F.col("time").cast("string"), F.base64("value")).alias("value"),
        F.lit(None).cast("bigint").alias("timestamp"),
    )


def _merged(batches: Batches, side: Side) -> Iterator[pa.RecordBatch]:
    """Decode records of left-records or right-records."""
    for batch in batches:
        offsets = batch["offset"].to_numpy()
        rows = np.arange(len(offsets))
        timed = read_timed_records(batch["key"].to_pylist(), batch["value"].to_pylist(), rows)
        records, origins = timed.records, timed.origins
        numbers = batch["partition"].take(pa.array(records.offsets))
        read = _read_batch(side, numbers, offsets[records.offsets], records, numbers)
        sources = pa.array(origins.partitions, pa.int32()), pa.array(origins.offsets, pa.int64())
        yield pa.record_batch([*read.drop_columns(["reason"]).columns, *sources], [*_COLUMN_NAMES[:-1], *_SOURCE_NAMES])


def _with_watermark(records: DataFrame, rules: JoinRules) -> DataFrame:
    """Add the watermark of its partition before each record, null for the first record."""
    before = Window.partitionBy("side", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    return records.withColumn("watermark", F.max("time").over(before) - _disorder(rules))


def _disorder(rules: JoinRules) -> Column:
    is_left = F.col("side") == Side.LEFT.value
    return F.when(is_left, rules.disorder_ms(Side.LEFT)).otherwise(rules.disorder_ms(Side.RIGHT))


def _parsed(batches: Batches, plan: JoinPlan, newest: int) -> Iterator[pa.RecordBatch]:
    """Parse records."""
    keyed = plan.merged is None
    rules = {side: replace(side_rules(plan.sides[side]), keyed=keyed) for side in Side}
    for mixed in batches:
        for side in Side:
            batch = mixed.filter(pc.equal(mixed["side"], side.value))
            if "refused" in batch.schema.names:
                refused = batch.filter(batch["refused"].is_valid())
                reasons = refused["refused"].to_pylist()
                yield _invalid_batch(side, refused["partition"], refused["offset"], reasons)
                batch = batch.filter(batch["refused"].is_null())
            if not batch.num_rows:
                continue
            offsets = batch["offset"].to_numpy()
            numbers = np.arange(len(offsets))
            records, invalid = read_records(rules[side], record_columns(batch, 0), numbers, newest)
            rows = records.offsets
            partitions = batch["partition"].take(pa.array(rows))
            numbers = plan.numbers(records.ids.tolist(), partitions)
            yield _read_batch(side, partitions, offsets[rows], records, numbers)
            bad = pa.array(sorted(invalid), pa.int64())
            reasons = [f"{side.value}: {invalid[row]}" for row in sorted(invalid)]
            yield _invalid_batch(side, batch["partition"].take(bad), batch["offset"].take(bad), reasons)


def _read_batch(side: Side, partitions: pa.Array, offsets: Any, records: Records, numbers: pa.Array) -> pa.RecordBatch:
    count = len(offsets)
    columns = [
        pa.array([side.value] * count, pa.string()), partitions, pa.array(offsets, pa.int64()),
        pa.array(records.ids.tolist(), pa.string()), pa.array(records.times, pa.int64()),
        pa.array(records.values.tolist(), pa.binary()), numbers, pa.nulls(count, pa.string()),
    ]  # fmt: skip
    return pa.record_batch(columns, _COLUMN_NAMES)


def _invalid_batch(side: Side, partitions: pa.Array, offsets: pa.Array, reasons: Sequence[str]) -> pa.RecordBatch:
    count = len(reasons)
    columns = [
        pa.array([side.value] * count, pa.string()), partitions, offsets, pa.nulls(count, pa.string()),
        pa.nulls(count, pa.int64()), pa.nulls(count, pa.binary()), pa.nulls(count, pa.int32()),
        pa.array(reasons, pa.string()),
    ]  # fmt: skip
    return pa.record_batch(columns, _COLUMN_NAMES)


def _late_outputs(batches: Batches, plan: JoinPlan) -> Iterator[pa.RecordBatch]:
    """Convert late records to records of `join-late`."""
    for batch in batches:
        outputs: list[OutputRecord] = []
        for (name, number), rows in _groups(batch, ["side", "partition"]):
            side = Side(name)
            watermarks = rows["watermark"].to_pylist()
            outputs += late_records(
                side.value, _records(rows), [number] * rows.num_rows, watermarks, is_json=plan.is_json(side)
            )
        yield _answer_batch(outputs, [True] * len(outputs))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Finds the pairs of records that are ordered by number, id, side, partition and offset."""

    plan: JoinPlan
    watermarks: Mapping[tuple[Side, int], int]
    """Watermark of each partition of both sides at its end."""

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for table in _whole_ids(batches):
            for (number,), rows in _groups(table, ["number"]):
                yield self._paired(number, rows)

    def _paired(self, number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        is_json = {side: self.plan.is_json(side) for side in Side}
        # Lateness is decided, and the end of the topics is the end of time.
        join = WindowJoin(self.plan.rules, external_watermarks=True)
        logs = {side: _records(rows.filter(pc.equal(rows["side"], side.value))) for side in Side}
        pairs: list[OutputRecord] = []
        unmatched: dict[Side, list[Records]] = {side: [] for side in Side}
        for side, records, next_time in _by_time(logs):
            added = join.add(side, records)
            pairs += joined_records(
                number, added.left, added.right, left_is_json=is_json[Side.LEFT], right_is_json=is_json[Side.RIGHT]
            )
            join.raise_watermark(side, next_time)
            for each in Side:
                unmatched[each].append(join.expire(each))
        outputs, decided = pairs, [True] * len(pairs)
        for side in Side if self.plan.emit_unmatched_left else [Side.RIGHT]:
            for records in (*unmatched[side], join.expire_all(side)):
                outputs += unmatched_records(f"unmatched-{side.value}", number, records, is_json=is_json[side])
                decided += self._decided(side, number, records)
        return _answer_batch(outputs, decided)

    def _decided(self, side: Side, number: int, records: Records) -> list[bool]:
        watermark = self.watermarks.get((side.opposite, number))
        reach = self.plan.rules.apart_ms if side is Side.LEFT else 0
        return [watermark is not None and watermark > time + reach for time in records.times.tolist()]


def _by_time(logs: Mapping[Side, Records]) -> Iterator[tuple[Side, Records, int]]:
    """Yield slices of both logs, and the earliest time that follows in the log of each slice.

    The log with the earliest time is read next, so that few records wait for partners, however many an id has.
    """
    # Offsets of several partitions may be equal: the rank takes their place.
    ranked = {side: records._replace(offsets=np.arange(len(records.times))) for side, records in logs.items()}
    earliest = {
        side: np.append(np.minimum.accumulate(records.times[::-1])[::-1], MAX_WATERMARK + 1)
        for side, records in logs.items()
    }
    read = dict.fromkeys(Side, 0)
    while any(read[side] < len(logs[side].times) for side in Side):
        side = min(Side, key=lambda side: earliest[side][read[side]])
        rows = ranked[side].offsets[read[side] : read[side] + SLICE_RECORDS]
        read[side] += len(rows)
        yield side, ranked[side].take(rows), int(earliest[side][read[side]])


def _whole_ids(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield the rows again, cut between two ids. An id that several batches have is alone."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        same = pc.sum(_with_id_of(batch, pending[-1])).as_py() if pending else 0
        if same == batch.num_rows:
            pending.append(batch)
            continue
        last = pc.index(_with_id_of(batch, batch), value=True).as_py()
        yield from _combined([*pending, batch.slice(0, same)])
        yield from _combined([batch.slice(same, last - same)])
        pending = [batch.slice(last)]
    yield from _combined(pending)


def _with_id_of(batch: pa.RecordBatch, other: pa.RecordBatch) -> Any:
    """Return which rows have the id of the last row of another batch."""
    return pc.and_(pc.equal(batch["id"], other["id"][-1]), pc.equal(batch["number"], other["number"][-1]))


def _combined(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if sum(batch.num_rows for batch in batches):
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def _groups(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the rows of each combination of values, in their order."""
    table = pa.Table.from_batches([batch]).select(list(names))
    for group in table.group_by(list(names), use_threads=False).aggregate([]).to_pylist():
        is_in_group: Any = True
        for name, value in group.items():
            is_in_group = pc.and_(pc.equal(batch[name], value), is_in_group)
        yield tuple(group[name] for name in names), batch.filter(is_in_group)


def _records(rows: pa.RecordBatch) -> Records:
    times, offsets = rows["time"].to_numpy(), rows["offset"].to_numpy()
    return records_of(rows["id"].to_pylist(), times, offsets, rows["value"].to_pylist())


def _answer_batch(outputs: Iterable[OutputRecord], decided: Sequence[bool]) -> pa.RecordBatch:
    records = list(outputs)
    columns = [
        pa.array([record.topic for record in records], pa.string()),
        pa.array([record.partition for record in records], pa.int32()),
        pa.array([(record.key or b"").decode() for record in records], pa.string()),
        pa.array([(record.value or b"").decode() for record in records], pa.string()),
        pa.array([record.timestamp for record in records], pa.int64()),
        pa.array(decided, pa.bool_()),
    ]
    return pa.record_batch(columns, list(COLUMNS))
