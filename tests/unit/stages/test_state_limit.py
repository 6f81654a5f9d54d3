"""Open windows are bounded: beyond the limit a stage ends before it writes a part of the batch that exceeds it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.aggregates import install
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from helpers.stage_start import in_memory
from skewless.algorithms.windowing import window_store
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.step import Sample
from skewless.errors import LimitError
from skewless.stages import windowed_step
from skewless.stages.aggregator.step import AggregatorStep
from skewless.stages.built_stage import build
from skewless.stages.observer import step as observer_step
from skewless.stages.windowed_step import WindowedStep
from skewless.wire.columns import write_table
from skewless.wire.partials import PARTIALS
from skewless.wire.record import OutputRecord

MEGABYTE = 2**20
LIMIT = "aggregator.max_state_bytes (1,048,576): start more aggregator processes"


def built(stage: str, **section: Any) -> WindowedStep:
    settings = PipelineSettings.model_validate(
        {
            "name": "p",
            "source": {"topic": "s"},
            "worker_input": {"max_workers": 1},
            "router": {"workers": 1},
            "topics": {"aggregator_partitions": 2},
            stage: {"max_state_bytes": MEGABYTE, **section},
        }
    )
    step = build(in_memory(stage, settings, 1)).step
    assert isinstance(step, WindowedStep)
    for partition in range(2):
        step.assign(partition, None, ())
    return step


def deltas(first: int, size: int, pane: int = 0, watermark: int = 0) -> OutputRecord:
    numbers = np.ones(size, np.int64)
    columns = {
        "pane": numbers * pane, "key": [f"{key:08d}" for key in range(first, first + size)], "count": numbers,
        "sum": numbers, "worker": np.zeros(size, np.int32),
    }  # fmt: skip
    return OutputRecord("partials", write_table(pa.table(columns)), headers=internal_headers(PARTIALS, {0: watermark}))


def merge(step: WindowedStep, partition: int, output: OutputRecord) -> None:
    assert list(step.process(InMemoryBatch(partition, [output]), 0)) == []


def samples(step: WindowedStep) -> dict[str, float]:
    return {sample.name: sample.value for sample in step.collect_metrics() if isinstance(sample, Sample)}


def test_state_limit_exceeded_at_a_commit_ends_the_stage_before_any_write() -> None:
    step = built("aggregator")
    for partition in range(2):
        merge(step, partition, deltas(0, 4_000))
    assert len(list(step.flush(0))) > 0
    held = samples(step)
    assert 0.3 < held["skewless_state_bytes"] / held["skewless_state_limit_bytes"] < 1
    for partition in range(2):
        merge(step, partition, deltas(4_000, 8_000))
    with pytest.raises(LimitError) as raised:
        next(iter(step.flush(0)))
    assert LIMIT in str(raised.value)
    assert "(24,000 keys in 2 open windows)" in str(raised.value)
    assert raised.value.exit_code == 3


def test_state_limit_exceeded_between_two_commits_ends_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowed_step, "CHECKED_ROWS", 4_000)
    monkeypatch.setattr(window_store, "PENDING_ROWS", 1_000)
    step = built("aggregator")
    batch = InMemoryBatch(0, [deltas(first, 1_000) for first in range(0, 100_000, 1_000)])
    with pytest.raises(LimitError):
        list(step.process(batch, 0))
    assert samples(step)["skewless_state_bytes"] < 2 * MEGABYTE


@pytest.mark.parametrize("stage", ["aggregator", "observer"])
def test_state_limit_keys_of_closed_windows_are_released_for_others(stage: str) -> None:
    step = built(stage)
    for window in range(10):
        pane = 60_000 * window
        for partition in range(2):
            merge(step, partition, deltas(0, 2_500, pane, watermark=pane))
        list(step.flush(0))


def reopened(partition: int, step: WindowedStep, chunks: Iterable[OutputRecord]) -> None:
    assert isinstance(step, AggregatorStep)
    step.reopen(partition, [(chunk.key, chunk.value) for chunk in chunks if chunk.key and chunk.value])


def test_state_limit_reopened_windows_are_released_for_open_ones() -> None:
    step = built("aggregator")
    merge(step, 0, deltas(0, 5_000, watermark=60_000))
    chunks = [output for output in step.flush(0) if output.topic == "aggregator-changelog"]
    before = samples(step)["skewless_state_bytes"]
    reopened(0, step, chunks)
    list(step.flush(0))
    assert samples(step)["skewless_state_bytes"] > before + 200_000
    merge(step, 1, deltas(0, 6_000, pane=60_000))
    list(step.flush(0))
    assert len(step._inputs[0].windows) == 0


def test_state_limit_reached_within_a_batch_keeps_its_reopened_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    step = built("aggregator")
    for pane in (0, 60_000):
        merge(step, 0, deltas(0, 5_000, pane, watermark=120_000))
    reopened(0, step, [output for output in step.flush(0) if output.topic == "aggregator-changelog"])
    monkeypatch.setattr(windowed_step, "CHECKED_ROWS", 1)
    assert samples(step)["skewless_state_bytes"] > MEGABYTE // 2
    batch = InMemoryBatch(0, [deltas(0, 10, pane, watermark=120_000) for pane in (0, 60_000)])
    assert list(step.process(batch, 0)) == []
    numbers = [json.loads(output.value or b"")["count"] for output in step.flush(0) if output.topic == "aggregates"]
    assert numbers == [2] * 20


def digit_sets(first: int) -> OutputRecord:
    """Return the partials of 100 keys, each with a set of 90 bytes."""
    ones = np.ones(100, np.int64)
    columns = {
        "pane": 0 * ones, "key": [f"{key}" for key in range(first, first + 100)], "count": ones,
        "digit_set": [bytes(range(90))] * 100,
    }  # fmt: skip
    return OutputRecord("partials", write_table(pa.table(columns)), headers=internal_headers(PARTIALS, {0: 0}))


def test_binary_partials_beyond_the_limit_between_two_commits_end_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(windowed_step, "CHECKED_BYTES", 100_000)
    monkeypatch.setattr(window_store, "PENDING_BYTES", 100_000)
    step = built("aggregator", aggregates=["digits"])
    with pytest.raises(LimitError):
        list(step.process(InMemoryBatch(0, [digit_sets(first) for first in range(0, 20_000, 100)]), 0))
    assert samples(step)["skewless_state_bytes"] < 2 * MEGABYTE


def counts(outputs: Iterable[OutputRecord], changelog: dict[int, dict[bytes, bytes]]) -> list[dict[str, Any]]:
    """Return the ticks, and keep the changelog up to date."""
    ticks = []
    for output in outputs:
        if output.topic == "distribution":
            ticks.append(json.loads(output.value or b""))
        if output.topic == "observer-changelog" and output.key is not None and output.partition is not None:
            records = changelog.setdefault(output.partition, {})
            records.pop(output.key, None)
            if output.value is not None:
                records[output.key] = output.value
    return ticks


@pytest.mark.parametrize("restarts", [False, True])
def test_state_limit_of_the_observer_drops_the_keys_with_few_tuples_and_keeps_the_loads(restarts: bool) -> None:  # noqa: FBT001 - a parameter of the test
    step, changelog, reduced = built("observer"), dict[int, dict[bytes, bytes]](), 0.0
    for first in range(0, 40_000, 4_000):
        for partition in range(2):
            merge(step, partition, deltas(first, 4_000))
        merge(step, 0, hot(3_000))
        assert counts(step.flush(0), changelog) == []
        assert samples(step)["skewless_state_bytes"] < MEGABYTE
        reduced = max(reduced, samples(step)["skewless_observer_reduced_ticks_total"])
        if restarts:
            positions = [step.checkpoint(partition) for partition in range(2)]
            step = built("observer")
            for partition in range(2):
                step.assign(partition, positions[partition], list(changelog[partition].items()))
    assert reduced == 1
    for partition in range(2):
        merge(step, partition, deltas(0, 1, pane=60_000, watermark=60_000))
    (tick,) = counts(step.flush(0), changelog)
    assert (tick["tuples"], tick["tuples_by_worker"]) == (80_000 + 30_000, [80_000, 30_000])
    assert tick["reduced"] is True
    assert tick["keys"] < 40_000
    assert tick["top_keys"][0] == {"key": "hot", "tuples": 30_000, "workers": 1}


def pairs_of_ticks(ticks: range, keys: range) -> OutputRecord:
    """Return the partials of each of the keys in each of the ticks of a minute."""
    ones = np.ones(len(ticks) * len(keys), np.int64)
    numbers = np.tile(np.array(keys), len(ticks))
    columns = {
        "pane": np.repeat(np.array(ticks) * 60_000, len(keys)), "key": [f"{key:08d}" for key in numbers.tolist()],
        "count": ones, "worker": (numbers % 2).astype(np.int32),
    }  # fmt: skip
    return OutputRecord("partials", write_table(pa.table(columns)), headers=internal_headers(PARTIALS, {0: 0}))


@pytest.fixture
def reductions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the numbers of pairs to which ticks are reduced from now on."""
    calls, reduce = [], observer_step._without_small_pairs

    def counted(rows: pa.Table, kept: int) -> pa.Table:
        calls.append(kept)
        return reduce(rows, kept)

    monkeypatch.setattr(observer_step, "_without_small_pairs", counted)
    return calls


