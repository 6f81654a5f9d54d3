"""What a pipeline's positions say of the settings that they were committed with."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition

from skewless.errors import ConfigurationError
from skewless.settings import PipelineSettings
from skewless.shape import Saved, Shape, read_saved, shape_of, write_saved
from skewless.transport.resumption import check_shape, has_begun

BASE: dict[str, Any] = {"name": "p", "source": {"topic": "t"}}
LARGEST = Shape(window_ms=31_536_000_000, tick_ms=86_400_000, columns="count,max,min,sum", decimals=9)


def shape(**parts: Any) -> Shape:
    return shape_of(PipelineSettings.model_validate(BASE | parts))


def refused(before: Shape, now: Shape) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        check_shape({0: Saved(None, None), 3: Saved("1", before)}, now, "p-worker")
    return caught.value.problems


def test_a_position_comes_back_with_its_shape() -> None:
    assert read_saved(write_saved('{"marks":"!#$"}', LARGEST)) == ('{"marks":"!#$"}', LARGEST)


def test_positions_of_versions_without_a_shape_come_back_as_they_are() -> None:
    assert read_saved("1700000000000") == ("1700000000000", None)
    assert read_saved("") == read_saved(None) == (None, None)
    check_shape({0: read_saved("1700000000000")}, LARGEST, "p-splitter")


def test_a_shape_fits_behind_the_largest_position() -> None:
    assert len(write_saved("x" * 3_920, LARGEST)) < 4_000


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"aggregator": {"window_s": 120}}, "aggregator.window_s: is 120.0, was 60.0 when group p-worker last"),
        ({"observer": {"tick_s": 30}}, "observer.tick_s: is 30.0, was 60.0 when"),
        (
            {"splitter": {"format": "text", "value": {"decimals": 2}}},
            "splitter.value.decimals: is 2, was 0 when",
        ),
        (
            {"aggregator": {"aggregates": ["count", "sum", "max"]}},
            "aggregator.aggregates: needs the columns count,max,sum, needed count,sum when",
        ),
    ],
    ids=["window", "tick", "decimals", "aggregates"],
)
def test_settings_that_state_was_made_by_cannot_change_over_it(changed: dict[str, Any], told: str) -> None:
    (problem,) = refused(shape(), shape(**changed))
    assert problem.startswith(told)
    assert problem.endswith("set it back, or give the pipeline another name")


def test_all_that_has_changed_is_named_at_once() -> None:
    assert len(refused(shape(), shape(aggregator={"window_s": 120}, observer={"tick_s": 30}))) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"worker": {"pane_s": 5}},
        {"aggregator": {"aggregates": ["sum", "count", "mean"]}},
        {"aggregator": {"emit": "final", "keep_closed_s": 5}},
        {"router": {"workers": 3, "grouping": "key"}},
    ],
    ids=["pane", "same columns", "emission", "routing"],
)
def test_settings_that_state_does_not_depend_on_may_change(changed: dict[str, Any]) -> None:
    check_shape({0: Saved("1", shape())}, shape(**changed), "p-worker")


def test_a_group_has_begun_when_one_partition_has_an_offset() -> None:
    assert not has_begun({})
    assert not has_begun({0: TopicPartition("t", 0, -1001)})
    assert has_begun({0: TopicPartition("t", 0, -1001), 1: TopicPartition("t", 1, 0)})
