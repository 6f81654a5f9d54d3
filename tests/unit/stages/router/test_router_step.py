from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from helpers.batches import (
    FORMAT,
    ROW_FORMAT,
    encode_tuples,
    idle_in,
    reasons_in,
    rows_in,
    rows_of,
    tuples_in,
    upstream,
    watermarks_in,
    written,
)
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from skewless.algorithms import grouping
from skewless.algorithms.grouping import KeyBatch
from skewless.algorithms.record_size import RECORD_BYTES
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState
from skewless.stages.router.step import RouterStep
from skewless.wire.columns import read_table, write_table
from skewless.wire.headers import WATERMARK, report_of, schema_of
from skewless.wire.record import OutputRecord
from skewless.wire.rows import PANE_HEADER, ROWS
from skewless.wire.tuples import TUPLE, TUPLES, TupleRecord

Tuple = tuple[str, int, int]
TUPLES_IN = [("a", 1, 10), ("b", 2, 11), ("a", 3, 12), ("c", 4, 13), ("b", 5, 14), ("a", 6, 15)]


def tuples(rows: Sequence[Tuple], watermarks: dict[int, int] | None = None) -> OutputRecord:
    keys, values, times = zip(*rows, strict=True) if rows else ((), (), ())
    encoded = encode_tuples(
        pa.array(keys, pa.string()).dictionary_encode(), np.array(values, np.int64), np.array(times, np.int64)
    )
    return OutputRecord(
        "tuples", encoded, partition=2, headers=internal_headers(TUPLES, {2: 5} if watermarks is None else watermarks)
    )


def router(name: str = "key", encoding: str = "batch", checkpoint: str | None = None) -> RouterStep:
    step = build(name, encoding)
    step.assign(2, checkpoint, ())
    return step


def build(
    name: str = "partial_key", encoding: str = "batch", workers: int = 3, snapshot_ms: int = 1000, **more: Any
) -> RouterStep:
    choice = grouping.create(name, workers)
    return RouterStep(
        choice,
        FORMAT,
        ROW_FORMAT,
        max_workers=5,
        encoding=encoding,
        topic="p.tuples",
        snapshot_ms=snapshot_ms,
        new_upstream=upstream,
        **more,
    )


def route(step: RouterStep, *records: OutputRecord) -> list[OutputRecord]:
    return list(step.process(InMemoryBatch(2, records), 0))


def sent(step: RouterStep, *records: OutputRecord) -> list[OutputRecord]:
    """Return what is written until the flush, without snapshots and without watermarks for workers without tuples."""
    outputs = [*route(step, *records), *step.flush(0)]
    return [
        output
        for output in outputs
        if output.topic == "dead-letters" or (output.topic == "worker-input" and output.value is not None)
    ]


@pytest.mark.parametrize("name", sorted(grouping.GROUPINGS))
@pytest.mark.parametrize("encoding", ["batch", "record"])
def test_router_tuples_are_sent_to_the_partition_chosen_by_the_grouping(name: str, encoding: str) -> None:
    keys = list(dict.fromkeys(key for key, _, _ in TUPLES_IN))
    codes = np.array([keys.index(key) for key, _, _ in TUPLES_IN], dtype=np.int32)
    times = np.array([time for _, _, time in TUPLES_IN])
    chosen = grouping.create(name, 3).assign(KeyBatch(keys, codes, times), 0).tolist()
    outputs = sent(router(name, encoding), tuples(TUPLES_IN[:4]), tuples(TUPLES_IN[4:]))
    for worker in range(5):
        own = [output for output in outputs if output.partition == worker]
        found = plain(own) if encoding == "record" else tuples_in(own)
        assert sorted(found) == sorted(row for row, to in zip(TUPLES_IN, chosen, strict=True) if to == worker)


def plain(outputs: list[OutputRecord]) -> list[Tuple]:
    found = []
    for output in outputs:
        entry = msgspec.json.decode(output.value or b"", type=TupleRecord)
        found.append(((output.key or b"").decode(), entry.value, entry.time))
    return found


