"""The read time of tuples, from the splitter to the latency that the aggregator measures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from helpers.batches import batch_of, source
from helpers.in_memory_batch import InMemoryBatch
from helpers.stage_start import in_memory
from skewless.algorithms.duration_histogram import Histogram
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.step import HistogramSample, InputStep
from skewless.stages.built_stage import build
from skewless.wire.headers import READ_TIME_HEADER, newest_read_time
from skewless.wire.record import OutputRecord

READ_MS = 1_767_225_600_000


def built(stage: str, **sections: Any) -> InputStep[Any]:
    settings = {"name": "p", "source": {"topic": "s"}, "splitter": {"key": {"field": "key"}}, **sections}
    settings |= {"worker_input": {"max_workers": 2} | sections.get("worker_input", {}), "router": {"workers": 1}}
    settings |= {"topics": {"aggregator_partitions": 1}, "aggregator": {"emit": "updates"}}
    step = build(in_memory(stage, PipelineSettings.model_validate(settings), 1)).step
    step.assign(step.key_of(source(0)), None, ())
    return step


def source_records(count: int) -> list[bytes | None]:
    return [json.dumps({"key": "a", "value": 1, "time": READ_MS + number}).encode() for number in range(count)]


def split(step: InputStep[Any], now: int, count: int = 1) -> list[OutputRecord]:
    return [*step.process(batch_of(0, source_records(count), time=READ_MS), now), *step.flush(now)]


def passed(step: InputStep[Any], outputs: Sequence[OutputRecord], topic: str, now: int) -> list[OutputRecord]:
    """Process and commit the outputs to partition 0 of a topic."""
    records = [output for output in outputs if output.topic == topic and output.partition == 0]
    return [*step.process(InMemoryBatch(0, records), now), *step.flush(now)]


def read_times(outputs: Sequence[OutputRecord]) -> list[int | None]:
    """Return the read time of each record with tuples or partials."""
    topics = {"tuples", "worker-input", "partials"}
    return [newest_read_time([output.headers]) for output in outputs if output.topic in topics and output.value]


def without_read_time(outputs: Sequence[OutputRecord]) -> list[OutputRecord]:
    """Return the records as an earlier version writes them."""
    return [
        msgspec.structs.replace(
            output, headers=[(name, value) for name, value in output.headers if name != READ_TIME_HEADER]
        )
        for output in outputs
    ]


def latency(step: InputStep[Any]) -> Histogram:
    (sample,) = (sample for sample in step.collect_metrics() if sample.name == "skewless_end_to_end_latency_seconds")
    assert isinstance(sample, HistogramSample)
    return sample.histogram


@pytest.mark.parametrize("local", ["none", "buffer"])
def test_end_to_end_latency_is_the_time_from_the_splitter_to_the_commit_of_the_aggregator(local: str) -> None:
    splitter = built("splitter", splitter={"key": {"field": "key"}, "local": {"mode": local}})
    tuples = split(splitter, READ_MS)
    worker_input = passed(built("router"), tuples, "tuples", READ_MS + 400)
    partials = passed(built("worker"), worker_input, "worker-input", READ_MS + 900)
    aggregator = built("aggregator")
    assert [read_times(outputs) for outputs in (tuples, worker_input, partials)] == [[READ_MS]] * 3
    passed(aggregator, partials, "partials", READ_MS + 1250)
    assert (latency(aggregator).sum, latency(aggregator).cumulative()[-1][1]) == (1.25, 1)
    list(aggregator.flush(READ_MS + 9000))
    assert latency(aggregator).cumulative()[-1][1] == 1


def test_end_to_end_latency_of_several_batches_is_that_of_the_newest_tuple() -> None:
    splitter, router, worker = built("splitter"), built("router"), built("worker")
    tuples = [*split(splitter, READ_MS + 700), *split(splitter, READ_MS)]
    worker_input = passed(router, tuples, "tuples", READ_MS + 800)
    assert read_times(worker_input) == [READ_MS + 700]
    assert read_times(passed(worker, worker_input, "worker-input", READ_MS + 800)) == [READ_MS + 700]
    earlier = passed(router, split(splitter, READ_MS + 100), "tuples", READ_MS + 800)
    assert read_times(passed(worker, earlier, "worker-input", READ_MS + 900)) == [READ_MS + 100]


def test_end_to_end_latency_records_of_an_earlier_version_give_the_same_results_and_no_observation() -> None:
    tuples = split(built("splitter"), READ_MS, count=3)
    old, new = (
        passed(built("worker"), passed(built("router"), records, "tuples", READ_MS), "worker-input", READ_MS)
        for records in (without_read_time(tuples), tuples)
    )
    assert read_times(old) == [None]
    assert old == without_read_time(new)
    aggregator = built("aggregator")
    results = passed(aggregator, old, "partials", READ_MS)
    assert json.loads(next(output.value for output in results if output.topic == "aggregates") or b"")["count"] == 3
    assert latency(aggregator).cumulative()[-1][1] == 0


def test_end_to_end_latency_single_tuples_have_no_read_time() -> None:
    router = built("router", worker_input={"encoding": "record"})
    outputs = passed(router, split(built("splitter"), READ_MS, count=2), "tuples", READ_MS)
    assert read_times(outputs) == [None, None]


def test_end_to_end_latency_partition_that_is_revoked_before_the_commit_is_not_observed() -> None:
    aggregator = built("aggregator")
    worker_input = passed(built("router"), split(built("splitter"), READ_MS), "tuples", READ_MS)
    partials = passed(built("worker"), worker_input, "worker-input", READ_MS)
    list(aggregator.process(InMemoryBatch(0, [output for output in partials if output.partition == 0]), READ_MS))
    aggregator.revoke(0)
    list(aggregator.flush(READ_MS + 1000))
    assert latency(aggregator).cumulative()[-1][1] == 0


@pytest.mark.parametrize("value", [None, b"", b"-1", b"soon", b"9" * 17])
def test_newest_read_time_invalid_header_is_ignored(value: bytes | None) -> None:
    assert newest_read_time([[(READ_TIME_HEADER, value)], [(READ_TIME_HEADER, b"7")]]) == 7
