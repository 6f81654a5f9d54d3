from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from helpers.aggregates import DIGITS
from helpers.batches import FORMAT, encode_tuples, idle_in, reasons_in, rows_in, rows_of, watermarks_in, written
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from skewless.algorithms.aggregates import AGGREGATES, TUPLE_COUNT, Aggregate, columns_of
from skewless.algorithms.hashing import partition_of_keys
from skewless.algorithms.record_size import RECORD_BYTES
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState
from skewless.stages.worker import step as worker_step
from skewless.stages.worker.step import WorkerStep
from skewless.wire.columns import write_table
from skewless.wire.headers import WATERMARK, report_of, schema_of
from skewless.wire.partials import PARTIALS
from skewless.wire.record import OutputRecord
from skewless.wire.rows import ROWS as ROWS_SCHEMA
from skewless.wire.rows import RowFormat
from skewless.wire.tuples import TUPLE, TUPLES, TupleRecord

Tuple = tuple[str, int, int]
ROWS = [("a", 1, 10), ("b", 2, 19), ("a", 3, 12), ("a", 4, 20)]
SUMS = [
    {"pane": 10, "key": "a", "count": 2, "sum": 4, "worker": 6},
    {"pane": 10, "key": "b", "count": 1, "sum": 2, "worker": 6},
    {"pane": 20, "key": "a", "count": 1, "sum": 4, "worker": 6},
]


def columns(rows: Sequence[Tuple], watermarks: dict[int, int] | None = None) -> OutputRecord:
    keys, values, times = zip(*rows, strict=True)
    encoded = encode_tuples(
        pa.array(keys, pa.string()).dictionary_encode(), np.array(values, np.int64), np.array(times, np.int64)
    )
    return OutputRecord("worker-input", encoded, headers=internal_headers(TUPLES, watermarks or {}))


def plain(key: str, value: int, time: int, watermarks: dict[int, int] | None = None) -> OutputRecord:
    encoded = msgspec.json.encode(TupleRecord(value, time))
    return OutputRecord("worker-input", encoded, key.encode(), headers=internal_headers(TUPLE, watermarks or {}))


def progress(idle: Sequence[int] = (), **watermarks: int) -> OutputRecord:
    by_partition = {int(name.removeprefix("origin_")): watermark for name, watermark in watermarks.items()}
    return OutputRecord("worker-input", None, headers=internal_headers(WATERMARK, by_partition, idle))


def worker(
    checkpoint: str | None = None,
    partitions: int = 1,
    aggregates: Sequence[Aggregate] = (AGGREGATES["count"], AGGREGATES["sum"]),
) -> WorkerStep:
    step = WorkerStep(
        columns_of(aggregates),
        FORMAT,
        RowFormat(columns_of(aggregates), pane_ms=10, grid_ms=60),
        pane_ms=10,
        source_partitions=2,
        aggregator_partitions=partitions,
        topic="p.input",
    )
    step.assign(6, checkpoint, ())
    return step


def work(step: WorkerStep, *records: OutputRecord, partition: int = 6) -> list[OutputRecord]:
    return list(step.process(InMemoryBatch(partition, records), 0))


def by_pane(outputs: Sequence[OutputRecord]) -> list[dict[str, Any]]:
    return sorted(rows_in(outputs), key=lambda row: (row["pane"], row["key"], row["worker"]))


def test_worker_flush_emits_one_row_per_pane_and_key() -> None:
    step = worker()
    assert work(step, columns(ROWS[:2]), columns(ROWS[2:])) == []
    outputs = list(step.flush(0))
    assert by_pane(outputs) == SUMS
    assert {(output.topic, schema_of(output.headers)) for output in outputs} == {("partials", PARTIALS)}


def test_worker_single_records_and_columns_of_the_same_tuples_give_the_same_partials() -> None:
    step = worker()
    work(step, *(plain(*row) for row in ROWS[1:]), plain(*ROWS[0], watermarks={0: 30, 1: 25}))
    assert step._buffered_bytes == FORMAT.from_rows(ROWS).nbytes
    outputs = list(step.flush(0))
    assert by_pane(outputs[:1]) == SUMS
    assert watermarks_in(outputs[1:]) == [{6: 25}]


