"""Drops or replaces keys by the texts that they contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


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
