"""Warnings of `skewless up` about the records that it has processed."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

from skewless.cli import up_counts
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import UnreachableError
from skewless.kafka.broker_watch import BrokerWatch
from skewless.operations.data_quality import cause_without_tuples


class Brokers(BrokerWatch):
    """Brokers that do not answer the first few times."""

    def __init__(self, looks_away: int = 0) -> None:
        self.looks_away = looks_away

    @property
    def is_away(self) -> bool:
        self.looks_away -= 1
        return self.looks_away >= 0


def settings() -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}})


def test_warnings_while_no_broker_answers_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, ended, looks = Brokers(looks_away=3), threading.Event(), list[int]()

    def data_quality(*_: object) -> None:
        looks.append(brokers.looks_away)
        ended.set()
        raise UnreachableError("no answer")

    monkeypatch.setattr(up_counts, "INTERVAL_S", 0.001)
    monkeypatch.setattr(up_counts, "OffsetReader", lambda _kafka, **_options: None)
    monkeypatch.setattr(up_counts, "data_quality", data_quality)
    up_counts._watch(settings(), brokers, ended)
    assert looks == [-1]


def test_warnings_after_the_clock_went_back_are_those_of_the_time_since_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hour_ns, times, periods = 3_600_000_000_000, list[int](), list[int]()
    clock = itertools.count(1_000_000 * hour_ns, -hour_ns)
    ended = threading.Event()

    def time_ns() -> int:
        times.append(next(clock))
        return times[-1]

    def data_quality(_offsets: object, _topics: object, _sides: object, since_ms: int) -> None:
        periods.append(times[-1] // 1_000_000 - since_ms)
        if len(periods) == 2:
            ended.set()
        raise UnreachableError("no answer")

    monkeypatch.setattr(time, "time_ns", time_ns)
    monkeypatch.setattr(up_counts, "INTERVAL_S", 0.001)
    monkeypatch.setattr(up_counts, "OffsetReader", lambda _kafka, **_options: None)
    monkeypatch.setattr(up_counts, "data_quality", data_quality)
    up_counts._watch(settings(), Brokers(), ended)
    assert len(periods) == 2
    assert all(0 <= period <= up_counts.PERIOD_MS for period in periods)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "an empty list in each of them"),
        ({"key": {"field": "k", "pattern": "[0-9]+"}}, "splitter.key.pattern"),
        (
            {"key": {"field": "k", "pattern": "[0-9]+", "drop_if_contains": ["0"]}, "tombstones": "skip"},
            "splitter.key.pattern or splitter.key.drop_if_contains or splitter.tombstones",
        ),
        (
            {"where": [{"field": "a", "is": 1}], "envelope": "debezium"},
            "splitter.where or splitter.envelope",
        ),
    ],
)
def test_cause_without_tuples_names_the_settings_with_which_a_valid_record_may_have_no_tuple(
    changes: dict[str, Any], expected: str
) -> None:
    splitter = {"format": "json", "key": {"field": "k"}, **changes}
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}, "splitter": splitter})
    assert cause_without_tuples(settings) == expected