def test_worker_after_a_flush_keeps_nothing() -> None:
    step = worker()
    work(step, columns(ROWS))
    list(step.flush(0))
    assert list(step.flush(0)) == []
    work(step, columns([("a", 5, 11)]))
    assert by_pane(list(step.flush(0))) == [{"pane": 10, "key": "a", "count": 1, "sum": 5, "worker": 6}]


def test_worker_key_is_sent_to_its_partition_from_every_worker() -> None:
    step = worker(partitions=4)
    step.assign(7, None, ())
    rows = [(f"key {number}", 1, 10) for number in range(50)]
    work(step, columns(rows))
    work(step, columns(rows), partition=7)
    outputs = list(step.flush(0))
    assert sorted(row["worker"] for row in rows_in(outputs)) == [6] * 50 + [7] * 50
    for output in outputs:
        keys = [row["key"] for row in rows_in([output])]
        assert set(partition_of_keys(pa.array(keys), 4).tolist()) == {output.partition}


def test_worker_many_tuples_between_two_flushes_are_reduced_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_ROWS", 2)
    step = worker()
    for _ in range(20):
        work(step, columns(ROWS))
        assert step._buffered_rows <= 2
    assert [(row["pane"], row["key"], row["count"], row["sum"]) for row in by_pane(list(step.flush(0)))] == [
        (10, "a", 40, 80),
        (10, "b", 20, 40),
        (20, "a", 20, 80),
    ]


def test_worker_tuples_of_many_partitions_are_reduced_by_their_total_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_ROWS", 4 * len(ROWS))
    step = worker()
    for partition in range(10, 20):
        step.assign(partition, None, ())
        work(step, columns(ROWS), partition=partition)
        assert step._buffered_rows <= 4 * len(ROWS)
    assert len(rows_in(step.flush(0))) == 10 * len(SUMS)


def test_worker_tuples_of_a_revoked_partition_do_not_fill_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_ROWS", 2 * len(ROWS))
    step = worker()
    step.assign(7, None, ())
    for _ in range(3):
        work(step, columns(ROWS), partition=7)
        step.revoke(7)
        step.assign(7, None, ())
    work(step, columns(ROWS), partition=7)
    work(step, columns(ROWS))
    assert step._buffered_rows == 2 * len(ROWS)


def test_worker_tuples_are_reduced_by_the_bytes_of_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    record = columns(ROWS)
    monkeypatch.setattr(worker_step, "BUFFER_BYTES", 3 * len(record.value or b""))
    step = worker()
    work(step, *[record] * 3)
    assert step._buffered_rows == 3 * len(ROWS)
    work(step, record)
    assert step._buffered_rows == 0


