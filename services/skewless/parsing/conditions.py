"""Decides which records meet the conditions of `splitter.where`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skewless.parsing.converters import text_of
from skewless.parsing.field_settings import ConditionSettings, Operand
from skewless.parsing.fixed_point import Scalar, read_number

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
}


class Condition:
    """The operators of one condition."""

    def __init__(self, settings: ConditionSettings) -> None:
        self._tests = list[Callable[[Scalar], bool]]()
        if settings.is_ is not None:
            self._tests.append(_equals_any([settings.is_]))
        if settings.in_ is not None:
            self._tests.append(_equals_any(settings.in_))
        if settings.is_not is not None:
            self._tests.append(_equals_none([settings.is_not]))
        if settings.not_in is not None:
            self._tests.append(_equals_none(settings.not_in))
        for name, compare in _COMPARISONS.items():
            bound = getattr(settings, name)
            if bound is not None:
                self._tests.append(_compares(compare, bound))
        self._pattern = settings.matches
        self._exists = settings.exists

    def meets(self, column: Sequence[Any]) -> list[bool]:
        """Return for each entry whether it meets the condition. None is an absent field."""
        # Once per distinct entry, because fields of conditions have few values.
        kinds = [entry if type(entry) is str else _kind(entry) for entry in column]
        distinct = dict(zip(kinds, column, strict=True))
        absent, other = self._exists is False, self._exists is True and self._tests == [] and self._pattern is None
        met = {kind: absent if entry is None else other for kind, entry in distinct.items()}
        scalars = {kind: entry for kind, entry in distinct.items() if isinstance(entry, str | int | float)}
        matching = self._matching(list(scalars.values()))
        for (kind, entry), is_match in zip(scalars.items(), matching, strict=True):
            met[kind] = is_match and self._test(entry)
        return [met[kind] for kind in kinds]

    def _test(self, entry: Scalar) -> bool:
        return self._exists is not False and all(test(entry) for test in self._tests)

    def _matching(self, entries: Sequence[Scalar]) -> Sequence[bool]:
        if self._pattern is None:
            return [True] * len(entries)
        texts = pa.array([text_of(entry) for entry in entries], pa.large_string())
        matches: list[bool] = pc.match_substring_regex(texts, self._pattern).to_pylist()
        return matches


def _kind(entry: Any) -> object:
    """Return what all entries that meet the same conditions as this one have in common. No text is such an object."""
    # The type counts: 1 is not true. The text of a zero counts: 0.0 is not -0.0. The texts of a package's format may be
    # of a class derived from `str`.
    return (type(entry), entry or str(entry)) if isinstance(entry, str | int | float) else type(entry)


def _equals_any(operands: Sequence[Operand]) -> Callable[[Scalar], bool]:
    """Return a test for one of several operands: text by text, a number by number, a boolean by its name."""
    texts = {text_of(operand) for operand in operands if isinstance(operand, str | bool)}
    numbers = {operand for operand in operands if isinstance(operand, int | float) and not isinstance(operand, bool)}
    return lambda entry: text_of(entry) in texts or (bool(numbers) and _number(entry) in numbers)


def _equals_none(operands: Sequence[Operand]) -> Callable[[Scalar], bool]:
    equals_any = _equals_any(operands)
    return lambda entry: not equals_any(entry)


def _compares(compare: Callable[[Any, Any], bool], bound: float) -> Callable[[Scalar], bool]:
    def test(entry: Scalar) -> bool:
        number = _number(entry)
        return number is not None and compare(number, bound)

    return test


def _number(entry: Scalar) -> int | float | None:
    """Return the number that a field contains, exactly; None if it is not one."""
    if isinstance(entry, bool):
        return None
    return read_number(entry.strip()) if isinstance(entry, str) else entry
