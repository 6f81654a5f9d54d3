from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.aggregates import columns_of, create
from skewless.algorithms.hashing import partition_of_keys
from skewless.algorithms.sized import RECORD_BYTES
from skewless.algorithms.watermark import END_OF_TIME
from skewless.asyncapi.written import WrittenBatch
from skewless.public_records import PlainTuple
from skewless.records import (
    PARTIALS,
    PROGRESS,
    TUPLE,
    TUPLES,
    TUPLES_SCHEMA,
    Output,
    headers_of,
    schema_of,
    write_table,
)
from skewless.worker import step as worker_step
from skewless.worker.step import WorkerStep
from support import encode_tuples, idle_in, marks_in, reasons_in, rows_in, written

Tuple = tuple[str, int, int]
ROWS = [("a", 1, 10), ("b", 2, 19), ("a", 3, 12), ("a", 4, 20)]
SUMS = [
    {"pane": 10, "key": "a", "count": 2, "sum": 4, "worker": 6},
    {"pane": 10, "key": "b", "count": 1, "sum": 2, "worker": 6},
    {"pane": 20, "key": "a", "count": 1, "sum": 4, "worker": 6},
]


def columns(rows: Sequence[Tuple], marks: dict[int, int] | None = None) -> Output:
    keys, values, times = zip(*rows, strict=True)
    encoded = encode_tuples(
        pa.array(keys, pa.string()).dictionary_encode(), np.array(values, np.int64), np.array(times, np.int64)
    )
    return Output("worker-input", encoded, headers=headers_of(TUPLES, marks or {}))


def plain(key: str, value: int, time: int) -> Output:
    encoded = msgspec.json.encode(PlainTuple(value, time))
    return Output("worker-input", encoded, key.encode(), headers=headers_of(TUPLE, {}))


def progress(idle: Sequence[int] = (), **marks: int) -> Output:
    told = {int(name.removeprefix("origin_")): mark for name, mark in marks.items()}
    return Output("worker-input", None, headers=headers_of(PROGRESS, told, idle))


def worker(position: str | None = None, partitions: int = 1) -> WorkerStep:
    names = ("count", "sum")
    step = WorkerStep(
        columns_of([create(name) for name in names]), pane_ms=10, origins=2, partitions=partitions, topic="p.input"
    )
    step.assign(6, position, ())
    return step


def work(step: WorkerStep, *records: Output, partition: int = 6) -> list[Output]:
    return list(step.process(WrittenBatch(partition, records), 0))


def by_pane(outputs: Sequence[Output]) -> list[dict[str, Any]]:
    return sorted(rows_in(outputs), key=lambda row: (row["pane"], row["key"], row["worker"]))


def test_a_flush_emits_one_row_per_pane_and_key() -> None:
    step = worker()
    assert work(step, columns(ROWS[:2]), columns(ROWS[2:])) == []
    outputs = list(step.flush(0))
    assert by_pane(outputs) == SUMS
    assert {(output.topic, schema_of(output.headers)) for output in outputs} == {("partials", PARTIALS)}


def test_records_and_columns_of_the_same_tuples_give_the_same_deltas() -> None:
    step = worker()
    work(step, *(plain(*row) for row in ROWS))
    assert by_pane(list(step.flush(0))) == SUMS


def test_nothing_is_kept_after_a_flush() -> None:
    step = worker()
    work(step, columns(ROWS))
    list(step.flush(0))
    assert list(step.flush(0)) == []
    work(step, columns([("a", 5, 11)]))
    assert by_pane(list(step.flush(0))) == [{"pane": 10, "key": "a", "count": 1, "sum": 5, "worker": 6}]


def test_a_key_goes_to_its_partition_whatever_the_worker() -> None:
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


def test_many_tuples_between_two_flushes_are_reduced_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_TUPLES", 2)
    step = worker()
    for _ in range(20):
        work(step, columns(ROWS))
        assert step._inputs[6].buffered <= 2
    assert [(row["pane"], row["key"], row["count"], row["sum"]) for row in by_pane(list(step.flush(0)))] == [
        (10, "a", 40, 80),
        (10, "b", 20, 40),
        (20, "a", 20, 80),
    ]