SMALL = 120_000
"""A limit that few ticks reach."""


def small_observer() -> WindowedStep:
    step = built("observer")
    step._limit = replace(step._limit, max_bytes=SMALL)
    return step


def test_state_limit_of_the_observer_with_many_small_ticks_is_kept_and_the_loads_are_exact(
    reductions: list[int],
) -> None:
    step = small_observer()
    for first in range(0, 160, 40):
        for partition in range(2):
            keys = range(first + 20 * partition, first + 20 * partition + 20)
            merge(step, partition, pairs_of_ticks(range(30), keys))
        before = len(reductions)
        assert counts(step.flush(0), {}) == []
        assert samples(step)["skewless_state_bytes"] <= SMALL
        # Each tick of each partition once per number of pairs that it may keep.
        assert len(reductions) - before <= 30 * 2 * len(observer_step.KEPT_PAIRS)
    assert 10 in reductions
    for partition in range(2):
        merge(step, partition, deltas(0, 1, pane=1_800_000, watermark=1_800_000))
    ticks = counts(step.flush(0), {})
    assert {tuple(tick["tuples_by_worker"]) for tick in ticks} == {(80, 80)}
    assert len(ticks) == 30
    assert {tick["reduced"] for tick in ticks if tick["keys"] < 160} == {True}
    assert samples(step)["skewless_observer_reduced_ticks_total"] == sum(tick["reduced"] for tick in ticks)


