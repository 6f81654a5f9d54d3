"""Tasks of a query of Spark: a record whose parsing fails does not end the task."""

from __future__ import annotations

import msgspec
import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.parsing.formats.base import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import SourceRecords
from skewless.spark.stream_tasks import PROGRESS, RECORDS, SourceProgress, SplitTask
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

SOURCE = TopicPartition("orders", 0)
NOW = 1_767_225_600_000
SETTINGS = PipelineSettings.model_validate(
    {
        "name": "shop",
        "source": {"topic": "orders"},
        "splitter": {"key": {"field": "key"}, "time": {"field": "time"}},
    }
)


def test_split_task_record_whose_parsing_fails_is_a_dead_letter_and_its_neighbours_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parse = RecordParser.parse

    def failing(parser: RecordParser, records: SourceRecords) -> ParsedBatch:
        if b"poison" in records.values:
            raise RuntimeError("no such field")
        return parse(parser, records)

    monkeypatch.setattr(RecordParser, "parse", failing)
    good = [b'{"key": "a", "time": %d}' % (NOW - 1_000 * number) for number in range(6)]
    counts = {SOURCE.topic: 1, SETTINGS.topic("tuples"): 1}
    records = [OutputRecord(SOURCE.topic, value, b"k") for value in (*good[:4], b"poison", *good[4:])]
    task = SplitTask(SETTINGS, counts, {SOURCE: None}, NOW)
    batches = task.split([MessageBatch.of_outputs(SOURCE, records, NOW)])
    rows = [row for batch in batches for row in batch.to_pylist()]
    (progress,) = (msgspec.json.decode(row["block"], type=SourceProgress) for row in rows if row["kind"] == PROGRESS)
    assert (progress.records, progress.tuples, progress.dead_letters, progress.next_offset) == (7, 6, 1, 7)
    assert progress.timed_records == 6
    assert progress.max_time == NOW
    (block,) = (row["block"] for row in rows if row["kind"] == RECORDS)
    (letter,) = msgspec.msgpack.decode(block, type=list[OutputRecord])
    headers = dict(letter.headers)
    assert (letter.topic, letter.value) == ("dead-letters", b"poison")
    assert headers["__skewless.errors.offset"] == b"4"
    assert headers["__skewless.errors.reason"] == b"cannot be processed: RuntimeError: no such field"
