"""Converts a column of fields to keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skewless.parsing.converters import Problems, longer, texts_of
from skewless.parsing.field_settings import KeySettings, LimitSettings
from skewless.parsing.fixed_point import Scalar
from skewless.parsing.pattern import DELIMITER, Pattern


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The keys of a column of fields, and what is wrong with invalid ones."""

    keys: list[str]
    row_indices: NDArray[np.intp] | None
    """Index of the field of each key. None: each field has exactly one key."""
    problems: Problems
    """By index of the key."""
    unsearchable: Problems
    """By index of the field, for fields that the pattern cannot be applied to. They have no keys."""


class KeyConverter:
    """Converts a column of key fields to keys: one step per setting of `KeySettings`, then a check of the length."""

    def __init__(self, settings: KeySettings, limits: LimitSettings) -> None:
        self._prefix = settings.strip_prefix
        self._pattern = Pattern(settings.pattern) if settings.pattern is not None else None
        self._lowercase = settings.lowercase
        self._rules = KeyRules(settings.drop_if_contains, settings.rename_if_contains)
        self._key_bytes = limits.key_bytes
        self._pattern_input_bytes = limits.pattern_input_bytes

    def convert(self, column: Sequence[Scalar]) -> KeyColumn:
        """Return the keys of a column of fields."""
        texts = texts_of(column)
        if self._prefix:
            texts = [text.removeprefix(self._prefix) for text in texts]
        row_indices = None
        unsearchable: Problems = {}
        if self._pattern is not None:
            unsearchable = self._unsearchable(texts)
            if unsearchable:
                texts = ["" if i in unsearchable else text for i, text in enumerate(texts)]
            texts, row_indices = self._pattern.find(texts)
        if self._lowercase:
            texts = [text.lower() for text in texts]
        texts, remaining = self._rules.apply(texts)
        if remaining is not None:
            row_indices = remaining if row_indices is None else row_indices[remaining]
        return KeyColumn(texts, row_indices, self._too_long(texts), unsearchable)

    def _unsearchable(self, texts: list[str]) -> Problems:
        limit = self._pattern_input_bytes
        problems = dict.fromkeys(longer(texts, limit), f"is longer than {limit} bytes, too long for a pattern")
        return problems | {
            i: "contains U+FDD0, which is not a character" for i, t in enumerate(texts) if DELIMITER in t
        }

    def _too_long(self, keys: list[str]) -> Problems:
        return dict.fromkeys(longer(keys, self._key_bytes), f"is longer than {self._key_bytes} bytes")


class KeyRules:
    """Drops keys that contain a text of `drop`. Gives keys that contain a text of `rename` the name of its entry.

    Case is ignored. `drop` applies first, then the first matching entry of `rename`.
    """

    def __init__(self, drop: Sequence[str], rename: Mapping[str, Sequence[str]]) -> None:
        rules: list[tuple[str | None, Sequence[str]]] = [(None, drop), *rename.items()]
        # In reverse order, so that the result of an earlier rule overwrites the result of a later one.
        self._rules = [(name, _any_of(texts)) for name, texts in reversed(rules) if texts]

    def apply(self, keys: list[str]) -> tuple[list[str], NDArray[np.intp] | None]:
        """Return the remaining keys, and the index of each in `keys`. The indices are None if no key was dropped."""
        if not self._rules:
            return keys, None
        changed = self._changed(list(set(keys)))
        if not changed:
            return keys, None
        renamed = [changed.get(key, key) for key in keys]
        if None not in changed.values():
            return renamed, None  # type: ignore[return-value]  # proven by the line above
        remaining = [i for i, key in enumerate(renamed) if key is not None]
        return [key for key in renamed if key is not None], np.array(remaining, np.intp)

    def _changed(self, distinct: Sequence[str]) -> dict[str, str | None]:
        """Return the keys to replace with their new name, or None to drop them. Each distinct key is matched once."""
        lowered = pa.array([key.lower() for key in distinct], pa.string())
        changed: dict[str, str | None] = {}
        for name, pattern in self._rules:
            matches = pc.match_substring_regex(lowered, pattern).to_numpy(zero_copy_only=False)
            changed |= {distinct[i]: name for i in np.flatnonzero(matches).tolist()}
        return changed


def _any_of(texts: Sequence[str]) -> str:
    """Return a regular expression of RE2 that matches any of the texts. Each character is written as its code point."""
    return "|".join("".join(rf"\x{{{ord(character):x}}}" for character in text.lower()) for text in texts)
