"""Measures of the records of a topic."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from helpers.avro import encoded, record_of
from helpers.envelopes import RECORDS as ENVELOPE_RECORDS
from helpers.envelopes import TIME_MS
from skewless.cli.inspect_view import show
from skewless.errors import ConfigurationError
from skewless.lab.inspection.conditions import MEASURES, condition, measures_of
from skewless.lab.inspection.inspector import Inspector
from skewless.lab.inspection.pipeline_file import unread_time_warning
from skewless.lab.inspection.time_profile import TimeProfile
from skewless.parsing.envelopes import ENVELOPES
from skewless.parsing.source_records import RecordColumns
from skewless.schema_registry.client import RegistryClient
from skewless.schema_registry.schema import KEY_HEADER, VALUE_HEADER, Schema, prefix
from skewless.schema_registry.settings import RegistrySettings
from skewless.spark.report.inspection_report import report as page
from skewless.wire.record import Headers

START = 1_700_000_000_000


def batch(values: Iterable[bytes | None], key: bytes | None = None, partition: int = 0) -> RecordColumns:
    listed = list(values)
    size = len(listed)
    return RecordColumns(listed, START + 1000 * np.arange(size), [key] * size, [()] * size, partition)


def keyed(keys: list[bytes | None]) -> RecordColumns:
    """Return clicks with these record keys."""
    return RecordColumns(clicks(len(keys)), START + 1000 * np.arange(len(keys)), keys, [()] * len(keys))


def clicks(count: int = 1000) -> list[bytes | None]:
    """Make every second record of the user `hot`; every tenth is an hour late."""
    return [
        json.dumps(
            {"user": "hot" if i % 2 else f"u{i % 50}", "at": START + 1000 * i - (3_600_000 if i % 10 == 9 else 0)}
        ).encode()
        for i in range(count)
    ]


def inspected(batches: list[RecordColumns], key: str | None = None) -> dict[str, Any]:
    inspector = Inspector(batches, key)
    for records in batches:
        inspector.add(records)
    return inspector.report() | {
        "topic": "clicks",
        "retained_offsets": 1,
        "uncommitted_offsets": 0,
        "offsets": {"0": [0, 1]},
    }


@pytest.mark.parametrize("name", ['say "hi"', "a\\b", "two\nlines"])
def test_inspector_field_that_no_setting_can_name_is_left_out(name: str) -> None:
    values = [json.dumps({name: f"n{i % 5}", "user": f"u{i % 7}", "tags": {name: i % 3}}).encode() for i in range(100)]
    found = inspected([batch(values)])
    assert [key["name"] for key in found["keys"]] == ["user"]


@pytest.mark.parametrize("key", ["0", "1"])
def test_inspector_key_that_is_a_field_named_by_a_number_is_found(key: str) -> None:
    values = [json.dumps({"0": f"u{i % 7}", "1": START + 1000 * i}).encode() for i in range(100)]
    assert inspected([batch(values)], key)["keys"][0]["name"] == key


def test_inspector_json_records_are_measured() -> None:
    found = inspected([batch(clicks()), batch(clicks(500), partition=1)])
    key = found["keys"][0]
    assert (found["records"], key["name"], key["cardinality"], key["max_share"]) == (1500, "user", 26, 0.5)
    assert key["top"][0] == {"key": "hot", "count": 750, "share": 0.5}
    assert found["partitions"] == {"max_over_avg": pytest.approx(1000 / 750), "records": {"0": 1000, "1": 500}}
    assert found["records_per_s"] == pytest.approx(2, rel=0.01)
    at = found["times"][1]
    assert (at["field"], at["unit"], at["max_disorder_ms"]) == ("at", "ms", 3_599_000)


@pytest.mark.parametrize(
    "keys",
    [
        [b"id-%d" % i for i in range(1000)],
        [b"constant"] * 1000,
        [b"k%d" % (i % 9) if i % 5 else None for i in range(1000)],
        [b'{"schema": {"type": "struct"}, "payload": {"id": %d}}' % (i % 9) for i in range(1000)],
    ],
    ids=["unique", "constant", "missing", "JSON objects"],
)
def test_inspector_record_key_that_groups_nothing_comes_after_the_fields(keys: list[bytes | None]) -> None:
    found = inspected([keyed(keys)])
    assert [key["name"] for key in found["keys"]] == ["user", "record key"]
    assert found["loads"]


@pytest.mark.parametrize("with_header", [1, 3])
def test_inspector_record_key_with_a_schema_in_a_header_is_no_candidate(with_header: int) -> None:
    keys = [b"\nalice" if number % 4 else b"\x06bob" for number in range(1000)]
    headers = [() if number % with_header else ((KEY_HEADER, b"\x01id"),) for number in range(1000)]
    found = inspected([RecordColumns(clicks(), START + 1000 * np.arange(1000), keys, headers)])
    assert [key["name"] for key in found["keys"]] == ["user"]
    assert found["has_registered_keys"]


@pytest.mark.parametrize(("envelope", "form"), ENVELOPE_RECORDS)
def test_inspector_records_in_an_envelope_are_measured_by_their_data(envelope: str, form: str) -> None:
    values: list[bytes | None] = []
    headers: list[Headers] = []
    for number, click in enumerate(clicks()):
        value, own = ENVELOPE_RECORDS[envelope, form]((click or b"").decode())
        values += [value, None] if number % 10 == 0 and envelope == "debezium" else [value]
        headers += [own] * (len(values) - len(headers))
    times = START + 1000 * np.arange(len(values))
    found = inspected([RecordColumns(values, times, [None] * len(values), headers)])
    key = found["keys"][0]
    assert (key["name"], key["cardinality"], key["max_share"], key["invalid"]) == ("user", 26, 0.5, [])
    assert key["splitter"]["envelope"] == envelope
    assert found["format"]["description"] == f"{ENVELOPES[envelope].title}, JSON"
    time = found["times"][-1]
    assert (time["name"], time["first_ms"], time["last_ms"]) == (ENVELOPES[envelope].event_time, TIME_MS, TIME_MS)


def test_inspector_record_key_that_only_tombstones_repeat_comes_after_the_fields() -> None:
    keys: list[bytes | None] = [b"order%d" % (number % 90) for number in range(100)]
    records = keyed(keys)
    deleted = RecordColumns([*list(records.values)[:90], *[None] * 10], records.timestamps, keys, [()] * 100)
    assert [key["name"] for key in inspected([deleted])["keys"]] == ["user", "record key"]


def test_inspector_record_key_of_many_values_that_repeat_comes_first() -> None:
    found = inspected([keyed([b"k%d" % (i % 990) for i in range(1000)])])
    assert [key["name"] for key in found["keys"]] == ["record key", "user"]


@pytest.mark.parametrize("in_header", [False, True])
def test_inspector_schema_ids_without_a_registry_are_reported_with_advice(
    *, in_header: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    # The payload is also a text.
    ids = [prefix(number) for number in [42, *[7] * 9] * 9]
    values = [b"payload" if in_header else start + b"payload" for start in ids]
    headers: list[Headers] = [[(VALUE_HEADER, start)] if in_header else () for start in ids]
    show(inspected([RecordColumns(values, START + np.arange(90), [None] * 90, headers)]))
    output = capsys.readouterr().out
    assert "format      binary with schema ids 7, 42 of a registry; " in output
    assert "advice      add --registry URL" in output


def test_inspector_with_a_registry_does_not_warn_of_the_fields_that_it_tries_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The candidates for the key are no settings of the user. The report has the share of invalid records."""
    schemas = {7: record_of("Click", user="string", country="string"), 9: record_of("View", page="string")}
    monkeypatch.setattr(
        RegistryClient, "schema", lambda _client, schema_id: Schema("AVRO", json.dumps(schemas[schema_id]))
    )
    values: list[bytes | None] = [
        encoded(schemas[7], {"user": f"u{i % 7}", "country": f"c{i % 3}"}, 7)
        if i % 10
        else encoded(schemas[9], {"page": "/"}, 9)
        for i in range(100)
    ]
    records = batch(values)
    inspector = Inspector([records], None, RegistrySettings.model_validate({"url": "http://localhost:1"}))
    inspector.add(records)
    keys = inspector.report()["keys"]
    assert {"user", "country"} <= {key["name"] for key in keys}
    assert [key["invalid_share"] for key in keys if key["name"] == "user"] == [0.1]
    assert caplog.messages == []


