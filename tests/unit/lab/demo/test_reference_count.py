"""The demo's reference count: counted tuples, and the report of differences."""

from __future__ import annotations

from collections import Counter

import numpy as np

from skewless.algorithms.windowing.assigner import tumbling
from skewless.kafka.producer.bulk import RUN, partitions_of
from skewless.lab.datasets import DATASETS, RecordBatch
from skewless.lab.demo.reference_count import ReferenceCounter, ReferenceResult
from skewless.parsing.validation import EventTimeRules
from skewless.wire.window_counts import differences


def count(name: str, partitions: int, *batches: list[tuple[int, str]]) -> ReferenceResult:
    rules = EventTimeRules(lateness_ms=0, max_ahead_ms=0, windows=tumbling(1000))
    counter = ReferenceCounter(DATASETS[name].splitter(), rules, 1000, partitions)
    for batch in batches:
        counter.add(RecordBatch([value.encode() for _, value in batch], np.array([time for time, _ in batch])))
    return counter.result


def test_reference_count_tuples_are_counted_by_window_and_key() -> None:
    result = count("lines", 1, [(0, "a b a"), (999, "a")], [(1000, "a")])
    assert result.counts == {(0, "a"): 3, (0, "b"): 1, (1000, "a"): 1}
    assert (result.tuples, result.windows) == (5, [0, 1000])


def test_reference_count_record_whose_window_has_ended_before_in_its_partition_is_late() -> None:
    result = count("lines", 1, [(500, "a"), (400, "b"), (1099, "a"), (400, "c d")], [(1098, "e")])
    assert set(result.counts) == {(0, "a"), (0, "b"), (1000, "a"), (1000, "e")}
    assert (result.late, result.classified.max_lateness_ms) == (2, 100)


def test_reference_count_records_of_other_partitions_make_no_record_late() -> None:
    ahead = [(5000, "a")] * RUN
    result = count("lines", 2, ahead, [(1000, "b")])
    assert (result.counts[1000, "b"], result.late) == (1, 0)
    assert count("lines", 1, ahead, [(1000, "b")]).late == 1


def test_reference_count_unreadable_records_are_counted_separately_and_ignored_in_time() -> None:
    result = count("pages", 1, [(9000, "no time"), (1000, "1000\ta")])
    assert (result.counts, result.classified.unreadable.total(), result.late) == ({(1000, "a"): 1}, 1, 0)


def test_reference_count_records_with_keys_are_late_in_the_partition_of_their_key() -> None:
    rules = EventTimeRules(lateness_ms=0, max_ahead_ms=0, windows=tumbling(1000))
    counter = ReferenceCounter(DATASETS["lines"].splitter(), rules, 1000, 2)
    keys = [b"0", b"4"]
    assert partitions_of(0, 2, 2, keys).tolist() == [1, 0]
    counter.add(RecordBatch([b"a", b"b"], np.array([5000, 1000]), keys))
    assert (counter.result.counts, counter.result.late) == ({(5000, "a"): 1, (1000, "b"): 1}, 0)


def test_count_differences_of_equal_counts_are_empty() -> None:
    assert differences(Counter({(0, "a"): 1}), Counter({(0, "a"): 1})) == []


def test_count_differences_name_missing_excess_and_unexpected_keys() -> None:
    found = differences(Counter({(0, "a"): 2, (0, "b"): 1}), Counter({(0, "a"): 3, (0, "c"): 1}))
    assert found == [
        "window 0, key 'a': 3 instead of 2",
        "window 0, key 'b': 0 instead of 1",
        "window 0, key 'c': 1 instead of 0",
    ]


def test_count_differences_beyond_the_limit_are_summarised() -> None:
    assert differences(Counter({(0, str(key)): 1 for key in range(9)}), Counter())[-1] == "and 4 more"
