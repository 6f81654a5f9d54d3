"""Keys that are skipped, or become another key, by the texts that they contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


class Merging:
    """Skips a key that contains one of `skip`, and replaces one that contains a text of `merge` by its name there.

    Upper and lower case are the same. Skipping goes first, then the first entry of `merge` that fits.
    """

    def __init__(self, skip: Sequence[str], merge: Mapping[str, Sequence[str]]) -> None:
        rules: list[tuple[str | None, Sequence[str]]] = [(None, skip), *merge.items()]
        # Backwards: what an earlier rule says of a key then overwrites what a later one does.
        self._rules = [(name, _any_of(texts)) for name, texts in reversed(rules) if texts]

    def apply(self, keys: list[str]) -> tuple[list[str], NDArray[np.intp] | None]:
        """Return the keys that are left, and the position of each in `keys` (None: all are left)."""
        changed = self._changed(list(set(keys)))
        if not changed:
            return keys, None
        renamed = [changed.get(key, key) for key in keys]
        if None not in changed.values():
            return renamed, None  # type: ignore[return-value]  # the line above is the proof
        kept = [i for i, key in enumerate(renamed) if key is not None]
        return [key for key in renamed if key is not None], np.array(kept, np.intp)

    def _changed(self, distinct: Sequence[str]) -> dict[str, str | None]:
        """Look at each distinct key once, whole columns at a time: hot keys cost a look-up."""
        lowered = pa.array([key.lower() for key in distinct], pa.string())
        changed: dict[str, str | None] = {}
        for name, pattern in self._rules:
            fitting = pc.match_substring_regex(lowered, pattern).to_numpy(zero_copy_only=False)
            changed |= {distinct[i]: name for i in np.flatnonzero(fitting).tolist()}
        return changed


def _any_of(texts: Sequence[str]) -> str:
    """Write texts as one regular expression (RE2, linear in the key's length), each character by its number."""
    return "|".join("".join(rf"\x{{{ord(character):x}}}" for character in text.lower()) for text in texts)