def test_tuples_of_many_partitions_are_reduced_by_their_number_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_TUPLES", 4 * len(ROWS))
    step = worker()
    for partition in range(10, 20):
        step.assign(partition, None, ())
        work(step, columns(ROWS), partition=partition)
        assert sum(each.buffered for each in step._inputs.values()) <= 4 * len(ROWS)
    assert len(rows_in(step.flush(0))) == 10 * len(SUMS)


def test_tuples_are_reduced_by_the_bytes_of_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    record = columns(ROWS)
    monkeypatch.setattr(worker_step, "BUFFER_BYTES", 3 * len(record.value or b""))
    step = worker()
    work(step, *[record] * 3)
    assert step._inputs[6].buffered == 3 * len(ROWS)
    work(step, record)
    assert step._inputs[6].buffered == 0


@pytest.mark.parametrize(("name", "bound"), [("HELD_ROWS", 3 * len(SUMS)), ("HELD_BYTES", 300)])
def test_wants_commit_more_is_held_than_the_bound_until_it_is_written(
    name: str, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_TUPLES", 0)
    monkeypatch.setattr(worker_step, name, bound)
    step = worker()
    step.assign(7, None, ())
    work(step, columns(ROWS))
    work(step, columns(ROWS), partition=7)
    work(step, columns(ROWS))
    wanted = [step.wants_commit]
    work(step, columns(ROWS), partition=7)
    wanted.append(step.wants_commit)
    list(step.flush(0))
    wanted.append(step.wants_commit)
    assert wanted == [False, True, False]


def test_wants_commit_partition_is_revoked_counts_its_rows_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_step, "BUFFER_TUPLES", 0)
    monkeypatch.setattr(worker_step, "HELD_ROWS", 2)
    step = worker()
    work(step, columns(ROWS))
    wanted = [step.wants_commit]
    step.revoke(6)
    wanted.append(step.wants_commit)
    assert wanted == [True, False]


