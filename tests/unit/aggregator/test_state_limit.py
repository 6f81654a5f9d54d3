"""Open windows are bounded: beyond the limit a stage ends before it writes anything of what it cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pytest

from skewless import windows_step
from skewless.aggregator import agent as aggregator_agent
from skewless.aggregator.step import AggregatorStep
from skewless.algorithms import windowed
from skewless.asyncapi.written import WrittenBatch
from skewless.errors import LimitError
from skewless.observer import agent as observer_agent
from skewless.records import PARTIALS, Output, headers_of, write_table
from skewless.settings import PipelineSettings
from skewless.windows_step import WindowsStep

MEGABYTE = 2**20
LIMITS = {
    "aggregator": "aggregator.max_state_bytes (1,048,576): start more aggregator processes",
    "observer": "observer.max_state_bytes (1,048,576): raise the limit",
}
BUILDERS: dict[str, Callable[[PipelineSettings], WindowsStep]] = {
    "aggregator": aggregator_agent.step,
    "observer": observer_agent.step,
}


def built(stage: str) -> WindowsStep:
    settings = PipelineSettings.model_validate(
        {
            "name": "p",
            "source": {"topic": "s"},
            "worker_input": {"max_workers": 1},
            "router": {"workers": 1},
            "topics": {"aggregator_partitions": 2},
            stage: {"max_state_bytes": MEGABYTE},
        }
    )
    step = BUILDERS[stage](settings)
    for partition in range(2):
        step.assign(partition, None, ())
    return step


def deltas(first: int, size: int, pane: int = 0, mark: int = 0) -> Output:
    numbers = np.ones(size, np.int64)
    columns = {
        "pane": numbers * pane, "key": [f"{key:08d}" for key in range(first, first + size)], "count": numbers,
        "sum": numbers, "worker": np.zeros(size, np.int32),
    }  # fmt: skip
    return Output("partials", write_table(pa.table(columns)), headers=headers_of(PARTIALS, {0: mark}))


def merge(step: WindowsStep, partition: int, output: Output) -> None:
    assert list(step.process(WrittenBatch(partition, [output]), 0)) == []


def samples(step: WindowsStep) -> dict[str, float]:
    return {sample.name: sample.value for sample in step.samples()}


@pytest.mark.parametrize("stage", BUILDERS)
def test_state_beyond_the_limit_ends_the_stage_before_anything_is_written(stage: str) -> None:
    step = built(stage)
    for partition in range(2):
        merge(step, partition, deltas(0, 4_000))
    assert len(list(step.flush(0))) > 0
    held = samples(step)
    assert 0.3 < held["skewless_state_bytes"] / held["skewless_state_limit_bytes"] < 1
    for partition in range(2):
        merge(step, partition, deltas(4_000, 8_000))
    with pytest.raises(LimitError) as raised:
        next(iter(step.flush(0)))
    assert LIMITS[stage] in str(raised.value)
    assert "(24,000 keys in 2 open windows)" in str(raised.value)
    assert raised.value.exit_code == 3


@pytest.mark.parametrize("stage", BUILDERS)
def test_state_beyond_the_limit_between_two_commits_ends_the_stage(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_step, "CHECKED_ROWS", 4_000)
    monkeypatch.setattr(windowed, "PENDING_ROWS", 1_000)
    step = built(stage)
    batch = WrittenBatch(0, [deltas(first, 1_000) for first in range(0, 100_000, 1_000)])
    with pytest.raises(LimitError):
        list(step.process(batch, 0))
    assert samples(step)["skewless_state_bytes"] < 2 * MEGABYTE


@pytest.mark.parametrize("stage", BUILDERS)
def test_keys_of_closed_windows_leave_room_for_others(stage: str) -> None:
    step = built(stage)
    for window in range(10):
        pane = 60_000 * window
        for partition in range(2):
            merge(step, partition, deltas(0, 2_500, pane, mark=pane))
        list(step.flush(0))


def reopened(partition: int, step: WindowsStep, chunks: Iterable[Output]) -> None:
    assert isinstance(step, AggregatorStep)
    step.reopen(partition, [(chunk.key, chunk.value) for chunk in chunks if chunk.key and chunk.value])


def test_reopened_windows_are_released_when_open_ones_need_the_room() -> None:
    step = built("aggregator")
    merge(step, 0, deltas(0, 5_000, mark=60_000))
    chunks = [output for output in step.flush(0) if output.topic == "windows"]
    before = samples(step)["skewless_state_bytes"]
    reopened(0, step, chunks)
    list(step.flush(0))
    assert samples(step)["skewless_state_bytes"] > before + 200_000
    merge(step, 1, deltas(0, 6_000, pane=60_000))
    list(step.flush(0))
    assert len(step._inputs[0].windows) == 0