def test_inspector_json_with_schema_ids_in_headers_is_json() -> None:
    headers: list[Headers] = [[(VALUE_HEADER, prefix(7))]] * 1000
    found = inspected([RecordColumns(clicks(), START + np.arange(1000), [None] * 1000, headers)])
    assert found["format"]["splitter_format"] == {"name": "json"}


def test_inspector_grouping_key_overloads_the_worker_of_the_hot_key() -> None:
    loads = {(load["grouping"], load["workers"]): load for load in inspected([batch(clicks())])["loads"]}
    assert set(loads) == {(g, w) for g in ("key", "partial_key", "dynamic_key", "even") for w in (8, 16, 32)}
    assert loads["key", 8]["max_over_avg"] >= 4
    assert loads["key", 8]["workers_per_key"] == 1
    assert loads["even", 8]["max_over_avg"] < 1.2
    assert loads["even", 8]["relative_rate"] == pytest.approx(1 / loads["even", 8]["max_over_avg"])


def test_inspector_record_key_comes_first_and_time_of_the_value_is_measured() -> None:
    found = inspected([keyed([b"k%d" % (i % 9) for i in range(1000)])])
    assert [key["name"] for key in found["keys"]] == ["record key", "user"]
    assert found["keys"][0]["cardinality"] == 9
    assert [time["name"] for time in found["times"]] == ["Kafka timestamp", "at"]


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