def test_router_batch_becomes_one_record_per_worker_with_its_own_keys_only() -> None:
    outputs = sent(router(), tuples(TUPLES_IN), tuples([("z", 1, 16)]))
    partitions = [output.partition for output in outputs]
    assert len(set(partitions)) == len(partitions)
    for output in outputs:
        (column,) = read_table(output.value)["key"].chunks
        assert sorted(column.dictionary.to_pylist()) == sorted({key for key, _, _ in tuples_in([output])})


def test_router_batch_too_large_for_a_record_is_split_with_the_watermark_in_the_last_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skewless.stages.router.step.HELD_BYTES", 2**40)
    rows = [(f"{number:03d}" + "k" * 1000, number, number) for number in range(500)]
    outputs = sent(
        router(), *(tuples([(f"{part}{key}", value, time) for key, value, time in rows]) for part in range(40))
    )
    by_worker: dict[int | None, list[OutputRecord]] = {}
    for output in outputs:
        by_worker.setdefault(output.partition, []).append(output)
        assert len(output.value or b"") < 2 * RECORD_BYTES
    assert len(outputs) > len(by_worker) > 1
    assert sorted(value for _, value, _ in tuples_in(outputs)) == sorted([*range(500)] * 40)
    for own in by_worker.values():
        assert watermarks_in(own) == [*({} for _ in own[1:]), {2: 5}]


def test_router_tuple_records_carry_the_last_watermark_of_their_batch() -> None:
    outputs = sent(router(), tuples(TUPLES_IN, {2: 5}), tuples(TUPLES_IN, {2: 9}))
    assert {schema_of(output.headers) for output in outputs} == {TUPLES}
    assert all(watermark == {2: 9} for watermark in watermarks_in(outputs))


def test_router_watermark_is_sent_to_all_worker_partitions_once() -> None:
    step = router()
    route(step, tuples(TUPLES_IN, {2: 5}))
    outputs = written(step.flush(0), "worker-input")
    assert sorted(output.partition or 0 for output in outputs) == list(range(5))
    assert {schema_of(output.headers) for output in outputs if output.value is None} == {WATERMARK}
    assert watermarks_in(outputs) == [{2: 5}] * 5
    assert list(step.flush(0)) == []


def test_router_tuples_of_several_partitions_are_one_record_per_worker() -> None:
    step = router("shuffle")
    step.assign(1, None, ())
    for partition in (1, 2, 1):
        record = OutputRecord("tuples", tuples(TUPLES_IN).value, headers=internal_headers(TUPLES, {partition: 10}))
        assert list(step.process(InMemoryBatch(partition, [record]), 0)) == []
    outputs = [output for output in written(step.flush(0), "worker-input") if output.value is not None]
    assert [output.partition for output in outputs] == [0, 1, 2]
    assert watermarks_in(outputs) == [{1: 10, 2: 10}] * 3
    assert sorted(tuples_in(outputs)) == sorted(TUPLES_IN * 3)


@pytest.mark.parametrize(
    ("limit", "size"), [("HELD_ROWS", len(TUPLES_IN)), ("HELD_BYTES", len(tuples(TUPLES_IN).value or b""))]
)
def test_router_more_tuples_than_are_held_are_sent_before_the_flush(
    monkeypatch: pytest.MonkeyPatch, limit: str, size: int
) -> None:
    monkeypatch.setattr(f"skewless.stages.router.step.{limit}", size)
    step = router()
    assert route(step, tuples(TUPLES_IN)) == []
    outputs = route(step, tuples(TUPLES_IN))
    assert sorted(tuples_in(outputs)) == sorted(TUPLES_IN * 2)
    assert set(map(str, watermarks_in(outputs))) == {"{}"}
    assert watermarks_in(written(step.flush(0), "worker-input")) == [{2: 5}] * 5


