"""Machine code for loops in which each decision depends on the one before, so that numpy cannot do them at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Compiled(Generic[P, R]):
    """A function that becomes machine code when it is first called; Numba is loaded then, most stages never need it."""

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it, compiled."""
        return self._code(*args, **kwargs)

    @cached_property
    def _code(self) -> Callable[P, R]:
        import numba

        compile_: Callable[..., Any] = numba.njit
        try:
            code: Callable[P, R] = compile_(cache=True)(self._function)
        except RuntimeError:
            code = compile_()(self._function)
        return code

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks a global for, so that one compiled function can call another."""
        return self._code._numba_type_  # type: ignore[attr-defined]


def compiled(function: Callable[P, R]) -> Compiled[P, R]:
    """Compile `function` (numbers and numpy arrays only) at its first call.

    The machine code is kept on disk beside the module or in the user's cache folder; where neither can be written,
    as in a container with a read-only root, every process compiles for itself.
    """
    return Compiled(function)
