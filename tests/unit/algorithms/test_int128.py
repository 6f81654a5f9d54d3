"""Columns of 128-bit integers compute as Python's integers do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from skewless.algorithms import int128

# Sums of two have at most 38 digits, as all sums of values.
numbers = st.lists(st.integers(-(2**125), 2**125) | st.integers(-(2**64), 2**64), min_size=1, max_size=20)


def array_of(integers: list[int]) -> int128.Int128:
    return np.concatenate([int128.full(1, number) for number in integers])


@given(numbers)
def test_int128_any_numbers_are_converted_to_arrow_and_back(integers: list[int]) -> None:
    array = array_of(integers)
    assert int128.to_ints(array) == integers
    assert list(map(int, int128.to_arrow(array).to_pylist())) == integers
    assert int128.to_ints(int128.from_arrow(int128.to_arrow(array).slice(1))) == integers[1:]
    assert int128.to_ints(int128.from_arrow(pa.chunked_array([int128.to_arrow(array)] * 2))) == integers * 2


@given(numbers)
def test_int128_array_is_narrowed_only_if_all_numbers_fit_into_64_bits(integers: list[int]) -> None:
    array = array_of(integers)
    fits = all(-(2**63) <= number < 2**63 for number in integers)
    assert int128.fits_64_bits(array) is fits
    narrowed = int128.narrowed(int128.to_arrow(array))
    assert (narrowed.type == pa.int64()) is fits
    assert int128.to_ints(int128.from_arrow(narrowed)) == integers


@given(numbers, st.data())
def test_int128_sum_and_order_equal_those_of_python(integers: list[int], data: st.DataObject) -> None:
    others = data.draw(st.permutations(integers))
    left, right = array_of(integers), array_of(others)
    pairs = list(zip(integers, others, strict=True))
    assert int128.to_ints(int128.add(left, right)) == [one + other for one, other in pairs]
    assert int128.is_less(left, right).tolist() == [one < other for one, other in pairs]
