"""The user's regular expression, searched in time that is linear in the text for one match, whatever it says.

Python's own engine goes back and tries again: for some expressions that takes time exponential in the text, and one
record would stop the pipeline for ever. RE2 does not (https://swtch.com/~rsc/regexp/regexp3.html); it comes with Arrow,
which searches whole columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skewless.errors import ConfigurationError

MARK = "\ufdd0"
"""Stands around every key that was found. It is no character (Unicode: for internal use), so texts have none."""

_HALF_CHARACTERS = re.compile(r"(?:^|[^\\])(?:\\\\)*\\C")


class Pattern:
    """Finds the keys in texts: every match, or its group if there is one, that is not empty."""

    def __init__(self, expression: str) -> None:
        """Raise a ConfigurationError that says what is wrong with the expression."""
        if _HALF_CHARACTERS.search(expression):
            raise ConfigurationError(r"\C may match a part of a character: remove it")
        groups = _groups(expression)
        if groups > 1:
            raise ConfigurationError("has more than one group: keep the one that is the key, write others as (?:...)")
        self._expression = expression if groups else f"({expression})"

    def find(self, texts: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
        """Return all keys, and the position in `texts` that each comes from; no text may have a `MARK`."""
        marked = _replaced(texts, self._expression, rf"{MARK}\1{MARK}").to_pylist()
        found = [text.split(MARK)[1::2] for text in marked]
        keys = [key for matches in found for key in matches]
        origins = np.repeat(np.arange(len(texts)), list(map(len, found)))
        if "" in keys:
            origins = origins[[key != "" for key in keys]]
            keys = [key for key in keys if key]
        return keys, origins


def _groups(expression: str) -> int:
    """Count the groups, but not beyond two: Arrow refuses to fill in one that is not there."""
    _check(expression)
    for number in (1, 2):
        try:
            _replaced([""], expression, rf"\{number}")
        except pa.ArrowInvalid:
            return number - 1
    return 2


def _check(expression: str) -> None:
    try:
        _replaced([""], expression, "")
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ConfigurationError(
            f"not a regular expression of RE2 (which has no lookaround and no backreferences): {reason}"
        ) from None


def _replaced(texts: Sequence[str], expression: str, replacement: str) -> pa.Array:
    column = pa.array(texts, pa.large_string())
    return pc.replace_substring_regex(column, pattern=expression, replacement=replacement)
