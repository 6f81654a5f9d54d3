"""Records that are made up for a check give the splitter exactly the keys that were wanted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from skewless.errors import ConfigurationError
from skewless.flow_check import check, records
from skewless.splitter.formats import create_format
from skewless.splitter.settings import SplitterSettings

AT = 1_700_000_000_123
SPLITTERS: list[dict[str, Any]] = [
    {"format": "text"},
    {"format": "text", "key": {"pattern": r"[\pL\pN_]+", "lower": True}},
    {"format": "json", "key": {"field": "key"}},
    {"format": "json", "key": {"field": "user.id"}, "value": {"field": "n", "decimals": 2}, "time": {"field": "at"}},
    {"format": "json", "key": {"field": "entities.hashtags[].text"}, "value": {"field": "entities.hashtags[].n"}},
    {"format": "json", "key": {"field": "tags[]"}, "time": {"field": "created", "unit": "s"}},
    {"format": "csv", "key": {"field": 2}},
    {"format": "csv", "separator": ";", "columns": ["at", "page", "views"], "key": {"field": "page"}},
    {"format": "tsv", "key": {"field": 1}, "value": {"field": 2}, "time": {"field": 0, "unit": "iso8601"}},
    {"format": "tsv", "key": {"field": 1}, "time": {"field": 0, "unit": "us"}},
]


@pytest.mark.parametrize("document", SPLITTERS, ids=str)
def test_records_give_the_keys_and_the_time_that_were_wanted(document: dict[str, Any]) -> None:
    settings = SplitterSettings.model_validate(document)
    wanted = records.keys(100, "check")
    values, time_ms = records.make(settings, wanted, AT)
    parsed = create_format(settings).parse(values, np.full(100, time_ms, dtype=np.int64))
    assert parsed.bad == []
    assert parsed.keys == wanted
    assert set(parsed.times.tolist()) == {time_ms}
    assert 0 <= time_ms - AT < 1000, "never late, and hardly ahead"


def test_half_of_the_records_have_one_key() -> None:
    counts = Counter(records.keys(1_000, "check"))
    assert len(counts) == records.KEYS
    assert counts["check0"] == 500


def test_a_format_of_a_package_is_refused() -> None:
    settings = SplitterSettings.model_construct(**{**dict(SplitterSettings(format="text")), "format": "avro"})
    with pytest.raises(ConfigurationError, match="the format avro"):
        records.make(settings, ["a"], AT)


def test_settings_that_make_other_keys_of_the_records_are_refused() -> None:
    settings = SplitterSettings.model_validate({"format": "text", "key": {"merge": {"all": ["check"]}}})
    values, time_ms = records.make(settings, ["check0"], AT)
    expected = check._expected(create_format(settings), values, time_ms, 60_000)
    with pytest.raises(ConfigurationError, match="makes something else than the key"):
        check._refuse(expected, values, "check")
