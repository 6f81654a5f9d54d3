"""Keys that are skipped or merged by what they contain, held to the plain definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.splitter.merging import Merging

ODD = ["?", "\\", ".", "\0", "é", "\N{MATHEMATICAL SCRIPT CAPITAL X}", "(", "\n", "$"]
TEXTS = st.lists(st.text("aAbBéÉ.?\\\0|", min_size=1, max_size=3), max_size=3)


def plain(keys: Sequence[str], skip: Sequence[str], merge: Mapping[str, Sequence[str]]) -> list[tuple[int, str]]:
    """Say the same key by key: position and key of what is left."""
    left = []
    for i, key in enumerate(keys):
        if not any(text.lower() in key.lower() for text in skip):
            fitting = (name for name, texts in merge.items() if any(text.lower() in key.lower() for text in texts))
            left.append((i, next(fitting, key)))
    return left


@given(
    keys=st.lists(st.text("aAbBéÉ.?\\\0|", max_size=4), max_size=8),
    skip=TEXTS,
    merge=st.dictionaries(st.sampled_from(["One", "a", "?"]), TEXTS, max_size=3),
)
def test_it_equals_its_definition_key_by_key(keys: list[str], skip: list[str], merge: dict[str, list[str]]) -> None:
    left, kept = Merging(skip, merge).apply(keys)
    positions = range(len(keys)) if kept is None else kept.tolist()
    assert list(zip(positions, left, strict=True)) == plain(keys, skip, merge)


@pytest.mark.parametrize("odd", ODD)
def test_no_character_of_a_text_is_a_pattern(odd: str) -> None:
    left, _ = Merging([], {"odd": [odd]}).apply([odd, f"x{odd.lower()}y", "x", ""])
    assert left == ["odd", "odd", "x", ""]


def test_the_first_entry_that_fits_counts_and_skipping_goes_before_all() -> None:
    merge = {"Second": ["two"], "First": ["one", "two"]}
    assert Merging(["?"], merge).apply(["one", "onetwo", "two?", "none", "x"])[0] == ["First", "Second", "First", "x"]


def test_most_texts_that_settings_allow_are_within_what_the_matcher_takes() -> None:
    texts = [f"{i:04d}" + "é" * 96 for i in range(1000)]
    assert Merging([], {"all": texts}).apply([texts[-1], "x"])[0] == ["all", "x"]
