"""Shares of late tuples and invalid records, what would change them, and the warnings."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skewless.algorithms.aggregates import LOAD_COLUMN
from skewless.algorithms.watermark import WatermarkGenerator
from skewless.algorithms.windowing.assigner import WindowAssigner, tumbling
from skewless.config.pipeline_settings import PipelineSettings
from skewless.operations.data_quality import (
    DataQuality,
    Invalid,
    LateSide,
    LateTuple,
    Reasons,
    increase_ms,
    invalid_record,
    late_tuple,
    readable_s,
    remedy,
    tuples_in,
    warnings,
)
from skewless.operations.dead_letters import Position
from skewless.parsing.validation import EventTimeRules
from skewless.wire.columns import write_table
from skewless.wire.dead_letters import WINDOW_EXPIRED, DeadLetterHeaders
from skewless.wire.rows import KEY_AND_PANE

SIDES = {side: {"topic": side, "id": {"field": "id"}, "time": {"field": "time"}} for side in ("left", "right")}
TABLE = {"topic": "users", "key": {"field": "user"}, "fields": {"country": "country"}}
WITHOUT_SHARE = {
    "join": PipelineSettings.model_validate({"name": "p", "join": {**SIDES, "apart_s": 5, "window_s": 6}}),
    "enrich": PipelineSettings.model_validate(
        {"name": "p", "source": {"topic": "p.enriched"}, "enrich": {"topic": "views", "tables": [TABLE]}}
    ),
}
"""Pipelines in which the number of all records is unknown."""
KEYS = pa.array(["a", "b"]).dictionary_encode()


def settings(**sections: Any) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "clicks"}, **sections})


def late(*tuples: tuple[int, int], accepted: int = 0) -> DataQuality:
    return DataQuality(late=len(tuples), accepted=accepted, late_tuples=[LateTuple(*found) for found in tuples])


def invalid(reason: str, offset: int) -> Invalid:
    return Invalid(reason, Position("clicks", 0, offset), '{"usr": 1}')


@pytest.mark.parametrize(
    ("quality", "share"),
    [
        (DataQuality(invalid=10, accepted=990), None),
        (DataQuality(invalid=11, accepted=989), "1.1 %"),
        (DataQuality(invalid=9, accepted=0), None),  # too few for a share
        (DataQuality(invalid=10, late=10), "50 %"),
    ],
)
def test_warnings_invalid_records_above_one_percent_are_one(quality: DataQuality, share: str | None) -> None:
    found = warnings(quality, settings(), 1.0).get("invalid")
    assert (found is None) == (share is None)
    assert found is None or found.startswith(f"{share} of the recent records are invalid")


@pytest.mark.parametrize("section", ["join", "enrich"])
def test_warnings_invalid_records_without_a_known_share_have_their_number(section: str) -> None:
    quality = DataQuality(invalid=1089, accepted=0)
    assert warnings(quality, WITHOUT_SHARE[section], 1.0)["invalid"].startswith(
        "1,089 of the recent records are invalid: "
    )


@pytest.mark.parametrize(
    ("side", "max_share", "expected"),
    [
        (LateSide(10, 9_000, 1_200), 0.001, "late, and take no part in the join; with join.window_s: 7.2 instead of 6"),
        (LateSide(10, 0, 1_200), 0.001, "10 recent records of join.left are late"),  # the topic has event times
        (LateSide(9, 0, 1_200), 0.001, None),
        (LateSide(10, 10_000, 1_200), 0.001, None),
        (LateSide(10, 0, 1_200), 1.0, None),
    ],
)
def test_warnings_late_records_of_a_join_name_the_setting_of_their_side(
    side: LateSide, max_share: float, expected: str | None
) -> None:
    quality = DataQuality(late_of_join=side.records, late_sides={"left": side})
    found = warnings(quality, WITHOUT_SHARE["join"], max_share)
    assert list(found) == ([] if expected is None else ["late left"])
    assert expected is None or expected in found["late left"]


def test_warnings_late_right_records_name_the_delay_which_is_apart_by_default() -> None:
    quality = DataQuality(late_sides={"right": LateSide(100, 0, 250)})
    (line,) = warnings(quality, WITHOUT_SHARE["join"], 0.001).values()
    assert line.endswith("with join.sync_delay_s: 5.3 instead of 5, none of them would be late")


def test_warnings_late_records_of_a_join_name_the_idle_timeout_if_they_may_be_late_because_of_it() -> None:
    with_timeout = settings(join={**SIDES, "apart_s": 5, "idle_timeout_s": 30})
    (line,) = warnings(DataQuality(late_sides={"left": LateSide(100, 0, 250)}), with_timeout, 0.001).values()
    assert line.endswith(", unless their partition was silent for join.idle_timeout_s: then only a longer one helps")


def test_warnings_name_the_commonest_reason_with_its_newest_record() -> None:
    reasons = Reasons([invalid("no key", 1), invalid("no time", 2), None, invalid("no key", 3), invalid("no time", 4)])
    reasons.add(invalid("no key", 5))
    quality = DataQuality(invalid=100, reasons=reasons)
    shown = '"no key" (3), "no time" (2), such as clicks/0/5: {"usr": 1}'
    assert warnings(quality, settings(), 1.0) == {"invalid": f"100 % of the recent records are invalid: {shown}"}
    assert Reasons().commonest() is None


def test_warnings_name_the_remedies_of_the_commonest_reasons() -> None:
    empty = Invalid("empty record", Position("clicks", 0, 7), "")
    quality = DataQuality(invalid=100, reasons=Reasons([empty, empty, invalid("longer than 9 bytes", 1)]))
    assert warnings(quality, settings(), 1.0)["invalid"] == (
        '100 % of the recent records are invalid: "empty record" (2), "longer than 9 bytes" (1), such as clicks/0/7: '
        "(empty); to leave out records without a value, set splitter.tombstones: skip; "
        "to read longer records, raise splitter.limits.record_bytes"
    )
    left = WITHOUT_SHARE["join"].sides["left"].topic
    expected = "to read longer records, raise join.left.limits.record_bytes"
    assert remedy("longer than 9 bytes", left, WITHOUT_SHARE["join"]) == expected
    enriched = WITHOUT_SHARE["enrich"]
    assert enriched.enrich is not None
    assert "raise enrich.limits" in str(remedy("longer than 9 bytes", enriched.enrich.topic, enriched))


def test_reasons_beyond_the_third_are_counted_together() -> None:
    reasons = Reasons(invalid(reason, offset) for offset, reason in enumerate("aaabbcde"))
    assert str(reasons) == '"a" (3), "b" (2), "c" (1) and others (2), such as clicks/0/2: {"usr": 1}'


def test_warnings_tuples_of_expired_windows_are_counted_and_are_no_invalid_records() -> None:
    partials = pa.table({"pane": [0, 0], "key": ["a", "b"], LOAD_COLUMN.name: pa.array([3, 4], LOAD_COLUMN.type)})
    headers = msgspec.to_builtins(DeadLetterHeaders("p.partials", "1", "7", WINDOW_EXPIRED))
    encoded = [(name, text.encode()) for name, text in headers.items()]
    found = [invalid_record(encoded, value) for value in (write_table(partials), b"?")]
    reasons = Reasons([*found, invalid("malformed JSON", 1)])
    assert (reasons.expired, reasons.expired_records, reasons.counts) == (8, 2, {"malformed JSON": 1})
    (line,) = warnings(DataQuality(reasons=reasons), settings(), 0.001).values()
    assert line.startswith("8 tuples came after their windows had expired, and are in no result")
    assert "aggregator.closed_window_retention_s, which is 3600" in line


def test_reasons_shown_in_python_have_the_counts() -> None:
    assert repr(Reasons([invalid("no key", 1), invalid("no key", 2)])) == "Reasons({'no key': 2})"


def test_tuples_in_a_record_are_its_tuples_or_those_of_its_rows() -> None:
    tuples = pa.table([KEYS, pa.array([1, 2]), pa.array([3, 4])], names=["key", "value", "time"])
    counts = pa.array(np.array([5, 7]), LOAD_COLUMN.type)
    rows = pa.table(
        [KEYS, pa.array([0, 0]), counts], schema=pa.schema([*KEY_AND_PANE, (LOAD_COLUMN.name, counts.type)])
    )
    assert [tuples_in(write_table(tuples)), tuples_in(write_table(rows)), tuples_in(None)] == [2, 12, 0]


def test_warnings_late_tuples_above_the_share_name_the_lateness_that_is_enough() -> None:
    quality = late(*[(59_000, 61_500)] * 11, accepted=10_989)
    own = settings(event_time={"allowed_lateness_s": 2}, aggregator={"window_s": 60})
    assert warnings(quality, own, 0.001) == {}
    assert warnings(quality, own, 0.0009) == {
        "late": "0.1 % of the recent tuples are late and in no result; with event_time.allowed_lateness_s: 3.6 instead "
        "of 2, at most 0.09 % would be late"
    }
    assert warnings(late(*[(0, 10**6)] * 9), own, 0.001) == {}  # too few for a share


@pytest.mark.parametrize(
    ("max_late_share", "expected"),
    [(0.0, 100_001), (0.01, 90_001), (0.05, 50_001), (0.099, 10_001)],
)
def test_increase_leaves_the_share_of_the_tuples_that_are_latest(max_late_share: float, expected: int) -> None:
    quality = late(*[(30_000, 60_000 + late_ms) for late_ms in range(10_000, 100_001, 10_000)], accepted=90)
    assert increase_ms(quality, settings().event_time_rules(), max_late_share) == expected


@given(st.integers(0, 200_000), st.integers(0, 400_000), st.sampled_from([None, tumbling(60_000)]))
def test_increase_is_the_smallest_lateness_with_which_a_tuple_is_not_late(
    time: int, newest: int, windows: WindowAssigner | None
) -> None:
    def is_late(lateness_ms: int) -> bool:
        generator = WatermarkGenerator(lateness_ms, newest)
        return bool(generator.observe(np.array([time], dtype=np.int64), rules.deadlines)[0])

    rules = EventTimeRules(lateness_ms=2_000, max_ahead_ms=0, windows=windows)
    assume(is_late(rules.lateness_ms))
    increase = increase_ms(late((time, newest - rules.lateness_ms)), rules, 0)
    assert not is_late(rules.lateness_ms + increase)
    assert is_late(rules.lateness_ms + increase - 1)


@pytest.mark.parametrize(("ms", "seconds"), [(1, 0.001), (51, 0.051), (123, 0.13), (2_000, 2), (540_001, 550)])
def test_readable_time_has_two_digits_and_is_not_less(ms: int, seconds: float) -> None:
    assert readable_s(ms) == seconds


def test_late_tuple_is_read_from_a_record_with_any_values_and_another_record_is_left_out() -> None:
    assert late_tuple((), b'{"key": "k", "clicks": 1, "time": 5, "watermark": 9, "partition": 0}') == LateTuple(5, 9)
    assert late_tuple((), b"{") is None
    assert late_tuple((), None) is None