def test_router_without_transactions_sends_tuples_at_once() -> None:
    step = build("key", holds=False)
    step.assign(2, None, ())
    assert sorted(tuples_in(route(step, tuples(TUPLES_IN)))) == sorted(TUPLES_IN)
    assert tuples_in(written(step.flush(0), "worker-input")) == []


@pytest.mark.parametrize("watermark", [MAX_WATERMARK, 4])
def test_router_watermark_record_to_an_earlier_time_is_forwarded(watermark: int) -> None:
    step = router()
    route(step, tuples(TUPLES_IN, {2: 5}))
    list(step.flush(0))
    assert route(step, OutputRecord("tuples", None, headers=internal_headers(WATERMARK, {2: watermark}))) == []
    assert watermarks_in(step.flush(0)) == [{2: watermark}] * 5
    assert step.finished(2) == (watermark == MAX_WATERMARK)


def report(watermark: int | None, *, idle: bool = False) -> OutputRecord:
    watermarks = {} if watermark is None else {2: watermark}
    return OutputRecord("tuples", None, headers=internal_headers(WATERMARK, watermarks, [2] if idle else []))


def test_router_idle_flag_is_forwarded_with_the_preceding_watermark() -> None:
    step = router()
    route(step, report(9), report(None, idle=True))
    outputs = list(step.flush(0))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{2: 9}] * 5, [{2}] * 5)
    assert (step.watermark(2), step.idle(2)) == (9, True)
    route(step, report(9))
    outputs = list(step.flush(0))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{2: 9}] * 5, [set()] * 5)


def test_router_partition_that_never_had_a_record_is_forwarded_as_idle() -> None:
    step = router()
    route(step, report(None, idle=True))
    outputs = list(step.flush(0))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{}] * 5, [{2}] * 5)
    assert list(step.flush(0)) == []


@pytest.mark.parametrize("watermark", [5, None])
def test_router_restarted_reports_idle_again_with_its_watermark(watermark: int | None) -> None:
    before = router()
    route(before, report(watermark, idle=True))
    outputs = list(router(checkpoint=before.checkpoint(2)).flush(0))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{} if watermark is None else {2: watermark}] * 5, [{2}] * 5)


def test_router_idle_partition_that_ends_is_forwarded_as_ended() -> None:
    step = router()
    route(step, report(5, idle=True), report(MAX_WATERMARK))
    outputs = list(step.flush(0))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{2: MAX_WATERMARK}] * 5, [set()] * 5)
    assert step.finished(2)


def test_router_several_source_partitions_are_reported_in_one_record_per_worker() -> None:
    step = router()
    step.assign(1, None, ())
    for partition in (1, 2):
        moved = OutputRecord("tuples", None, headers=internal_headers(WATERMARK, {partition: partition * 10}))
        list(step.process(InMemoryBatch(partition, [moved]), 0))
    assert watermarks_in(step.flush(0)) == [{1: 10, 2: 20}] * 5


def test_router_single_tuple_records_have_key_and_schema_and_no_watermark_or_timestamp() -> None:
    outputs = route(router(encoding="record"), tuples([("é", 7, 12)]))
    assert [(output.key, output.timestamp, output.value) for output in outputs] == [
        ("é".encode(), None, b'{"value":7,"time":12}')
    ]
    assert [schema_of(output.headers) for output in outputs] == [TUPLE]
    assert watermarks_in(outputs) == [{}]


NAMELESS: Any = [("schema", None)]
"""A header without a value, which another producer may write."""