@pytest.mark.parametrize(("name", "bound"), [("HELD_ROWS", 3 * len(SUMS)), ("HELD_BYTES", 400)])
def test_worker_holds_more_than_the_bound_requests_a_commit_until_the_flush(
    name: str, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_ROWS", 0)
    monkeypatch.setattr(worker_step, name, bound)
    step = worker()
    step.assign(7, None, ())
    work(step, columns(ROWS))
    work(step, columns(ROWS), partition=7)
    work(step, columns(ROWS))
    expected = [step.wants_commit]
    work(step, columns(ROWS), partition=7)
    expected.append(step.wants_commit)
    list(step.flush(0))
    expected.append(step.wants_commit)
    assert expected == [False, True, False]


def test_wants_commit_binary_partials_are_larger_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_ROWS", 0)
    monkeypatch.setattr(worker_step, "HELD_BYTES", 300)
    rows = [("a", value, 10) for value in range(100)]
    expected = []
    for aggregates in ([TUPLE_COUNT], [TUPLE_COUNT, DIGITS]):
        step = worker(aggregates=aggregates)
        for _ in range(3):
            work(step, columns(rows))
        expected.append(step.wants_commit)
    assert expected == [False, True]
    (row,) = rows_in(written(step.flush(0), "partials"))
    assert (row["count"], row["digit_set"]) == (300, bytes(range(100)))


def test_worker_revoked_partition_no_longer_counts_towards_a_commit_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_ROWS", 0)
    monkeypatch.setattr(worker_step, "HELD_ROWS", 2)
    step = worker()
    work(step, columns(ROWS))
    expected = [step.wants_commit]
    step.revoke(6)
    expected.append(step.wants_commit)
    assert expected == [True, False]


def test_worker_revoked_partition_leaves_the_partials_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_ROWS", 0)
    step = worker()
    step.assign(7, None, ())
    work(step, columns(ROWS))
    work(step, columns(ROWS), partition=7)
    work(step, columns(ROWS))
    step.revoke(7)
    rows = rows_in(step.flush(0))
    assert sorted((row["worker"], row["key"], row["sum"]) for row in rows) == [(6, "a", 8), (6, "a", 8), (6, "b", 4)]


def test_worker_load_metrics_equal_the_written_partials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer of a hot partition is reduced several times between two commits. Each key is written once."""
    monkeypatch.setattr(worker_step, "BUFFER_ROWS", 2)
    step = worker()
    step.assign(7, None, ())
    step.assign(8, None, ())
    for _ in range(20):
        work(step, columns(ROWS))
    rows = by_pane(list(step.flush(0)))
    assert [(row["pane"], row["key"], row["count"]) for row in rows] == [(10, "a", 40), (10, "b", 20), (20, "a", 20)]
    values = {(sample.name, sample.labels): sample.value for sample in step.collect_metrics()}
    assert values["skewless_worker_keys", ("6",)] == values["skewless_worker_partials_total", ("6",)] == len(SUMS)
    assert step.max_event_time(6) == 20


def test_worker_many_long_keys_are_split_into_records_that_the_topic_accepts() -> None:
    step = worker()
    rows = [(f"{number:0350d}", 1, 10) for number in range(60_000)]
    work(step, columns(rows))
    outputs = list(step.flush(0))
    assert max(len(output.value or b"") for output in outputs) < 2 * RECORD_BYTES
    assert sorted(row["key"] for row in rows_in(outputs)) == [key for key, _, _ in rows]


def test_worker_watermark_of_all_router_partitions_is_emitted_after_the_partials_to_every_partition() -> None:
    step = worker(partitions=3)
    work(step, columns(ROWS, {0: 30}))
    assert watermarks_in(step.flush(0)) == [{}] * len(Counter(partition_of_keys(pa.array(["a", "b"]), 3).tolist()))
    work(step, columns([("a", 1, 30)], {1: 25}))
    outputs = list(step.flush(0))
    assert [schema_of(output.headers) for output in outputs] == [PARTIALS, WATERMARK, WATERMARK, WATERMARK]
    assert watermarks_in(outputs[1:]) == [{6: 25}] * 3
    assert [output.partition for output in outputs[1:]] == [0, 1, 2]


def test_worker_unchanged_watermark_is_not_emitted_and_a_lower_one_is() -> None:
    step = worker()
    work(step, progress(origin_0=30, idle=[1]))
    assert watermarks_in(step.flush(0)) == [{6: 30}]
    work(step, progress(origin_0=30))
    assert list(step.flush(0)) == []
    work(step, progress(origin_1=10))
    assert watermarks_in(step.flush(0)) == [{6: 10}]


def test_worker_all_router_partitions_ended_emits_the_max_watermark() -> None:
    step = worker()
    work(step, progress(origin_0=MAX_WATERMARK))
    assert list(step.flush(0)) == []
    work(step, progress(origin_1=MAX_WATERMARK))
    assert watermarks_in(step.flush(0)) == [{6: MAX_WATERMARK}]
    assert step.finished(6)


def test_worker_all_router_partitions_idle_emits_idle_with_the_highest_watermark() -> None:
    step = worker()
    work(step, progress(origin_0=30), progress(idle=[0], origin_1=20))
    outputs = list(step.flush(0))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{6: 20}], [set()])
    work(step, progress(idle=[1]))
    outputs = list(step.flush(0))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{6: 30}], [{6}])
    assert (step.watermark(6), step.idle(6)) == (30, True)
    restarted = worker(step.checkpoint(6))
    outputs = list(restarted.flush(0))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{6: 30}], [{6}])


def test_worker_idle_partition_that_ends_ends_the_worker_partition() -> None:
    step = worker()
    work(step, progress(idle=[0, 1], origin_0=30), progress(origin_1=MAX_WATERMARK))
    assert watermarks_in(step.flush(0)) == [{6: 30}]
    assert not step.finished(6)
    work(step, progress(origin_0=MAX_WATERMARK))
    assert watermarks_in(step.flush(0)) == [{6: MAX_WATERMARK}]
    assert step.finished(6)


def test_worker_several_worker_partitions_are_reported_in_one_record() -> None:
    step = worker()
    step.assign(7, None, ())
    work(step, progress(origin_0=1, origin_1=2))
    work(step, progress(origin_0=3, origin_1=4), partition=7)
    assert watermarks_in(step.flush(0)) == [{6: 1, 7: 3}]


def test_worker_restarted_continues_its_watermarks_and_reports_them_again() -> None:
    before = worker()
    work(before, progress(origin_0=30))
    list(before.flush(0))
    restarted = worker(before.checkpoint(6))
    work(restarted, progress(origin_1=40))
    assert watermarks_in(restarted.flush(0)) == [{6: 30}]


def test_worker_revoked_partition_drops_its_partials() -> None:
    step = worker()
    work(step, columns(ROWS))
    step.revoke(6)
    assert list(step.flush(0)) == []


UNKNOWN = pa.DictionaryArray.from_arrays(pa.array([1], pa.int32()), pa.array(["a"]), safe=False)
BEYOND = write_table(pa.record_batch([UNKNOWN, [1], [1]], schema=FORMAT.schema))
INVALID = {
    "no Arrow IPC stream": OutputRecord("worker-input", b"junk", headers=internal_headers(TUPLES, {})),
    "no schema": OutputRecord("worker-input", b"junk"),
    "unknown schema": OutputRecord("worker-input", b"junk", headers=internal_headers("other", {})),
    "a schema without a name": OutputRecord("worker-input", columns(ROWS).value, headers=[("schema", None)]),  # type: ignore[list-item]  # a foreign producer may
    "a dictionary without that key": OutputRecord("worker-input", BEYOND, headers=internal_headers(TUPLES, {})),
    "no JSON": OutputRecord("worker-input", b"{", b"a", headers=internal_headers(TUPLE, {})),
    "a value beyond 64 bits": OutputRecord("worker-input", b'{"value":9223372036854775808,"time":1}', b"a",
                                     headers=internal_headers(TUPLE, {})),
    "a key that is not a text": OutputRecord(
        "worker-input", b'{"value":1,"time":1}', b"\xff", headers=internal_headers(TUPLE, {})
    ),
    "an unknown idle origin": OutputRecord(
        "worker-input", columns(ROWS).value, headers=internal_headers(TUPLES, {}, [2])
    ),
    "an unknown origin": OutputRecord("worker-input", columns(ROWS).value, headers=internal_headers(TUPLES, {2: 5})),
    "one tuple of an unknown origin": OutputRecord(
        "worker-input", b'{"value":1,"time":10}', b"a", headers=internal_headers(TUPLE, {2: 5})
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_worker_invalid_records_become_dead_letters_and_are_not_counted(name: str) -> None:
    step = worker()
    outputs = work(step, columns(ROWS[:2]), INVALID[name], plain(*ROWS[2]), columns(ROWS[3:]))
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [1]
    assert by_pane(list(step.flush(0))) == SUMS


def aggregated(*given: tuple[int, str, int, int], pane_ms: int = 10, watermark: int | None = None) -> OutputRecord:
    row_format = RowFormat(columns_of((AGGREGATES["count"], AGGREGATES["sum"])), pane_ms=pane_ms, grid_ms=60)
    states = {0: WatermarkState(watermark)}
    (record,) = row_format.records("worker-input", 6, rows_of(*given, row_format=row_format), report_of(states))
    assert schema_of(record.headers) == ROWS_SCHEMA
    return record


def test_worker_rows_and_tuples_in_any_order_are_merged_and_rows_are_counted() -> None:
    merged = [
        {"pane": 10, "key": "a", "count": 9, "sum": 24, "rows": 4, "worker": 6},
        {"pane": 10, "key": "b", "count": 1, "sum": 2, "rows": 1, "worker": 6},
        {"pane": 20, "key": "a", "count": 1, "sum": 4, "rows": 1, "worker": 6},
        {"pane": 20, "key": "c", "count": 6, "sum": 0, "rows": 1, "worker": 6},
    ]
    records = [columns(ROWS[:3]), aggregated((10, "a", 5, 15), (20, "c", 6, 0)), columns(ROWS[3:])]
    records.append(aggregated((10, "a", 2, 5)))
    for order in (records, records[::-1]):
        step = worker()
        for record in order:
            work(step, record)
        assert by_pane(list(step.flush(0))) == merged
        assert step.tuples == 4 + 13
        assert worker_totals(step) == {"tuples": 17, "rows": 7}


def worker_totals(step: WorkerStep) -> dict[str, float]:
    samples = {sample.name: sample.value for sample in step.collect_metrics()}
    return {name: samples[f"skewless_worker_{name}_total"] for name in ("tuples", "rows")}


def test_worker_only_partitions_with_rows_differ_and_their_partials_are_in_one_record() -> None:
    step = worker()
    step.assign(7, None, ())
    work(step, columns(ROWS))
    work(step, aggregated((10, "z", 3, 1)), partition=7)
    (output,) = step.flush(0)
    found = {(row["key"], row["pane"], row["worker"]): (row["count"], row["rows"]) for row in rows_in([output])}
    assert found == {("a", 10, 6): (2, 2), ("b", 10, 6): (1, 1), ("a", 20, 6): (1, 1), ("z", 10, 7): (3, 1)}


def test_worker_without_rows_writes_no_number_of_rows() -> None:
    step = worker()
    work(step, columns(ROWS))
    assert all("rows" not in row for row in rows_in(step.flush(0)))


def test_worker_rows_of_shorter_panes_are_merged_into_its_pane() -> None:
    step = worker()
    work(step, aggregated((5, "a", 1, 1), (10, "a", 1, 1), (15, "a", 2, 2), pane_ms=5))
    assert [(row["pane"], row["count"], row["rows"]) for row in by_pane(list(step.flush(0)))] == [(0, 1, 1), (10, 3, 2)]


def test_worker_many_rows_between_two_flushes_are_merged_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_ROWS", 3)
    step = worker()
    for _ in range(20):
        work(step, aggregated((10, "a", 1, 1), (10, "b", 2, 2)))
        assert step._buffered_rows <= 3
    assert [(row["key"], row["count"], row["rows"]) for row in by_pane(list(step.flush(0)))] == [
        ("a", 20, 20),
        ("b", 40, 20),
    ]


def test_worker_rows_update_the_watermark() -> None:
    step = worker()
    work(step, progress(origin_1=7), aggregated((10, "a", 1, 1), watermark=9))
    assert step.watermark(6) == 7


def test_worker_invalid_rows_become_dead_letters_and_nothing_of_them_counts() -> None:
    step = worker()
    mixed = aggregated((10, "a", 3, 1), (10, "b", -1, 1), watermark=50)
    no_multiple = aggregated((12, "a", 3, 1))
    outputs = work(step, mixed, aggregated((10, "c", 1, 1)), no_multiple, progress(origin_1=40))
    assert reasons_in(written(outputs, "dead-letters")) == [
        (0, "a row has no tuples"),
        (2, "a pane does not begin at a multiple of 10 ms"),
    ]
    assert [row["key"] for row in rows_in(step.flush(0))] == ["c"]
    assert step.watermark(6) is None
