"""Laws of the enricher: each record gets the fields of the newest row of its key, as in a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from skewless.engine.message_batch import MessageBatch
from skewless.stages.enricher.settings import EnrichSettings
from skewless.stages.enricher.step import EnricherStep
from skewless.stages.enricher.table import Table
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

KEYS = "a", "b", "ü", "1"
FIELDS = {"country": "geo.country", "age": "age"}
OWN = [("trace", b"1"), ("country", b"of the record"), ("other", b"2"), ("country", b"again")]
"""Headers that some records have already."""

texts = st.sampled_from(["de", "", "fr", 7, 1.5, True, None])
rows = st.one_of(
    st.none(),  # deletes the row
    st.just(b"{"),
    st.builds(lambda country, age: msgspec.json.encode({"geo": {"country": country}, "age": age}), texts, texts),
    st.builds(lambda age: msgspec.json.encode({"age": age}), texts),
)
updates = st.lists(st.tuples(st.sampled_from(KEYS), rows), max_size=6)
events = st.lists(st.tuples(st.sampled_from([*KEYS, "z", "", None]), st.booleans()), min_size=1, max_size=6)
steps = st.lists(st.one_of(updates.map(lambda each: ("rows", each)), events.map(lambda each: ("events", each))))


def batch(topic: str, records: list[OutputRecord], first: int) -> MessageBatch:
    return MessageBatch.of_outputs(TopicPartition(topic, 0), records, 0, first)


def fields_of(row: bytes | None) -> dict[str, str] | None:
    """Return the texts of a row; None if there is none, or it cannot be read."""
    if row is None or row == b"{":
        return None
    decoded: Mapping[str, Any] = msgspec.json.decode(row)
    found = {"country": decoded.get("geo", {}).get("country"), "age": decoded.get("age")}
    as_texts = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in found.items()
    }
    return {name: text for name, text in as_texts.items() if text not in ("", "null")}


@given(
    steps, st.sampled_from([("dead_letter", None), ("keep", None), ("keep", "unknown")]), st.sampled_from([1, 10**6])
)
def test_enricher_of_rows_and_records_in_any_order_equals_a_dictionary(
    order: list[tuple[str, list[Any]]], missing: tuple[str, str | None], batch_size: int
) -> None:
    policy, default = missing
    table = {"topic": "users", "key": {"field": "user"}, "fields": FIELDS, "missing": policy, "default": default}
    settings = EnrichSettings.model_validate({"topic": "views", "tables": [table]})
    built = Table(settings.tables[0])
    step = EnricherStep(settings, [built])
    expected_rows: dict[str, dict[str, str]] = {}
    offset = 0
    for kind, entries in order:
        if kind == "rows":
            records = [OutputRecord("users", value, key.encode()) for key, value in entries]
            for first in range(0, len(records), batch_size):
                built.update(batch("users", records[first : first + batch_size], first))
            for key, value in entries:
                expected_rows.pop(key, None)
                if (fields := fields_of(value)) is not None:
                    expected_rows[key] = fields
            assert len(built) == len(expected_rows)
            continue
        records = [
            OutputRecord("views", msgspec.json.encode({"user": user}), b"k", timestamp=5, headers=OWN if own else [])
            for user, own in entries
        ]
        expected = []
        for record, (user, _) in zip(records, entries, strict=True):
            found = expected_rows.get(user) if user else None
            is_complete = found is not None and found.keys() == FIELDS.keys()
            texts_of = {name: (found or {}).get(name, default) for name in FIELDS}
            added = [(name, text.encode()) for name, text in texts_of.items() if text is not None]
            kept = [(name, value) for name, value in record.headers if name not in FIELDS]
            expected.append([*kept, *added] if is_complete or policy == "keep" else None)
        written = [
            output
            for first in range(0, len(records), batch_size)
            for output in step.process(batch("views", records[first : first + batch_size], offset + first), 0)
        ]
        offset += len(records)
        assert [list(each.headers) if each.topic == "enriched" else None for each in written] == expected
        assert [each.value for each in written] == [each.value for each in records]
        assert {each.timestamp for each in written} == {5}