def invalid_tuples() -> dict[str, OutputRecord]:
    good = internal_headers(TUPLES, {2: 99})
    nothing = pa.table({"key": pa.array([None], pa.string()).dictionary_encode(), "value": [1], "time": [1]})
    unknown = pa.DictionaryArray.from_arrays(pa.array([1], pa.int32()), pa.array(["a"]), safe=False)
    beyond = pa.table({"key": unknown, "value": [1], "time": [1]})
    return {
        "no Arrow IPC stream": OutputRecord("tuples", b"junk", headers=good),
        "no value": OutputRecord("tuples", None, headers=good),
        "other columns": OutputRecord("tuples", write_table(pa.table({"key": ["a"]})), headers=good),
        "a key that is null": OutputRecord("tuples", write_table(nothing), headers=good),
        "a dictionary without that key": OutputRecord("tuples", write_table(beyond), headers=good),
        "no schema": OutputRecord("tuples", b"junk"),
        "a schema without a name": OutputRecord("tuples", tuples(TUPLES_IN).value, headers=NAMELESS),
        "watermarks without a value": OutputRecord(
            "tuples",
            None,
            headers=[*internal_headers(WATERMARK, {}), ("watermarks", None)],  # type: ignore[list-item]  # as above
        ),
        "unknown schema": OutputRecord("tuples", b"junk", headers=[("schema", b"other")]),
        "unreadable idle": OutputRecord("tuples", tuples(TUPLES_IN).value, headers=[*good[:1], ("idle", b"[-1]")]),
        "invalid watermarks": OutputRecord(
            "tuples", tuples(TUPLES_IN).value, headers=[*good[:1], ("watermarks", b"?")]
        ),
        "watermarks beyond the maximum": OutputRecord("tuples", None, headers=internal_headers(WATERMARK, {2: 2**60})),
    }


@pytest.mark.parametrize("name", invalid_tuples())
def test_router_invalid_records_become_dead_letters_and_leave_the_watermark_unchanged(name: str) -> None:
    step = router()
    outputs = sent(step, tuples([("a", 1, 10)], {2: 7}), invalid_tuples()[name], tuples([("b", 2, 11)], {2: 8}))
    assert sorted(tuples_in(written(outputs, "worker-input"))) == [("a", 1, 10), ("b", 2, 11)]
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [1]
    assert step.watermark(2) == 8


def test_router_record_without_tuples_is_accepted() -> None:
    step = router()
    assert route(step, tuples([], {2: 7})) == []
    assert step.watermark(2) == 7


def test_router_restarted_reports_its_watermark_again() -> None:
    before = router()
    route(before, tuples(TUPLES_IN, {2: 5}))
    list(before.flush(0))
    restarted = router(checkpoint=before.checkpoint(2))
    assert restarted.watermark(2) == 5
    assert watermarks_in(restarted.flush(0)) == [{2: 5}] * 5


def test_router_without_a_source_watermark_emits_nothing() -> None:
    step = router(checkpoint=router().checkpoint(2))
    assert list(step.flush(0)) == []
    assert all(watermark == {} for watermark in watermarks_in(sent(step, tuples(TUPLES_IN, {}))))


def test_router_revoked_partition_is_not_reported() -> None:
    step = router()
    route(step, tuples(TUPLES_IN))
    step.revoke(2)
    assert list(step.flush(0)) == []


def test_router_tuples_of_each_worker_are_counted() -> None:
    step = router("shuffle")
    for _ in itertools.repeat(None, 3):
        route(step, tuples(TUPLES_IN))
    assert step.tuples == 18
    sent = {
        sample.labels: sample.value
        for sample in step.collect_metrics()
        if sample.name == "skewless_router_tuples_total"
    }
    assert sent == {("0",): 6, ("1",): 6, ("2",): 6}


Row = tuple[int, str, int, int]
ROWS_IN: list[Row] = [(10, "a", 5, 7), (10, "b", 1, -2), (20, "a", 3, 2**62), (20, "c", 2, 0)]


def rows(given: Sequence[Row], watermark: int = 5) -> OutputRecord:
    (record,) = ROW_FORMAT.records("tuples", 2, rows_of(*given), report_of({2: WatermarkState(watermark)}))
    return record


def received(outputs: Sequence[OutputRecord]) -> list[tuple[int | None, Row]]:
    found = [(output.partition, row) for output in outputs for row in rows_in([output])]
    return [(worker, (row["pane"], row["key"], row["count"], row["sum"])) for worker, row in found]