def test_state_limit_of_the_observer_near_its_smallest_state_reduces_only_ticks_that_have_grown(
    reductions: list[int],
) -> None:
    step, checks = small_observer(), []
    merge(step, 0, pairs_of_ticks(range(140), range(20)))
    list(step.flush(0))
    smallest = samples(step)["skewless_state_bytes"]
    assert SMALL // 2 < smallest <= SMALL
    for first in range(400, 4_000, 400):
        before = len(reductions)
        merge(step, 0, pairs_of_ticks(range(3), range(first, first + 400)))
        list(step.flush(0))
        checks.append(len(reductions) - before)
    assert max(checks) <= 3 * len(observer_step.KEPT_PAIRS)
    assert sum(checks) > 0


def test_state_limit_of_the_observer_many_reductions_are_divided_among_checks(
    monkeypatch: pytest.MonkeyPatch, reductions: list[int]
) -> None:
    monkeypatch.setattr(observer_step, "REDUCTIONS_PER_CHECK", 5)
    step, checks = small_observer(), []
    for first in range(0, 60, 2):
        before = len(reductions)
        merge(step, 0, pairs_of_ticks(range(60), range(first, first + 2)))
        list(step.flush(0))
        checks.append(len(reductions) - before)
        assert samples(step)["skewless_state_bytes"] <= SMALL
    assert len([check for check in checks if check]) > 5
    assert max(checks) < 60


def test_state_limit_of_the_observer_below_its_smallest_state_ends_the_stage_with_a_remedy_that_helps() -> None:
    step = small_observer()
    merge(step, 0, pairs_of_ticks(range(300), range(3)))
    with pytest.raises(LimitError, match=r"observer.max_state_bytes \(120,000\): raise the limit .* longer ticks"):
        list(step.flush(0))


def hot(tuples: int) -> OutputRecord:
    """Return the partials of one key with many tuples, of worker 1."""
    one = np.ones(1, np.int64)
    columns = {"pane": 0 * one, "key": ["hot"], "count": tuples * one, "worker": np.ones(1, np.int32)}
    return OutputRecord("partials", write_table(pa.table(columns)), headers=internal_headers(PARTIALS, {0: 0}))