@pytest.mark.parametrize("other", ["born", "expires", "late"])
def test_inspector_event_time_is_the_one_in_whose_order_the_records_are(other: str) -> None:
    """Other times are listed. The first one in a record may be a date of birth, or the end of a subscription."""
    drawn = np.random.default_rng(1).integers(600_000_000_000, START, 1000).tolist()
    now = time.time_ns() // 1_000_000
    others = {"born": drawn, "expires": [now + 10**9 + i for i in range(1000)], "late": drawn[:]}
    values = [
        json.dumps({other: iso(others[other][i]), "u": f"u{i % 9}", "at": START + i}).encode() for i in range(1000)
    ]
    found = inspected([batch(values)])
    assert (found["times"][-1]["name"], found["other_times"]) == ("at", [other])
    assert [key["name"] for key in found["keys"]] == ["u"]


@pytest.mark.parametrize("is_read", [False, True])
def test_inspector_time_in_an_unknown_form_is_named_unless_another_field_is_the_event_time(*, is_read: bool) -> None:
    other = {"at": iso(START)} if is_read else {}
    values = [json.dumps({"user": f"u{i % 9}", "when": f"28/Nov/2026:10:30:{i % 60:02d}"} | other) for i in range(100)]
    found = inspected([batch([value.encode() for value in values])])
    assert [key["name"] for key in found["keys"]] == ["user"]
    warning = unread_time_warning(found)
    assert bool(warning) != is_read
    if not is_read:
        assert 'not when ("28/Nov/2026:10:30:39"): a time is ISO 8601' in warning[0]


def test_inspector_time_that_some_records_lack_is_named_with_the_shares() -> None:
    values = [
        json.dumps({"user": f"u{i % 9}", "at": "" if i % 5 == 0 else iso(START + 1000 * i)}).encode()
        for i in range(1000)
    ]
    found = inspected([batch(values)])
    assert [key["name"] for key in found["keys"]] == ["user"]
    first, *_, last = unread_time_warning(found)
    assert f'not at ("{iso(START + 999_000)}", 80.0% ISO 8601, 20.0% ""): a time is' in first
    assert last == "  With splitter.time, the records without a time in its unit are invalid."


def test_inspector_of_two_plausible_times_the_first_one_counts() -> None:
    values = [
        json.dumps({"made": START + i - 60_000 * (i % 3), "sent": START + i, "u": i % 9}).encode() for i in range(999)
    ]
    assert inspected([batch(values)])["times"][-1]["name"] == "made"


X_EPOCH, DISCORD_EPOCH = 1_288_834_974_657, 1_420_070_400_000


