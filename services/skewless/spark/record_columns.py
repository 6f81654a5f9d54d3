"""Converts Arrow batches of Kafka records to the records that the pipeline's parser reads. Does not use Spark."""

from __future__ import annotations

import pyarrow as pa

from skewless.parsing.source_records import RecordColumns


def record_columns(batch: pa.RecordBatch, source_partition: int | str) -> RecordColumns:
    """Return the records of one source partition. The columns `key`, `headers` and `partition` are optional.

    Without a column `partition`, the number of a source partition is that of its name; 0 for the path of a file.
    """
    names = batch.schema.names
    keys = batch["key"].to_pylist() if "key" in names else ()
    headers = (
        [_headers(entries) for entries in batch["headers"].to_pylist()] if "headers" in names else [()] * len(batch)
    )
    partition = source_partition if isinstance(source_partition, int) else 0
    if "partition" in names:
        partition = batch["partition"][0].as_py()
    return RecordColumns(batch["value"].to_pylist(), batch["timestamp"].to_numpy(), keys, headers, partition)


def _headers(entries: list[dict[str, bytes | str | None]] | None) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record in Spark's form, null for a record without any."""
    return [(entry["key"], entry["value"]) for entry in entries or ()]  # type: ignore[misc]  # the types of Spark
