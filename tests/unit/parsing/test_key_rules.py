"""Keys that are dropped or renamed if they contain a text, compared with the plain definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.parsing.key_converter import KeyRules

ODD = ["?", "\\", ".", "\0", "é", "\N{MATHEMATICAL SCRIPT CAPITAL X}", "(", "\n", "$"]
TEXTS = st.lists(st.text("aAbBéÉ.?\\\0|", min_size=1, max_size=3), max_size=3)


def plain(keys: Sequence[str], skip: Sequence[str], merge: Mapping[str, Sequence[str]]) -> list[tuple[int, str]]:
    """Apply the rules key by key; returns index and key of the remaining keys."""
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
def test_key_rules_over_any_keys_equal_their_reference_definition(
    keys: list[str], skip: list[str], merge: dict[str, list[str]]
) -> None:
    left, kept = KeyRules(skip, merge).apply(keys)
    positions = range(len(keys)) if kept is None else kept.tolist()
    assert list(zip(positions, left, strict=True)) == plain(keys, skip, merge)


@pytest.mark.parametrize("odd", ODD)
def test_key_rules_special_characters_are_matched_literally(odd: str) -> None:
    left, _ = KeyRules([], {"odd": [odd]}).apply([odd, f"x{odd.lower()}y", "x", ""])
    assert left == ["odd", "odd", "x", ""]


def test_key_rules_several_matches_use_the_first_entry_unless_the_key_is_dropped() -> None:
    merge = {"Second": ["two"], "First": ["one", "two"]}
    assert KeyRules(["?"], merge).apply(["one", "onetwo", "two?", "none", "x"])[0] == ["First", "Second", "First", "x"]


def test_key_rules_largest_allowed_number_of_texts_is_accepted() -> None:
    texts = [f"{i:04d}" + "é" * 96 for i in range(1000)]
    assert KeyRules([], {"all": texts}).apply([texts[-1], "x"])[0] == ["all", "x"]
