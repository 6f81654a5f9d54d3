"""Settings of a join that contradict each other are refused, with the setting and both values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from skewless.algorithms.join.window_join import JoinRules
from skewless.stages.join.settings import JoinSettings

SIDES: dict[str, Any] = {side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")}


def join(**changes: Any) -> JoinSettings:
    return JoinSettings.model_validate({**SIDES, "apart_s": 5, **changes})


def test_join_settings_spans_default_to_no_disorder() -> None:
    assert join().rules() == JoinRules(apart_ms=5_000, left_disorder_ms=0, right_disorder_ms=0)
    assert join(sync_delay_s=8, window_s=6).rules() == JoinRules(5_000, left_disorder_ms=1_000, right_disorder_ms=3_000)


@pytest.mark.parametrize("setting", ["sync_delay_s", "window_s"])
def test_join_settings_span_below_apart_is_refused_with_both_numbers(setting: str) -> None:
    with pytest.raises(ValidationError, match=rf"(?s){setting}.*is 4\.9, less than apart_s \(5\): allowed pairs would"):
        join(**{setting: 4.9})


def test_join_settings_one_topic_on_both_sides_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"right\.topic: is left, like left\.topic; a join needs two topics"):
        join(right=SIDES["left"])


@pytest.mark.parametrize(
    ("side", "problem"),
    [
        ({"id": {"field": "ids[]"}}, "must not contain a list: a record has one id"),
        ({"id": {"field": "id", "header": "id"}}, "header: set only one of field and header, because an id has one"),
        ({"id": {"field": "id", "pattern": "x"}}, "pattern"),
        ({"time": {"header": "time"}}, "time.header: not for a join, set time.field"),
        ({"time": {"unit": "s"}}, "time.unit: set time.field too"),
        ({"time": {"earliest": 2, "latest": 1}}, "time.earliest: is after time.latest"),
        ({"id": {}}, "id"),
    ],
)
def test_join_settings_of_a_side_that_do_not_fit_together_are_refused(side: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        join(left=SIDES["left"] | side)
    assert problem in str(refused.value)