@pytest.mark.parametrize("name", sorted(grouping.GROUPINGS))
@pytest.mark.parametrize("encoding", ["batch", "record"])
def test_router_row_is_one_item_for_the_grouping(name: str, encoding: str) -> None:
    keys = ["a", "b", "c"]
    codes = np.array([keys.index(key) for _, key, _, _ in ROWS_IN], dtype=np.int32)
    times = np.array([pane for pane, *_ in ROWS_IN])
    chosen = grouping.create(name, 3).assign(KeyBatch(keys, codes, times), 0).tolist()
    outputs = sent(router(name, encoding), rows(ROWS_IN[:2]), rows(ROWS_IN[2:]))
    assert sorted(received(outputs)) == sorted(zip(chosen, ROWS_IN, strict=True))
    assert {(output.topic, schema_of(output.headers), dict(output.headers)[PANE_HEADER]) for output in outputs} == {
        ("worker-input", ROWS, b"10")
    }


def test_router_rows_between_tuples_are_routed_and_the_watermark_is_in_the_last_records() -> None:
    step = router("shuffle")
    outputs = sent(step, tuples(TUPLES_IN[:3]), rows(ROWS_IN, watermark=8), tuples(TUPLES_IN[3:], {2: 9}))
    by_schema = {name: [one for one in outputs if schema_of(one.headers) == name] for name in (TUPLES, ROWS)}
    assert sorted(tuples_in(by_schema[TUPLES])) == sorted(TUPLES_IN)
    assert sorted(row for _, row in received(by_schema[ROWS])) == sorted(ROWS_IN)
    for worker in range(3):
        own = [output for output in outputs if output.partition == worker]
        assert [schema_of(output.headers) for output in own] == [TUPLES, ROWS]
        assert watermarks_in(own) == [{}, {2: 9}]
    assert step.watermark(2) == 9
    assert step.max_event_time(2) == 20


def test_router_metrics_count_rows_as_load_and_the_tuples_in_them() -> None:
    step = router("key")
    route(step, tuples(TUPLES_IN), rows(ROWS_IN))
    assert step.tuples == 6 + 11
    totals: dict[str, float] = {}
    for sample in step.collect_metrics():
        totals[sample.name] = totals.get(sample.name, 0) + sample.value
    assert (totals["skewless_router_tuples_total"], totals["skewless_router_rows_total"]) == (17, 10)


def test_router_invalid_rows_become_dead_letters_and_others_are_routed() -> None:
    valid = rows(ROWS_IN)
    no_tuples, no_multiple = rows([(10, "a", 0, 1)]), rows([(11, "a", 1, 1)])
    outputs = sent(router(), no_tuples, valid, no_multiple)
    assert reasons_in(written(outputs, "dead-letters")) == [
        (0, "a row has no tuples"),
        (2, "a pane does not begin at a multiple of 10 ms"),
    ]
    assert sorted(row for _, row in received(written(outputs, "worker-input"))) == sorted(ROWS_IN)


def test_router_record_without_rows_only_updates_the_watermark() -> None:
    step = router()
    empty = rows(ROWS_IN)
    value = write_table(read_table(empty.value).slice(0, 0))
    assert route(step, OutputRecord("tuples", value, partition=2, headers=empty.headers)) == []
    assert step.watermark(2) == 5


def test_router_reports_the_hot_keys_of_its_grouping_when_others_become_hot() -> None:
    lines: list[str] = []
    step = build("dynamic_key", report=lines.append)
    step.assign(2, None, ())
    for now in (0, 50_000, 52_000):
        list(step.process(InMemoryBatch(2, [tuples(TUPLES_IN)]), now))
        list(step.flush(now))
    # The first keys become old at 45 s. Later the same keys are hot.
    assert lines == [
        "hot keys: 'a' (6 tuples, workers: 2), 'b' (4 tuples, workers: 2), 'c' (2 tuples, workers: 1)",
    ]
