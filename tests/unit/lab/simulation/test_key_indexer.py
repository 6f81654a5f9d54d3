"""Key numbers are dense, stable and unique."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless.lab.simulation.key_indexer import KeyIndexer


@settings(deadline=None)  # the first call may compile
@given(st.lists(st.lists(st.text(max_size=5))))
def test_key_indexer_any_batches_number_keys_in_order_of_first_occurrence(batches: list[list[str]]) -> None:
    numbers, known = KeyIndexer(), dict[str, int]()
    for batch in batches:
        expected = [known.setdefault(key, len(known)) for key in batch]
        assert numbers.of(pa.array(batch, pa.string())).tolist() == expected


def test_key_indexer_many_keys_have_distinct_numbers() -> None:
    keys = pa.array([f"k{number}" for number in range(100_000)])
    numbers = KeyIndexer()
    assert numbers.of(keys).tolist() == list(range(100_000))
    assert numbers.of(keys.slice(50_000, 10)).tolist() == list(range(50_000, 50_010))