def made_id(made_ms: int, epoch_ms: int) -> int:
    """Return a snowflake id: the ms since an epoch, and 22 other bits."""
    return (made_ms - epoch_ms << 22) + made_ms % 4096


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("epoch", [X_EPOCH, DISCORD_EPOCH])
@pytest.mark.parametrize("has_time", [False, True])
def test_inspector_ids_that_begin_with_a_time_are_keys_and_no_times(
    *, as_text: bool, epoch: int, has_time: bool
) -> None:
    """Such ids have the size of times in ns, and the records are in their order."""
    ids = [made_id(1_650_000_000_000 + 1000 * (i // 4), epoch) for i in range(1000)]
    values = [
        json.dumps({"id": str(ids[i]) if as_text else ids[i], "n": 0.5} | ({"at": START + i} if has_time else {}))
        for i in range(1000)
    ]
    found = inspected([batch([value.encode() for value in values])])
    expected = "at" if has_time else "Kafka timestamp"
    assert (found["times"][-1]["name"], found["other_times"]) == (expected, [])
    assert [key["name"] for key in found["keys"]] == ["id"]


@pytest.mark.parametrize("near", ["Kafka timestamp", "clock", "field"])
def test_inspector_times_in_ns_that_are_near_another_time_are_times(near: str) -> None:
    """OpenTelemetry writes such numbers. A replay has old ones, and a recorder may write no Kafka timestamps."""
    first_ms = {"Kafka timestamp": START, "clock": time.time_ns() // 1_000_000 - 86_400_000, "field": 10**12}[near]
    values: list[bytes | None] = [
        json.dumps(
            {"time_unix_nano": str((first_ms + i) * 1_000_000 + 999_999), "u": f"u{i % 9}"}
            | ({"observed": iso(first_ms + i)} if near == "field" else {})
        ).encode()
        for i in range(400)
    ]
    found = inspected([batch([*values, *[None] * 600])])
    assert [key["name"] for key in found["keys"]] == ["u"]
    names = [found["times"][-1]["name"], *found["other_times"]]
    assert names == (["observed", "time_unix_nano"] if near == "field" else ["time_unix_nano"])


def test_inspector_times_in_ns_come_before_a_time_ahead_of_the_clock_and_before_dates() -> None:
    ahead = time.time_ns() // 1_000_000 + 10**9
    values = [
        json.dumps({"day": iso(START)[:10], "expires": ahead + i, "at": (START + i) * 10**6, "u": i % 9}).encode()
        for i in range(1000)
    ]
    found = inspected([batch(values)])
    assert (found["times"][-1]["name"], found["other_times"]) == ("at", ["day", "expires"])


def test_inspector_times_in_ns_that_are_far_from_all_other_times_are_no_times() -> None:
    values = [json.dumps({"at": (10**12 + i) * 1_000_000, "u": f"u{i % 9}"}).encode() for i in range(1000)]
    found = inspected([batch(values)])
    assert (found["times"][-1]["name"], found["keys"][0]["name"]) == ("Kafka timestamp", "u")


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [("n/a", "is not ISO 8601"), ("", "is not ISO 8601"), ("0", "is a number, but its unit is iso8601")],
)
def test_inspector_time_with_few_mistakes_is_the_time_and_they_are_reported(mistake: str, reason: str) -> None:
    values = [json.dumps({"u": f"u{i % 9}", "at": mistake if i == 3 else iso(START + i)}).encode() for i in range(1000)]
    found = inspected([batch(values)])
    assert (found["times"][-1]["name"], found["keys"][0]["name"]) == ("at", "u")
    assert found["keys"][0]["invalid"] == [{"reason": f"time field at {reason}", "records": 1}]


def test_inspector_lines_with_names_of_columns_do_not_make_a_measure_the_key() -> None:
    lines = ["user,duration,at" if i in (0, 500) else f"u{i % 9},{i}.5,{iso(START + i)}" for i in range(1000)]
    found = inspected([batch([line.encode() for line in lines])])
    assert ([key["name"] for key in found["keys"]], found["times"][-1]["name"]) == (["0"], "2")


def test_inspector_records_all_ahead_of_the_clock_are_invalid() -> None:
    ahead = time.time_ns() // 1_000_000 + 10**8
    found = inspected([batch([json.dumps({"u": f"u{i % 9}", "at": ahead + i}).encode() for i in range(500)])])
    assert found["keys"][0]["invalid"] == [{"reason": "time too far ahead of the clock", "records": 500}]


def test_inspector_chosen_key_comes_first() -> None:
    assert inspected([batch(clicks(), key=b"a")], key="user")["keys"][0]["name"] == "user"


def test_inspector_tombstones_and_invalid_records_are_counted() -> None:
    found = inspected([batch([*clicks(98), None, b"{}"], key=b"a")], key="user")
    assert found["null_value_share"] == 0.01
    assert found["keys"][0]["invalid_share"] == 0.02
    assert {entry["reason"] for entry in found["keys"][0]["invalid"]} == {"empty record", "key field user is missing"}


def test_inspector_json_of_which_a_third_is_broken_shows_the_share_and_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = [value for pair in zip(clicks(), [b'{"user": "u'] * 500, strict=False) for value in pair]
    found = inspected([batch([*broken, *clicks(500)])])
    assert found["format"]["other_share"] == pytest.approx(1 / 3, abs=0.001)
    assert found["keys"][0]["invalid_share"] == 1 / 3
    show(found)
    output = capsys.readouterr().out
    assert "format      JSON (of a sample 66.67% JSON, 33.33% text); 0.00% without a value" in output
    assert "invalid records of user: 500 " in output


@pytest.mark.parametrize("other", [{}, {"when": "28/Nov/2026:10:30:00"}])
def test_show_records_without_any_usable_time_says_so(
    other: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    values: list[bytes | None] = [json.dumps({"user": f"u{i % 9}"} | other).encode() for i in range(100)]
    in_us = START * 1000 + np.arange(100)
    found = inspected([RecordColumns.of_values(values, in_us)])
    assert (found["times"], unread_time_warning(found)) == ([], [])
    show(found)
    assert "\nNo time: no field has one, and the Kafka timestamps are after the year 9999" in capsys.readouterr().out


def test_inspector_binary_records_without_keys_have_no_candidate() -> None:
    found = inspected([batch([b"\xff\xfe"] * 10)])
    assert (found["keys"], found["loads"], found["format"]["splitter_format"]) == ([], [], None)
    assert measures_of(found)["max_share"] is None
    assert "clicks" in page(found)


@pytest.mark.parametrize("key", ["nothing", "user.name", "a b[", "3"])
def test_inspector_key_that_no_record_has_is_an_error_with_the_fields(key: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--key: no .*user"):
        inspected([batch(clicks())], key=key)


def test_time_profile_late_shares_are_those_of_the_splitter() -> None:
    profile = TimeProfile()
    profile.add(0, np.array([0, 10_000, 9_000, 5_000]))
    profile.add(0, np.array([10_000, 0]))
    profile.add(1, np.array([0]))
    found = profile.to_json()
    late = {entry["allowed_lateness_s"]: entry["records"] for entry in found["late"]}
    # Disorder: 1 s, 5 s and 10 s. A record that is exactly as old as the allowed lateness is not late.
    assert (late[0], late[1], late[5], late[10]) == (3, 2, 1, 0)
    assert found["recommended_lateness_s"] == 10
    assert found["max_disorder_ms_by_partition"] == {"0": 10_000, "1": 0}


@pytest.mark.parametrize("text", ["max_share", "max_share > ", "max_share > x", "max_share >> 1", "1 < max_share", ""])
def test_condition_wrong_expression_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--fail-if: .* must be a measure"):
        condition(text)


def test_condition_unknown_measure_names_the_closest() -> None:
    with pytest.raises(ConfigurationError, match="did you mean max_share"):
        condition("maxshare > 0.1")


def test_condition_failure_is_the_text_with_the_value() -> None:
    measures = measures_of(inspected([batch(clicks())]))
    assert set(measures) == set(MEASURES)
    assert condition("max_share > 0.05")(measures) == "max_share > 0.05: it is 0.5"
    assert condition("max_share>0.5")(measures) is None
    assert condition("max_disorder_s >= 3599")(measures) == "max_disorder_s >= 3599: it is 3599"


def test_report_page_key_names_are_escaped() -> None:
    hostile: list[bytes | None] = [
        json.dumps({"k": "<script>alert(1)</script>", "n": i % 3}).encode() for i in range(20)
    ]
    assert "<script>alert(1)" not in page(inspected([batch(hostile)], key="k"))


def test_inspection_page_has_a_bar_for_each_hottest_key_also_of_numbers_and_with_a_common_beginning() -> None:
    keys = ["17", "984423", *(f"https://shop.example/products/category/{name}" for name in "ab")]
    records = [json.dumps({"k": keys[number % 4], "n": number}).encode() for number in range(40)]
    figures = json.loads(page(inspected([batch(records)], key="k")).split('id="figures">')[1].split("</script>")[0])
    (chart,) = (figure for figure in figures if figure["data"][0]["name"] == "share")
    assert chart["layout"]["xaxis"] == {"type": "category"}
    assert len({*chart["data"][0]["x"]}) == len(keys)


def test_inspector_record_key_counts_records_without_a_time_as_invalid() -> None:
    keys: list[bytes | None] = [b"k%d" % (i % 9) for i in range(1_000)]
    first = keyed(keys)
    inspector = Inspector([first], None)
    inspector.add(first)
    inspector.add(RecordColumns([b"{}"] * 9_000, START + np.arange(9_000), keys * 9, [()] * 9_000, 1))
    (measures,) = [key for key in inspector.report()["keys"] if key["name"] == "record key"]
    assert measures["invalid"] == [{"reason": "time field at is missing", "records": 9_000}]
    assert (measures["tuples"], measures["invalid_share"]) == (10_000, 0.9)


@pytest.mark.parametrize("odd", ['"--5"', "1" + "0" * 309], ids=["two signs", "no double"])
def test_inspector_of_one_odd_number_measures_the_others(odd: str) -> None:
    values = [b'{"user": "u%d", "n": "%d"}' % (i % 9, i) for i in range(1_000)]
    found = inspected([batch([*values[:500], f'{{"user": "u1", "n": {odd}}}'.encode(), *values[500:]])])
    assert found["keys"][0]["name"] == "user"
    numbers = [b'{"user": "u%d", "n": %d}' % (i % 9, i) for i in range(1_000)]
    found = inspected([batch([*numbers[:500], f'{{"user": "u1", "n": {odd}}}'.encode(), *numbers[500:]])])
    assert found["keys"][0]["name"] == "user"


@pytest.mark.parametrize("share", [2, 5, 20], ids=["half", "a fifth", "a twentieth"])
def test_inspector_csv_with_quotes_where_needed_reads_them(share: int) -> None:
    lines = [f'o{i},"Washington, DC",EU{i % 4}' if i % share == 0 else f"o{i},Paris,EU{i % 4}" for i in range(2_000)]
    found = inspected([batch(line.encode() for line in lines)], key="1")
    assert found["format"]["splitter_format"] == {"name": "csv", "delimiter": ",", "quoting": True}
    assert (found["format"]["other_share"], found["keys"][0]["invalid_share"]) == (0.0, 0.0)
    assert {entry["key"]: entry["count"] for entry in found["keys"][0]["top"]}["Washington, DC"] == 2_000 // share


def test_inspector_csv_with_quotes_and_a_malformed_line_reads_the_quotes() -> None:
    lines = [f'"u{i % 9}","2026-01-01T00:00:{i % 60:02}Z","{i} pipe"' for i in range(1_000)]
    lines[100] = '"u1","2026-01-01T00:00:00Z","5" pipe"'
    found = inspected([batch(line.encode() for line in lines)], key="0")
    assert found["format"]["splitter_format"] == {"name": "csv", "delimiter": ",", "quoting": True}
    assert (found["keys"][0]["top"][0]["key"], [time["name"] for time in found["times"]]) == (
        "u0",
        ["Kafka timestamp", "1"],
    )


def test_inspector_csv_with_single_quotes_that_are_content_reads_no_quotes() -> None:
    lines = [f'p{i},"{i % 9} pipe,{i}' for i in range(1_000)]
    found = inspected([batch(line.encode() for line in lines)])
    assert found["format"]["splitter_format"] == {"name": "csv", "delimiter": ","}


def test_inspector_oldest_time_is_unknown_if_the_first_records_of_a_partition_have_none() -> None:
    first = batch(clicks(100))
    inspector = Inspector([first], None)
    inspector.add(first)
    sampled_ms = START - 3_591_000
    assert inspector.oldest_ms([]) == sampled_ms
    without = batch([b'{"at": null}', b"the names of columns"])
    old = batch([b'{"user": "a", "at": %d}' % (START - 60), b'{"other": "a", "at": %d}' % (START - 86_400_000)])
    newer = batch([b'{"user": "a", "at": %d}' % (START + 1)], partition=1)
    assert inspector.oldest_ms([without, old, newer]) == START - 86_400_000
    assert inspector.oldest_ms([newer]) == sampled_ms
    assert inspector.oldest_ms([without, newer]) is None


def test_inspector_oldest_time_of_kafka_is_unknown_without_one() -> None:
    values = [b'{"user": "u%d"}' % (i % 9) for i in range(100)]
    inspector = Inspector([batch(values)], None)
    inspector.add(batch(values))
    oldest_ms = inspector.oldest_ms([])
    assert oldest_ms is not None
    assert inspector.oldest_ms([RecordColumns.of_values(values[:2], np.array([-1, 5]))]) == 5
    assert inspector.oldest_ms([RecordColumns.of_values(values[:2], np.array([-1, -1]))]) is None


def test_inspector_records_that_are_all_long_have_their_format() -> None:
    values = [json.dumps({"u": f"u{i % 9}", "at": START + i, "text": "x" * 70_000}).encode() for i in range(60)]
    found = inspected([batch(values)])
    assert found["format"]["splitter_format"] == {"name": "json"}
    assert (found["keys"][0]["name"], found["times"][-1]["name"]) == ("u", "at")
