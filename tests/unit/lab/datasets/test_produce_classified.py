"""Reports of `produce` and the demo about records that a pipeline would reject."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.algorithms.windowing.assigner import tumbling
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.kafka.producer.bulk import RUN
from skewless.lab.datasets import DATASETS
from skewless.lab.datasets.lateness import LatenessTracker
from skewless.lab.datasets.produce_classified import (
    ClassificationCounts,
    InputClassifier,
    InputRules,
    input_rules,
    input_warnings,
)
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules

TIMES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**15)), max_size=40)


def judged(splitter: ParsingSettings, *values: bytes, lateness_ms: int = 0, **options: Any) -> ClassificationCounts:
    rules = EventTimeRules(lateness_ms=lateness_ms, max_ahead_ms=0, windows=options.get("windows"))
    classifier = InputClassifier(splitter, rules, options.get("partitions", 1))
    classifier.add(0, values, np.array(options.get("times", range(len(values))), dtype=np.int64))
    return classifier.result


@given(TIMES, st.integers(0, 40))
def test_lateness_tracker_batches_split_anywhere_give_equal_lateness(records: list[tuple[int, int]], cut: int) -> None:
    def behind(*parts: list[tuple[int, int]]) -> list[int]:
        lateness = LatenessTracker()
        columns = [np.array(part, dtype=np.int64).reshape(-1, 2).T for part in parts]
        found = [lateness.add(partitions, times, lambda deadlines: deadlines) for partitions, times in columns]
        return [ms for batch in found for ms in batch.tolist()]

    newest: dict[int, int] = {}
    expected = []
    for partition, time in records:
        newest[partition] = max(newest.get(partition, time), time)
        expected.append(newest[partition] - time)
    assert behind(records) == behind(records[:cut], records[cut:]) == expected


def test_input_classifier_unreadable_records_are_counted_by_reason_and_ignored_in_time() -> None:
    found = judged(DATASETS["pages"].splitter(), b"9000\ta", b"no time", b"8999\tb", b"x\ty")
    assert (found.unreadable.total(), found.late, found.max_lateness_ms) == (2, 1, 1)


def test_input_classifier_without_records_needs_no_function_of_the_user() -> None:
    splitter = ParsingSettings.model_validate({"format": "json", "python": "not_here:lines", "key": {"field": "k"}})
    assert InputClassifier(splitter, EventTimeRules(lateness_ms=0, max_ahead_ms=0), 1).result == ClassificationCounts()
    with pytest.raises(ConfigurationError, match="there is no module not_here"):
        judged(splitter, b"{}")


def test_input_classifier_text_that_is_not_utf8_is_unreadable() -> None:
    assert judged(DATASETS["lines"].splitter(), b"a", b"\xff").unreadable == {"not UTF-8": 1}


@pytest.mark.parametrize(("lateness_ms", "late"), [(0, 2), (99, 1), (100, 0)])
def test_input_classifier_records_within_the_allowed_lateness_are_not_late(lateness_ms: int, late: int) -> None:
    times = [500, 400, 500, 450]
    found = judged(DATASETS["lines"].splitter(), *[b"a"] * 4, times=times, lateness_ms=lateness_ms)
    assert (found.late, found.max_lateness_ms) == (late, 100)


@pytest.mark.parametrize(("lateness_ms", "late"), [(0, 1), (100, 1), (101, 0)])
def test_input_classifier_records_of_an_open_window_are_not_late(lateness_ms: int, late: int) -> None:
    times, windows = [999, 0, 1100, 10, 1000], tumbling(1000)
    found = judged(DATASETS["lines"].splitter(), *[b"a"] * 5, times=times, lateness_ms=lateness_ms, windows=windows)
    assert (found.late, found.max_lateness_ms) == (late, 101)


def test_input_classifier_records_of_other_partitions_make_no_record_late() -> None:
    times = [5000] * RUN + [1000]
    assert judged(DATASETS["lines"].splitter(), *[b"a"] * (RUN + 1), times=times, partitions=2).late == 0
    assert judged(DATASETS["lines"].splitter(), *[b"a"] * (RUN + 1), times=times, partitions=1).late == 1


SIDE = {"format": {"name": "csv", "delimiter": ";", "columns": ["id", "time"]}, "time": {"field": "time"}}
JOIN = {
    "name": "ads",
    "join": {
        "left": {"topic": "impressions", "id": {"field": "id"}, **SIDE},
        "right": {"topic": "clicks", "id": {"from": "record_key"}, **SIDE},
        "apart_s": 5,
        "sync_delay_s": 6,
    },
}
ENRICHED = {
    "name": "views",
    "source": {"topic": "views.enriched"},
    "enrich": {"topic": "views", "tables": [{"topic": "users", "key": {"field": "id"}, "fields": {"city": "city"}}]},
}


@pytest.mark.parametrize(
    ("name", "late", "remedy"),
    [
        ("left", 2, "they go to join-late: to accept them, set join.window_s to 6.5 or more"),
        ("right", 1, "they go to join-late: to accept them, set join.sync_delay_s to 6.5 or more"),
    ],
)
def test_input_rules_side_of_a_join_has_its_lateness_and_remedy(name: str, late: int, remedy: str) -> None:
    rules = input_rules(PipelineSettings.model_validate(JOIN), name)
    classifier = InputClassifier(rules.parsing, rules.event_times, 1)
    values = [b"a;2000", b"b;1500", b"c;500", b"d"]
    classifier.add(0, values, np.zeros(4, dtype=np.int64), [value[:1] for value in values])
    found = classifier.result
    assert (found.late, rules.late_remedy(found.max_lateness_ms)) == (late, remedy)
    assert (found.unreadable.total(), rules.section) == (1, f"join.{name}")


def test_input_rules_enriched_records_are_never_late() -> None:
    rules = input_rules(PipelineSettings.model_validate(ENRICHED), "events")
    classifier = InputClassifier(rules.parsing, rules.event_times, 1)
    classifier.add(0, [b'{"id": 1}', b"{}", b"no"], np.array([10**9, 0, 0]))
    assert (classifier.result.late, classifier.result.unreadable) == (0, {"malformed JSON": 1})


def test_input_warnings_without_late_or_unreadable_records_are_empty() -> None:
    assert list(input_warnings(Counter(), "", 0, "records", "")) == []


def late_remedy(lateness_ms: int) -> str:
    rules = InputRules(DATASETS["lines"].splitter(), EventTimeRules(lateness_ms=0, max_ahead_ms=0))
    return rules.late_remedy(lateness_ms)


def test_late_remedy_allowed_lateness_has_all_its_digits() -> None:
    assert late_remedy(1_598_071_040_001).endswith("set event_time.allowed_lateness_s to 1598071040.001 or more")


def test_input_warnings_name_numbers_reasons_and_remedies() -> None:
    found = input_warnings(Counter({"no time": 3, "not JSON": 1}), "correct them", 7, "records", late_remedy(12_345))
    assert list(found) == [
        "unreadable records: 4 (3 of them: no time), they go to dead-letters: correct them",
        "late records: 7, they go to late: to accept them, set event_time.allowed_lateness_s to 12.345 or more",
    ]