def test_what_is_told_of_the_load_is_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hot partition reduces several times between two commits; a key is written once."""
    monkeypatch.setattr(worker_step, "BUFFER_TUPLES", 2)
    step = worker()
    step.assign(7, None, ())
    step.assign(8, None, ())
    for _ in range(20):
        work(step, columns(ROWS))
    rows = by_pane(list(step.flush(0)))
    assert [(row["pane"], row["key"], row["count"]) for row in rows] == [(10, "a", 40), (10, "b", 20), (20, "a", 20)]
    values = {(sample.name, sample.labels): sample.value for sample in step.samples()}
    assert values["skewless_worker_keys", ("6",)] == values["skewless_worker_partials_total", ("6",)] == len(SUMS)
    assert step.event_time(6) == 20


def test_many_long_keys_are_cut_into_records_that_the_topic_takes() -> None:
    step = worker()
    rows = [(f"{number:0350d}", 1, 10) for number in range(60_000)]
    work(step, columns(rows))
    outputs = list(step.flush(0))
    assert max(len(output.value or b"") for output in outputs) < 2 * RECORD_BYTES
    assert sorted(row["key"] for row in rows_in(outputs)) == [key for key, _, _ in rows]


def test_watermark_is_told_behind_the_deltas_to_every_partition_once_all_origins_spoke() -> None:
    step = worker(partitions=3)
    work(step, columns(ROWS, {0: 30}))
    assert marks_in(step.flush(0)) == [{}] * len(Counter(partition_of_keys(pa.array(["a", "b"]), 3).tolist()))
    work(step, columns([("a", 1, 30)], {1: 25}))
    outputs = list(step.flush(0))
    assert [schema_of(output.headers) for output in outputs] == [PARTIALS, PROGRESS, PROGRESS, PROGRESS]
    assert marks_in(outputs[1:]) == [{6: 25}] * 3
    assert [output.partition for output in outputs[1:]] == [0, 1, 2]


def test_watermark_is_told_only_when_it_changed_also_to_an_earlier_time() -> None:
    step = worker()
    work(step, progress(origin_0=30, idle=[1]))
    assert marks_in(step.flush(0)) == [{6: 30}]
    work(step, progress(origin_0=30))
    assert list(step.flush(0)) == []
    work(step, progress(origin_1=10))
    assert marks_in(step.flush(0)) == [{6: 10}]


def test_the_end_of_time_is_passed_on_when_all_origins_have_ended() -> None:
    step = worker()
    work(step, progress(origin_0=END_OF_TIME))
    assert list(step.flush(0)) == []
    work(step, progress(origin_1=END_OF_TIME))
    assert marks_in(step.flush(0)) == [{6: END_OF_TIME}]
    assert step.finished(6)


def test_idle_is_passed_on_with_the_highest_watermark_when_all_origins_are_idle() -> None:
    step = worker()
    work(step, progress(origin_0=30), progress(idle=[0], origin_1=20))
    outputs = list(step.flush(0))
    assert (marks_in(outputs), idle_in(outputs)) == ([{6: 20}], [set()])
    work(step, progress(idle=[1]))
    outputs = list(step.flush(0))
    assert (marks_in(outputs), idle_in(outputs)) == ([{6: 30}], [{6}])
    assert (step.watermark(6), step.idle(6)) == (30, True)
    restarted = worker(step.position(6))
    outputs = list(restarted.flush(0))
    assert (marks_in(outputs), idle_in(outputs)) == ([{6: 30}], [{6}])


def test_an_origin_that_was_idle_and_ends_ends_the_partition() -> None:
    step = worker()
    work(step, progress(idle=[0, 1], origin_0=30), progress(origin_1=END_OF_TIME))
    assert marks_in(step.flush(0)) == [{6: 30}]
    assert not step.finished(6)
    work(step, progress(origin_0=END_OF_TIME))
    assert marks_in(step.flush(0)) == [{6: END_OF_TIME}]
    assert step.finished(6)


def test_several_worker_partitions_are_told_of_in_one_record() -> None:
    step = worker()
    step.assign(7, None, ())
    work(step, progress(origin_0=1, origin_1=2))
    work(step, progress(origin_0=3, origin_1=4), partition=7)
    assert marks_in(step.flush(0)) == [{6: 1, 7: 3}]


def test_after_a_restart_marks_go_on_and_are_told_again() -> None:
    before = worker()
    work(before, progress(origin_0=30))
    list(before.flush(0))
    restarted = worker(before.position(6))
    work(restarted, progress(origin_1=40))
    assert marks_in(restarted.flush(0)) == [{6: 30}]


def test_deltas_of_a_revoked_partition_are_forgotten() -> None:
    step = worker()
    work(step, columns(ROWS))
    step.revoke(6)
    assert list(step.flush(0)) == []


UNKNOWN = pa.DictionaryArray.from_arrays(pa.array([1], pa.int32()), pa.array(["a"]), safe=False)
BEYOND = write_table(pa.record_batch([UNKNOWN, [1], [1]], schema=TUPLES_SCHEMA))
BAD = {
    "no Arrow IPC stream": Output("worker-input", b"junk", headers=headers_of(TUPLES, {})),
    "no schema": Output("worker-input", b"junk"),
    "unknown schema": Output("worker-input", b"junk", headers=headers_of("other", {})),
    "a schema without a name": Output("worker-input", columns(ROWS).value, headers=[("schema", None)]),  # type: ignore[list-item]  # anybody's producer may
    "a dictionary without that key": Output("worker-input", BEYOND, headers=headers_of(TUPLES, {})),
    "no JSON": Output("worker-input", b"{", b"a", headers=headers_of(TUPLE, {})),
    "a value beyond 64 bits": Output("worker-input", b'{"value":9223372036854775808,"time":1}', b"a",
                                     headers=headers_of(TUPLE, {})),
    "a key that is no text": Output("worker-input", b'{"value":1,"time":1}', b"\xff", headers=headers_of(TUPLE, {})),
    "an unknown idle origin": Output("worker-input", columns(ROWS).value, headers=headers_of(TUPLES, {}, [2])),
    "an unknown origin": Output("worker-input", columns(ROWS).value, headers=headers_of(TUPLES, {2: 5})),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_dead_letters_and_count_for_nothing(name: str) -> None:
    step = worker()
    outputs = work(step, columns(ROWS[:2]), BAD[name], plain(*ROWS[2]), columns(ROWS[3:]))
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [1]
    assert by_pane(list(step.flush(0))) == SUMS
