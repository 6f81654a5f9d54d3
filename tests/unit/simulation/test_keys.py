"""Numbers of keys: dense, stable, one for each key."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless.simulation.keys import KeyNumbers


@settings(deadline=None)  # the first call may compile
@given(st.lists(st.lists(st.text(max_size=5))))
def test_every_key_keeps_the_number_of_its_first_coming(batches: list[list[str]]) -> None:
    numbers, known = KeyNumbers(), dict[str, int]()
    for batch in batches:
        expected = [known.setdefault(key, len(known)) for key in batch]
        assert numbers.of(pa.array(batch, pa.string())).tolist() == expected


def test_many_keys_are_told_apart() -> None:
    keys = pa.array([f"k{number}" for number in range(100_000)])
    numbers = KeyNumbers()
    assert numbers.of(keys).tolist() == list(range(100_000))
    assert numbers.of(keys.slice(50_000, 10)).tolist() == list(range(50_000, 50_010))
