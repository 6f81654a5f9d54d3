"""Laws of every envelope, for any data in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.envelopes import RECORDS
from skewless.parsing.envelopes import ENVELOPES
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.wire.record import Headers

SETTINGS: dict[str, dict[str, Any]] = {
    "fields": {"key": {"field": "k"}, "value": {"field": "v", "decimals": 2}, "time": {"field": "t", "unit": "s"}},
    "lists": {"key": {"field": "l[].k"}, "value": {"field": "l[].v", "decimals": 1, "missing": "skip"}},
    "conditions": {"key": {"field": "k"}, "where": [{"field": "v", "above": 1}], "time": {"field": "t"}},
    "parts": {"key": {"fields": [{"field": "k"}, {"field": "t", "name": "day", "truncate": "day", "unit": "s"}]}},
}
SCALARS = ['"a"', '"é b"', '"1.5"', "5", "-0.125", "1e99", "9" * 20, "true", "null", "{}", "[]", '["x"]']
FIELDS = st.lists(st.tuples(st.sampled_from(["k", "v", "t", "x"]), st.sampled_from(SCALARS)), max_size=4).map(
    lambda fields: "{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}"
)
DATA = st.lists(FIELDS | st.lists(FIELDS, max_size=3).map(lambda each: f'{{"l":[{",".join(each)}]}}'), max_size=8)
FORMS = st.lists(st.integers(0, 9), min_size=8, max_size=8)


def parse(settings: dict[str, Any], values: Sequence[bytes | None], headers: Sequence[Headers]) -> dict[str, Any]:
    records = RecordColumns(values, np.arange(len(values), dtype=np.int64), [None] * len(values), headers)
    parsed = RecordParser(ParsingSettings.model_validate(settings)).parse(records)
    valid = np.setdiff1d(np.arange(len(values)), [row for row, _ in parsed.invalid])
    return {
        "keys": parsed.keys,
        "values": parsed.values["value"].to_pylist(),
        "records": parsed.records.tolist(),
        "times": parsed.times[valid].tolist(),
        "invalid": parsed.invalid,
        "filtered": parsed.filtered.tolist(),
    }


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("envelope", ENVELOPES)
@given(data=DATA, forms=FORMS)
def test_envelope_topic_with_it_gives_the_tuples_of_the_plain_topic(
    envelope: str, settings: str, data: list[str], forms: list[int]
) -> None:
    plain = parse(SETTINGS[settings], [each.encode() for each in data], [()] * len(data))
    written = [write for (name, _), write in RECORDS.items() if name == envelope]
    records = [written[form % len(written)](each) for form, each in zip(forms, data, strict=False)]
    values, headers = [value for value, _ in records], [own for _, own in records]
    found = parse({**SETTINGS[settings], "envelope": envelope}, values, headers)
    # Reasons name the path in the record, and a change event has the row in its field `after`.
    found["invalid"] = [(row, reason.replace(" field after.", " field ")) for row, reason in found["invalid"]]
    assert found == plain


HEADERS: list[Headers] = [(), [("ce_specversion", b"1.0")], [("ce_specversion", None)], [("content-type", b"a/b")]]
NOISE = st.none() | st.binary(max_size=20) | st.text('[]{}",:\\\0 0kpayloschem', max_size=30).map(str.encode)
ANY = st.tuples(NOISE, st.sampled_from(HEADERS)) | st.sampled_from([write('{"k":"a"}') for write in RECORDS.values()])


@pytest.mark.parametrize("envelope", ENVELOPES)
@given(records=st.lists(ANY, max_size=6))
def test_envelope_each_record_alone_gives_the_result_of_its_batch(
    envelope: str, records: list[tuple[bytes | None, Headers]]
) -> None:
    settings = {"envelope": envelope, "key": {"field": "k"}}
    whole = parse(settings, [value for value, _ in records], [own for _, own in records])
    alone = [parse(settings, [value], [own]) for value, own in records]
    assert whole["keys"] == [key for each in alone for key in each["keys"]]
    assert whole["invalid"] == [(row, reason) for row, each in enumerate(alone) for _, reason in each["invalid"]]
    assert whole["filtered"] == [row for row, each in enumerate(alone) if each["filtered"]]
    outcomes = [*whole["records"], *(row for row, _ in whole["invalid"]), *whole["filtered"]]
    assert sorted(outcomes) == list(range(len(records))), "each record has exactly one outcome"


@pytest.mark.parametrize("envelope", [None, *ENVELOPES])
@given(records=st.lists(ANY, max_size=6))
def test_tombstones_that_are_skipped_leave_the_tuples_of_the_other_records(
    envelope: str | None, records: list[tuple[bytes | None, Headers]]
) -> None:
    settings = {"envelope": envelope, "key": {"field": "k"}}
    values, headers = [value for value, _ in records], [own for _, own in records]
    kept = [row for row, value in enumerate(values) if value is not None]
    found = parse({**settings, "tombstones": "skip"}, values, headers)
    others = parse(settings, [values[row] for row in kept], [headers[row] for row in kept])
    assert (found["keys"], found["values"]) == (others["keys"], others["values"])
    assert found["records"] == [kept[row] for row in others["records"]]
    assert found["invalid"] == [(kept[row], reason) for row, reason in others["invalid"]]
    tombstones = set(range(len(values))) - set(kept)
    assert found["filtered"] == sorted({kept[row] for row in others["filtered"]} | tombstones)
