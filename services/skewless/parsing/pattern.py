"""Searches the user's regular expression in texts. One match takes time linear in the text for any expression.

Python's own engine backtracks: for some expressions it takes exponential time, and one record could block the pipeline.
RE2 does not backtrack (https://swtch.com/~rsc/regexp/regexp3.html). Arrow includes RE2 and searches whole columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skewless.errors import ConfigurationError

DELIMITER = "\ufdd0"
"""Delimiter before and after each match: a Unicode noncharacter. `KeyConverter` rejects texts that contain it."""

_BYTE_ESCAPE = re.compile(r"(?:^|[^\\])(?:\\\\)*\\C")


class Pattern:
    """Finds the keys in texts: all non-empty matches of an expression, or of its group if it has one."""

    def __init__(self, expression: str) -> None:
        """Raise ConfigurationError if the expression is invalid."""
        check_syntax(expression)
        groups = _groups(expression)
        if groups > 1:
            raise ConfigurationError("has more than one group: keep the group of the key, write the others as (?:...)")
        self._expression = expression if groups else f"({expression})"

    def find(self, texts: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
        """Return all keys, and the index of the text of each. No text may contain `DELIMITER`."""
        delimited = _replace_matches(texts, self._expression, rf"{DELIMITER}\1{DELIMITER}").to_pylist()
        matches = [text.split(DELIMITER)[1::2] for text in delimited]
        keys = [key for text_matches in matches for key in text_matches]
        row_indices = np.repeat(np.arange(len(texts)), list(map(len, matches)))
        if "" in keys:
            row_indices = row_indices[[key != "" for key in keys]]
            keys = [key for key in keys if key]
        return keys, row_indices


def _groups(expression: str) -> int:
    """Return the number of groups, at most 2: Arrow raises an error if a replacement refers to a missing group."""
    for number in (1, 2):
        try:
            _replace_matches([""], expression, rf"\{number}")
        except pa.ArrowInvalid:
            return number - 1
    return 2


def check_syntax(expression: str) -> None:
    """Raise ConfigurationError if an expression is invalid. It may have any number of groups."""
    if _BYTE_ESCAPE.search(expression):
        raise ConfigurationError(r"\C may match a part of a character: remove it")
    try:
        _replace_matches([""], expression, "")
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ConfigurationError(
            f"not a regular expression of RE2 (which has no lookaround and no backreferences): {reason}"
        ) from None


def _replace_matches(texts: Sequence[str], expression: str, replacement: str) -> pa.Array:
    column = pa.array(texts, pa.large_string())
    return pc.replace_substring_regex(column, pattern=expression, replacement=replacement)
