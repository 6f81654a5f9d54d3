"""Tasks of a query of Spark: the watermark after a micro-batch, and the producers that stay after a failed commit."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import TransactionAbortedError
from skewless.spark import stream_merge
from skewless.spark.stream_merge import Merged, MergeTask
from skewless.spark.stream_tasks import PROGRESS, SourceProgress
from skewless.stages.splitter.checkpoint import Checkpoint
from skewless.wire.topic_partition import TopicPartition

SETTINGS = PipelineSettings.model_validate(
    {
        "name": "shop",
        "source": {"topic": "orders"},
        "splitter": {"key": {"field": "key"}, "time": {"field": "time"}},
        "event_time": {"allowed_lateness_s": 0},
    }
)


@pytest.mark.parametrize(("timed_records", "watermark"), [(0, 900), (1, 500)])
def test_merge_task_only_records_with_a_time_make_an_idle_partition_active(timed_records: int, watermark: int) -> None:
    silent, busy = (TopicPartition("orders", number) for number in range(2))
    values: dict[str, Any] = dict.fromkeys(field.name for field in fields(MergeTask))
    values |= {"settings": SETTINGS, "checkpoints": {silent: Checkpoint(500, idle=True), busy: Checkpoint(800)}}
    progress = [
        SourceProgress(*silent, records=1, timed_records=timed_records, max_time=500),
        SourceProgress(*busy, records=1, timed_records=1, max_time=900),
    ]
    blocks = [(PROGRESS, 0, msgspec.json.encode(of_source)) for of_source in progress]
    assert MergeTask(**values).watermark(blocks).watermark == watermark


@pytest.mark.parametrize("hangs", [True, False])
def test_merge_task_commit_that_hangs_closes_the_producers_of_the_other_partitions(
    monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    other, opened = Mock(), Mock()
    error = TransactionAbortedError("committing: no answer", replace_output=hangs)
    monkeypatch.setattr(stream_merge, "_held", {"of another partition": other})
    monkeypatch.setattr(stream_merge, "_opened", Mock(return_value=opened))
    monkeypatch.setattr(stream_merge, "_merge_and_commit", Mock(side_effect=error))
    values: dict[str, Any] = dict.fromkeys(field.name for field in fields(MergeTask)) | {"settings": SETTINGS}
    with pytest.raises(TransactionAbortedError):
        stream_merge._attempt(MergeTask(**values), 0, [])
    assert (opened.close.called, other.close.called) == (True, hangs)
    assert bool(stream_merge._held) is not hangs


def test_merge_task_first_failure_after_a_long_merge_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    error, merged = TransactionAbortedError("committing: the coordinator has moved"), Merged(0)
    monkeypatch.setattr(stream_merge, "_attempt", Mock(side_effect=[error, merged]))
    clock = itertools.count(step=2 * stream_merge.RETRY_S)
    monkeypatch.setattr(stream_merge, "time", Mock(monotonic=lambda: next(clock)))
    values: dict[str, Any] = dict.fromkeys(field.name for field in fields(MergeTask)) | {"settings": SETTINGS}
    assert stream_merge._commit(MergeTask(**values), 0, []) is merged
